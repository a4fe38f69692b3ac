package org.edgekit

import java.util.concurrent.CountDownLatch
import java.util.concurrent.atomic.AtomicInteger
import kotlin.io.path.createTempDirectory
import kotlin.test.Test
import kotlin.test.assertEquals
import kotlin.test.assertFailsWith
import kotlin.test.assertFalse
import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.CompletableDeferred
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.async
import kotlinx.coroutines.awaitAll
import kotlinx.coroutines.flow.flow
import kotlinx.coroutines.flow.toList
import kotlinx.coroutines.runBlocking

class RunnerThreadTest {
    private val bundle = ModelBundle(FolderSource(Files.bundle(createTempDirectory("edgekit").toFile())))

    /** Notes how many runs there are at once, on which threads, and waits in each for what a test wants. */
    private inner class Watched(val wait: () -> Unit = {}) : Runner {
        private val toy = ToyRunner(bundle.models.values.first())
        private val now = AtomicInteger()
        val most = AtomicInteger()
        val threads = mutableSetOf<String>()
        val closed = CountDownLatch(1)
        var runs = 0
        override val model = toy.model
        override val device = "watched"

        override fun run(inputs: Map<String, Tensor>): Map<String, Tensor> {
            most.accumulateAndGet(now.incrementAndGet(), ::maxOf)
            threads += Thread.currentThread().name
            wait()
            runs++
            return toy.run(inputs).also { now.decrementAndGet() }
        }

        override fun close() {
            threads += Thread.currentThread().name
            closed.countDown()
        }
    }

    private val case = bundle.golden.cases[0]

    @Test
    fun runsOneAtATimeOnAThreadOfItsOwn() = runBlocking {
        val watched = Watched { Thread.sleep(1) }
        val runner = RunnerThread.open { watched }
        List(8) { async(Dispatchers.Default) { runner.use { run(model.inputs(case)) } } }.awaitAll()
        assertEquals(listOf("", ""), runner.use { selfTest(bundle) }.map { it.reason })
        runner.close()
        watched.closed.await()
        assertEquals(1, watched.most.get())
        assertEquals(setOf("edgekit runner"), watched.threads)
        assertFailsWith<CancellationException> { runner.use { device } }
        Unit
    }

    @Test
    fun ofPicturesThatArriveDuringARunTheNewestIsAnswered() = runBlocking {
        val begun = CompletableDeferred<Unit>()
        val goOn = CountDownLatch(1)
        val watched = Watched { begun.complete(Unit); goOn.await() }
        val runner = RunnerThread.open { watched }
        fun grey(level: Int) = Picture(1, 1, ByteArray(3) { level.toByte() })
        val frames = flow {
            emit(grey(0))
            begun.await()
            for (level in listOf(51, 102, 255)) emit(grey(level))
            goOn.countDown()
        }
        val answers = runner.answers(frames, FloatArray(3)).toList()
        runner.close()
        assertEquals(listOf(0f, 1f), answers.map { it.relevance[0] })
        assertEquals(2, watched.runs)
    }

    @Test
    fun aRunnerThatDoesNotOpenLeavesNoThread() = runBlocking {
        var thread: Thread? = null
        assertFailsWith<EdgekitException> {
            RunnerThread.open { thread = Thread.currentThread(); throw EdgekitException("no runtime") }
        }
        thread!!.join(10_000)
        assertFalse(thread.isAlive)
    }
}
