package org.edgekit.bench

import org.edgekit.Bench
import org.edgekit.Runner
import org.edgekit.Tensor
import org.edgekit.Timing

/**
 * One artifact, all questions: answers, second answers in another order, and times; as `edgekit.evaluate.engine` does it.
 *
 * [tell] is called with what is going on before every run.
 */
class Evaluation(private val pack: Pack, private val runner: Runner, private val answers: Answers, private val tell: (String) -> Unit) {
    /** What the runtime said of each batch that it could not answer. */
    val failures = LinkedHashMap<String, String>()

    /** Rows that were answered differently the second time, by "<batch> again". */
    val again = LinkedHashMap<String, MutableList<Int>>()
    var repeated = 0
        private set
    var timedAnswers = 0
        private set

    /** Times of the first evaluation input; null where it was not timed. */
    var timing: Timing? = null
        private set

    fun run() {
        for (batch in pack.batches) attempt(batch.name, onFailure = { answers.drop(batch.name) }) { ask(batch) }
        for (batch in pack.batches.reversed()) {
            if (failures.isEmpty()) attempt("${batch.name} again") { askAgain(batch) }
        }
        if (pack.timed && failures.isEmpty()) time()
    }

    private fun ask(batch: Batch) = batch.ask(0 until batch.runs) { number, inputs ->
        tell("running ${batch.name}, ${number + 1} of ${batch.runs}")
        answers.add(batch.name, runner.run(inputs))
    }

    private fun askAgain(batch: Batch) = batch.ask((0 until minOf(batch.repeated, batch.runs)).reversed()) { number, inputs ->
        tell("asking ${batch.name} again, in another order")
        second(batch.name, number, runner.run(inputs))
        repeated++
    }

    private fun time() {
        val batch = pack.batches.firstOrNull { it.name == EVALUATION } ?: pack.batches.first()
        batch.ask(0..0) { _, inputs ->
            timing = Bench(runs = RUNS, seconds = pack.seconds, maxSeconds = LONGEST).time(runner, inputs) { answer ->
                tell("measuring latency")
                if (batch.repeated > 0) {
                    second(batch.name, 0, answer)
                    timedAnswers++
                }
            }
        }
    }

    /** An answer to a row that was asked again: kept where it differs in any bit. */
    private fun second(batch: String, row: Int, answer: Map<String, Tensor>) {
        val name = "$batch again"
        if (answers.same(batch, row, answer) || again[name].orEmpty().size >= MOST) return
        again.getOrPut(name) { mutableListOf() }.add(row)
        answers.add(name, answer)
    }

    private fun attempt(name: String, onFailure: () -> Unit = {}, work: () -> Unit) = try {
        work()
    } catch (error: PackException) {
        throw error
    } catch (error: Exception) {
        failures[name] = firstLine(error)
        onFailure()
    }

    private companion object {
        const val EVALUATION = "evaluation"
        const val MOST = 64
        const val RUNS = 100
        const val LONGEST = 600.0 // seconds
    }
}

/** An error in one line, as the reports show it. */
fun firstLine(error: Throwable): String {
    val said = error.message.orEmpty().trim().lineSequence().first()
    return "${error::class.java.simpleName}: $said".filterNot(Char::isISOControl).take(400)
}
