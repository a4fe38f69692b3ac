package org.edgekit

import java.nio.ByteBuffer
import java.nio.ByteOrder
import java.util.Locale
import kotlin.math.abs
import kotlin.math.max
import kotlin.math.sqrt
import kotlinx.serialization.Serializable

/** An output of the reference: the shape of the whole, of a large one every `step`-th value, and what a ranking is of. */
class ExpectedOutput(val shape: IntArray, val step: Int, val values: Tensor, val of: String = "")

/** One row of the evaluation set with the outputs of the recorded reference. */
class GoldenCase(
    val name: String,
    /** The picture, before preprocessing; null where no input is one. */
    val picture: Picture?,
    /** The other inputs, as the model takes them. */
    val inputs: Map<String, Tensor>,
    val expected: Map<String, ExpectedOutput>,
    /** The models that bring the picture to the size that the reference was asked at; empty: all of the bundle. */
    val targets: List<String> = emptyList(),
)

/** The result of one golden case: the output and the metric that are nearest their limit. `reason` is empty where it passed. */
class CaseReport(
    val name: String,
    val output: String,
    val metric: String,
    val error: Double,
    val limit: Double,
    val reason: String,
) {
    val passed: Boolean get() = reason.isEmpty()
}

/**
 * Golden vectors: rows with the outputs of the reference by name, to test this device with. `limits` are by target, output
 * and metric. An output passes where it has its shape and each of its errors is within its limit.
 *
 * The web bundle has the same format (`golden.json`, `golden.bin`; web/README.md describes it).
 */
class Golden(val cases: List<GoldenCase>, val limits: Map<String, Map<String, Map<String, Double>>>) {
    /** The cases that a model is tested with. */
    fun casesOf(target: String): List<GoldenCase> = cases.filter { it.targets.isEmpty() || target in it.targets }

    /** Compare a model's outputs with those of the reference. */
    fun evaluate(case: GoldenCase, outputs: Map<String, Tensor>, target: String): CaseReport {
        var report = CaseReport(case.name, "", "", 0.0, 0.0, "")
        var nearest = -1.0
        for ((name, expected) in case.expected) {
            val own = limits[target]?.get(name) ?: mapOf("max_abs" to 0.0) // without a limit nothing is allowed
            for ((metric, limit) in own) {
                val error = error(metric, case, expected, outputs[name])
                val near = if (error <= limit) error / (if (limit > 0) limit else 1.0) else Double.POSITIVE_INFINITY
                if (near <= nearest) continue
                nearest = near
                val reason = if (near.isFinite()) "" else failure(name, metric, error, limit)
                report = CaseReport(case.name, name, metric, error, limit, reason)
            }
        }
        return report
    }

    private fun failure(name: String, metric: String, error: Double, limit: Double): String {
        if (!error.isFinite()) return "the output '$name' is missing, has another shape or is not finite"
        return "the ${WORDS[metric] ?: metric} of the output '$name' is %.2g (limit %.2g)".format(Locale.ROOT, error, limit)
    }

    /** How far an output is off; infinite where it is missing, of another shape or kind, or not finite. */
    private fun error(metric: String, case: GoldenCase, expected: ExpectedOutput, found: Tensor?): Double {
        if (found == null || !found.shape.contentEquals(expected.shape)) return Double.POSITIVE_INFINITY
        val (wanted, values) = numbers(expected.values) to numbers(found)
        return when (metric) {
            "lost_mass" -> lostMass(numbers(case.expected.getValue(expected.of).values), wanted, values)
            "wrong" -> wanted.indices.count { values[it * expected.step] != wanted[it] }.toDouble() / max(wanted.size, 1)
            else -> difference(metric, wanted, values, expected.step)
        }
    }

    private fun difference(metric: String, wanted: DoubleArray, values: DoubleArray, step: Int): Double {
        var largest = 0.0
        var squares = 0.0
        for (i in wanted.indices) {
            val off = abs(wanted[i] - values[i * step])
            if (!(off <= largest)) largest = if (off.isNaN()) Double.POSITIVE_INFINITY else off
            squares += off * off
        }
        return if (metric == "rms" && largest.isFinite()) sqrt(squares / max(wanted.size, 1)) else largest
    }

    private fun lostMass(scores: DoubleArray, best: DoubleArray, chosen: DoubleArray): Double {
        fun mass(places: DoubleArray): Double = places.toSet().sumOf { scores.getOrElse(it.toInt()) { 0.0 } }
        val possible = mass(best)
        return if (possible > 0) max(0.0, 1 - mass(chosen) / possible) else 0.0
    }

