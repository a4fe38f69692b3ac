package org.edgekit

import kotlin.math.ceil
import kotlin.math.floor
import kotlin.math.sqrt

/** Latencies in milliseconds, in the order of the runs; percentiles, mean and standard deviation as in edgekit's reports. */
class Timing(val device: String, val milliseconds: DoubleArray) {
    private val sorted = milliseconds.sortedArray()

    val runs: Int get() = sorted.size
    val mean: Double get() = sorted.average()
    val std: Double get() = mean.let { m -> sqrt(sorted.sumOf { (it - m) * (it - m) } / sorted.size) }

    /** A percentile, with linear interpolation as in NumPy; `percent` is 50 for the median. */
    fun percentile(percent: Double): Double {
        val at = percent / 100 * (sorted.size - 1)
        val low = sorted[floor(at).toInt()]
        return low + (sorted[ceil(at).toInt()] - low) * (at - floor(at))
    }
}

/**
 * Inference latency on this device, by the protocol of edgekit's reports: warm-up runs, then timed runs until both `runs`
 * and `seconds` are reached. On a slow device `maxSeconds` ends it earlier.
 */
class Bench(
    private val warmUps: Int = 10,
    private val runs: Int = 100,
    private val seconds: Double = 2.0,
    private val maxSeconds: Double = 60.0,
    private val clock: () -> Long = System::nanoTime,
) {
    /** Measure a runner, without preprocessing; `answered` gets every answer, of warm-up runs too, while the clock stands. */
    fun time(runner: Runner, inputs: Map<String, Tensor>, answered: (Map<String, Tensor>) -> Unit = {}): Timing {
        val started = clock()
        fun elapsed(since: Long) = (clock() - since) / 1e9
        repeat(warmUps) { if (elapsed(started) < maxSeconds / 4) answered(runner.run(inputs)) }
        val times = ArrayList<Double>()
        val timed = clock()
        while ((times.size < runs || elapsed(timed) < seconds) && (elapsed(started) < maxSeconds || times.size < 3)) {
            val start = clock()
            val answer = runner.run(inputs)
            times.add((clock() - start) / 1e6)
            answered(answer)
        }
        return Timing(runner.device, times.toDoubleArray())
    }
}
