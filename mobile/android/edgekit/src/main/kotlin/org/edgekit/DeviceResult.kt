package org.edgekit

import kotlinx.serialization.SerialName
import kotlinx.serialization.Serializable

/**
 * The `result.json` that `edgekit report` reads: what was measured on this device, with the fields of edgekit's Result.
 *
 * Put it at `build/<model>/imported/<device>-<target>/result.json`; the report shows it beside the other places.
 */
fun resultJson(
    bundle: ModelBundle,
    runner: Runner,
    cases: List<CaseReport>,
    timing: Timing?,
    place: String,
    host: Map<String, String>,
): String {
    val manifest = runner.model.manifest
    val result = DeviceResult(
        schemaVersion = Manifest.SCHEMA_VERSION,
        name = manifest.name,
        target = manifest.target,
        precision = manifest.precision,
        artifactSha256 = runner.model.artifactSha256,
        referenceSha256 = bundle.referenceSha256,
        referenceDevice = bundle.referenceDevice,
        size = runner.model.file.size,
        host = host,
        places = listOf(placeResult(place, runner, cases, timing)),
    )
    return JsonFormat.encodeToString(result)
}

private fun placeResult(place: String, runner: Runner, cases: List<CaseReport>, timing: Timing?): PlaceResult {
    val failed = cases.filterNot { it.passed }
    return PlaceResult(
        place = place,
        device = runner.device,
        status = if (cases.isEmpty()) "not verified here" else if (failed.isEmpty()) "verified" else "rejected",
        reasons = if (cases.isEmpty()) listOf("the bundle has no golden vectors") else failed.map { "${it.name}: ${it.reason}" },
        notes = listOf("compared on ${cases.size} golden vectors"),
        measures = measures(cases),
        timings = if (timing == null) emptyMap() else mapOf("candidate" to record(timing)),
    )
}

private fun measures(cases: List<CaseReport>): List<Measure> {
    if (cases.isEmpty()) return emptyList()
    val nearest = cases.maxBy { if (it.passed) it.error / maxOf(it.limit, Double.MIN_VALUE) else Double.POSITIVE_INFINITY }
    val measure = Measure(
        batch = "golden",
        output = nearest.output,
        metric = METRICS[nearest.metric] ?: nearest.metric,
        value = nearest.error.takeIf { it.isFinite() }, // JSON has no infinity and no NaN
        limit = nearest.limit,
        passed = nearest.passed,
        row = nearest.name,
    )
    return listOf(measure)
}

/** Metric of the golden vectors -> what edgekit calls it. */
private val METRICS = mapOf("max_abs" to "max abs", "wrong" to "unequal", "lost_mass" to "lost mass")

private fun record(timing: Timing) = TimingRecord(
    device = timing.device,
    runs = timing.runs,
    mean = timing.mean,
    std = timing.std,
    p50 = timing.percentile(50.0),
    p90 = timing.percentile(90.0),
    p95 = timing.percentile(95.0),
    p99 = timing.percentile(99.0),
)

@Serializable
private class DeviceResult(
    @SerialName("schema_version") val schemaVersion: Int,
    val name: String,
    val target: String,
    val precision: String,
    @SerialName("artifact_sha256") val artifactSha256: String,
    @SerialName("reference_sha256") val referenceSha256: String,
    @SerialName("reference_device") val referenceDevice: String,
    val size: Long,
    val host: Map<String, String>,
    val places: List<PlaceResult>,
)

@Serializable
private class PlaceResult(
    val place: String,
    val device: String,
    val status: String,
    val reasons: List<String>,
    val notes: List<String>,
    val measures: List<Measure>,
    val timings: Map<String, TimingRecord>,
)

@Serializable
private class Measure(
    val batch: String,
    val output: String,
    val metric: String,
    val value: Double?,
    val limit: Double,
    val passed: Boolean,
    val row: String,
)

/** Milliseconds. */
@Serializable
private class TimingRecord(
    val device: String,
    val runs: Int,
    val mean: Double,
    val std: Double,
    val p50: Double,
    val p90: Double,
    val p95: Double,
    val p99: Double,
)