    private fun numbers(tensor: Tensor): DoubleArray = when (tensor) {
        is FloatTensor -> DoubleArray(tensor.data.size) { tensor.data[it].toDouble() }
        is LongTensor -> DoubleArray(tensor.data.size) { tensor.data[it].toDouble() }
    }

    companion object {
        const val FORMAT = 3
        private val SIZES = mapOf("float32" to 4, "int64" to 8, "int32" to 4, "int8" to 1, "uint8" to 1, "bool" to 1)
        private val WORDS = mapOf(
            "max_abs" to "largest error",
            "rms" to "root mean square error",
            "wrong" to "share of wrong values",
            "lost_mass" to "lost share of the scores",
        )

        /** Golden vectors without cases, of a bundle that has none. */
        val NONE = Golden(emptyList(), emptyMap())

        /** Parse the two files. */
        fun parse(json: String, binary: ByteArray): Golden {
            val format = decodeJson<GoldenFormat>(json, ModelBundle.GOLDEN).format
            if (format != FORMAT) invalid("format $format is not supported, only $FORMAT")
            val file: GoldenFile = decodeJson(json, ModelBundle.GOLDEN)
            return Golden(file.cases.map { case(it, binary) }, file.limits)
        }

        private fun case(case: GoldenFile.Case, binary: ByteArray): GoldenCase {
            val image = case.image
            if (image != null && (image.shape.size != 3 || image.shape[2] != 3 || count(image.shape) == 0L)) invalid("the image of '${case.name}' does not have three channels")
            val picture = image?.let { Picture(it.shape[0], it.shape[1], bytes(it, it.shape, 1, binary).let { b -> ByteArray(b.remaining()).also(b::get) }) }
            val inputs = case.inputs.mapValues { (_, part) -> tensor(part, part.shape, binary) }
            val expected = case.expected.mapValues { (_, part) ->
                if (part.step < 1) invalid("an array has the step ${part.step}")
                val kept = (count(part.shape) + part.step - 1) / part.step
                ExpectedOutput(part.shape.toIntArray(), part.step, tensor(part, listOf(kept.toInt()), binary), part.of)
            }
            for (output in expected.values) {
                if (output.of.isNotEmpty() && output.of !in expected) invalid("a ranking is of '${output.of}', which is not there")
            }
            return GoldenCase(case.name, picture, inputs, expected, case.targets)
        }

        private fun tensor(part: Part, shape: List<Int>, binary: ByteArray): Tensor {
            val size = SIZES[part.dtype] ?: invalid("an array has the dtype ${part.dtype}")
            val bytes = bytes(part, shape, size, binary)
            val axes = shape.toIntArray()
            if (part.dtype == "float32") return FloatTensor(axes, bytes.asFloatBuffer().let { b -> FloatArray(b.remaining()).also(b::get) })
            return LongTensor(axes, LongArray(bytes.remaining() / size) { integer(bytes, part.dtype, it) })
        }

        private fun integer(bytes: ByteBuffer, dtype: String, index: Int): Long = when (dtype) {
            "int64" -> bytes.getLong(8 * index)
            "int32" -> bytes.getInt(4 * index).toLong()
            "int8" -> bytes.get(index).toLong()
            else -> bytes.get(index).toLong() and 0xff
        }

        private fun bytes(part: Part, shape: List<Int>, size: Int, binary: ByteArray): ByteBuffer {
            val count = count(shape)
            if (part.offset < 0 || part.offset + size * count > binary.size) {
                invalid("an array extends past the end of ${ModelBundle.GOLDEN_BINARY}")
            }
            return ByteBuffer.wrap(binary, part.offset, size * count.toInt()).slice().order(ByteOrder.LITTLE_ENDIAN)
        }

        /** The number of values of a shape; none is larger than an array of Kotlin's may be. */
        private fun count(shape: List<Int>): Long = shape.fold(1L) { all, edge ->
            if (edge < 0 || all * edge > Int.MAX_VALUE) invalid("an array has the shape $shape") else all * edge
        }

        private fun invalid(what: String): Nothing = throw EdgekitException("${ModelBundle.GOLDEN} is invalid ($what): export the assets again")
    }
}

@Serializable
private class GoldenFormat(val format: Int)

/** The content of golden.json. */
@Serializable
private class GoldenFile(val limits: Map<String, Map<String, Map<String, Double>>>, val cases: List<Case>) {
    @Serializable
    class Case(
        val name: String,
        val image: Part?,
        val inputs: Map<String, Part>,
        val expected: Map<String, Part>,
        val targets: List<String> = emptyList(),
    )
}

/** An array in golden.bin: its first byte, the shape of the whole, its dtype, which values are there, and what a ranking is of. */
@Serializable
private class Part(val offset: Int, val shape: List<Int>, val dtype: String, val step: Int, val of: String = "")
