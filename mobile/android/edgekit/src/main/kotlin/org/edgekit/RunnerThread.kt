package org.edgekit

import java.util.concurrent.Executors
import kotlinx.coroutines.ExecutorCoroutineDispatcher
import kotlinx.coroutines.asCoroutineDispatcher
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.conflate
import kotlinx.coroutines.flow.map
import kotlinx.coroutines.withContext

/**
 * A runner for coroutines, on a thread of its own: a runner is for one thread at a time, and no call here blocks its caller.
 *
 * Open it by [RunnerThread.open]. A run that has begun ends even where its coroutine is cancelled; the next one waits for it.
 */
class RunnerThread private constructor(private val runner: Runner, private val thread: ExecutorCoroutineDispatcher) : AutoCloseable {
    val model: Model get() = runner.model
    val device: String get() = runner.device

    /** `Runner.answer`, on its thread. */
    suspend fun answer(picture: Picture, query: FloatArray, k: Int = 0, size: InputSize? = null): Answer = use {
        answer(picture, query, k, size ?: model.manifest.fittingSize(picture.size))
    }

    /** The answers to a stream of pictures, such as a camera's: of those that arrive during a run only the newest is answered. */
    fun answers(pictures: Flow<Picture>, query: FloatArray, k: Int = 0): Flow<Answer> =
        pictures.conflate().map { answer(it, query, k) }

    /** Anything with the runner, on its thread: a self-test, a measurement, `Runner.run`. */
    suspend fun <T> use(work: Runner.() -> T): T = withContext(thread) { runner.work() }

    /** Close the runner after the runs that wait; does not wait itself. Later calls are cancelled. */
    override fun close() {
        thread.executor.execute { runner.close() }
        thread.close()
    }

    companion object {
        /** Open a runner on a new thread; the thread ends where [open] throws. */
        suspend fun open(open: () -> Runner): RunnerThread {
            val thread = Executors.newSingleThreadExecutor { Thread(it, "edgekit runner") }.asCoroutineDispatcher()
            try {
                return RunnerThread(withContext(thread) { open() }, thread)
            } catch (failure: Throwable) {
                thread.close()
                throw failure
            }
        }
    }
}
