package org.edgekit

import kotlin.math.ceil
import kotlin.math.floor
import kotlin.math.sqrt

/** Latency in milliseconds, as edgekit's reports have it. */
class Timing(val device: String, private val sorted: DoubleArray) {
    val runs: Int get() = sorted.size
    val mean: Double get() = sorted.average()
    val std: Double get() = mean.let { m -> sqrt(sorted.sumOf { (it - m) * (it - m) } / sorted.size) }

    /** A percentile, linear between neighbours as NumPy's; `share` is 50 for the median. */
    fun percentile(share: Double): Double {
        val at = share / 100 * (sorted.size - 1)
        val low = sorted[floor(at).toInt()]
        return low + (sorted[ceil(at).toInt()] - low) * (at - floor(at))
    }
}

/**
 * How long a run takes here, by the protocol of edgekit's reports: warm-ups, then at least so many runs and so long.
 *
 * On a slow device `mostSeconds` ends it earlier.
 */
class Bench(
    private val warmUps: Int = 10,
    private val runs: Int = 100,
    private val seconds: Double = 2.0,
    private val mostSeconds: Double = 60.0,
    private val clock: () -> Long = System::nanoTime,
) {
    /** Time a runner without preprocessing. */
    fun time(runner: Runner, inputs: Map<String, Tensor>): Timing {
        val begun = clock()
        fun spent(since: Long) = (clock() - since) / 1e9
        repeat(warmUps) { if (spent(begun) < mostSeconds / 4) runner.run(inputs) }
        val times = ArrayList<Double>()
        val timed = clock()
        while ((times.size < runs || spent(timed) < seconds) && (spent(begun) < mostSeconds || times.size < 3)) {
            val start = clock()
            runner.run(inputs)
            times.add((clock() - start) / 1e6)
        }
        return Timing(runner.device, times.sorted().toDoubleArray())
    }
}

/**
 * The `result.json` that `edgekit report` reads: what this device found, in the words of edgekit's result.py.
 *
 * Put it at `build/<model>/imported/<device>-<target>/result.json`; the report shows it beside the other places.
 */
fun resultJson(
    bundle: Bundle,
    runner: Runner,
    cases: List<CaseReport>,
    timing: Timing?,
    place: String,
    host: Map<String, String>,
): String {
    val manifest = runner.model.manifest
    val failed = cases.filterNot { it.passed }
    val timings: Map<String, Any> = if (timing == null) emptyMap() else mapOf("candidate" to record(timing))
    val found = mapOf(
        "place" to place,
        "device" to runner.device,
        "status" to if (cases.isEmpty()) "not verified here" else if (failed.isEmpty()) "verified" else "rejected",
        "reasons" to if (cases.isEmpty()) listOf("the bundle has no golden vectors") else failed.map { "${it.name}: ${it.reason}" },
        "notes" to listOf("judged on ${cases.size} golden vectors"),
        "measures" to measures(manifest, cases),
        "timings" to timings,
    )
    return Json.write(
        mapOf(
            "schema_version" to 1,
            "name" to manifest.name,
            "target" to manifest.target,
            "precision" to manifest.precision,
            "artifact_sha256" to runner.model.artifactSha256,
            "reference_sha256" to bundle.referenceSha256,
            "reference_device" to bundle.referenceDevice,
            "size" to runner.model.file.size,
            "host" to host,
            "places" to listOf(found),
        ),
    )
}

private fun measures(manifest: Manifest, cases: List<CaseReport>): List<Map<String, Any?>> {
    if (cases.isEmpty()) return emptyList()
    val worst = cases.maxBy { it.maxAbs }
    val missed = cases.maxBy { it.lostMass }
    return listOf(
        mapOf(
            "batch" to "golden", "output" to manifest.output("scores")?.name.orEmpty(), "metric" to "max abs",
            "value" to worst.maxAbs, "limit" to worst.limit, "passed" to (worst.maxAbs <= worst.limit), "image" to worst.name,
        ),
        mapOf(
            "batch" to "golden", "output" to manifest.output("ranking")?.name.orEmpty(), "metric" to "lost mass",
            "value" to missed.lostMass, "limit" to Golden.LOST_MASS, "passed" to (missed.lostMass <= Golden.LOST_MASS),
            "image" to missed.name,
        ),
    )
}

private fun record(timing: Timing): Map<String, Any> = mapOf(
    "device" to timing.device, "runs" to timing.runs, "mean" to timing.mean, "std" to timing.std,
    "p50" to timing.percentile(50.0), "p90" to timing.percentile(90.0),
    "p95" to timing.percentile(95.0), "p99" to timing.percentile(99.0),
)
