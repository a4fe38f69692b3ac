package org.edgekit

import java.nio.ByteBuffer
import java.util.Locale
import kotlin.math.abs
import kotlin.math.sqrt
import kotlinx.serialization.Serializable

/** An output of the reference: the shape of the whole, and of a large one every `step`-th value. */
class ExpectedOutput(val shape: IntArray, val step: Int, val values: Tensor)

/** One row of the evaluation set with the outputs of the recorded reference, of a model without scores. */
class NamedCase(
    val name: String,
    /** The picture, before preprocessing; null where no input is one. */
    val picture: Picture?,
    /** The other inputs, as the model takes them. */
    val inputs: Map<String, Tensor>,
    val expected: Map<String, ExpectedOutput>,
)

/** The golden vectors of a model without scores; `limits` are by target, output and metric. */
class NamedGolden(val cases: List<NamedCase>, val limits: Map<String, Map<String, Map<String, Double>>>)

/**
 * Golden vectors by name: an output passes where it has its shape and all its errors are within its limits, of floats the
 * largest and the root mean square difference, of integers the share of values that differ.
 */
object GoldenOutputs {
    const val FORMAT = 2
    private val SIZES = mapOf("float32" to 4, "int64" to 8, "int32" to 4, "int8" to 1, "uint8" to 1, "bool" to 1)
    private val WORDS = mapOf("max_abs" to "largest error", "rms" to "root mean square error", "wrong" to "share of wrong values")
    private val METRICS = mapOf("max_abs" to "max abs", "wrong" to "unequal")

    /** Parse the two files. */
    fun parse(json: String, binary: ByteArray): NamedGolden {
        val file: NamedFile = decodeJson(json, ModelBundle.GOLDEN)
        val cases = file.cases.map { case ->
            val image = case.image
            if (image != null && (image.shape.size != 3 || image.shape[2] != 3)) Golden.invalid("the image of '${case.name}' does not have three channels")
            val picture = image?.let { Picture(it.shape[0], it.shape[1], bytes(it, binary, 1).let { b -> ByteArray(b.remaining()).also(b::get) }) }
            val inputs = case.inputs.mapValues { (_, part) -> tensor(part, binary, part.shape.toIntArray()) }
            val expected = case.expected.mapValues { (_, part) ->
                val count = part.shape.fold(1, Int::times)
                ExpectedOutput(part.shape.toIntArray(), part.step, tensor(part, binary, intArrayOf((count + part.step - 1) / part.step)))
            }
            NamedCase(case.name, picture, inputs, expected)
        }
        return NamedGolden(cases, file.limits)
    }

    /** Compare a model's outputs with those of the reference; the report has the error that is nearest its limit. */
    fun evaluate(case: NamedCase, outputs: Map<String, Tensor>, limits: Map<String, Map<String, Double>>): CaseReport {
        var report = CaseReport(case.name, 0.0, 0.0, 0.0, 0.0, "")
        var nearest = -1.0
        for ((name, expected) in case.expected) {
            for ((metric, error) in errors(expected, outputs[name])) {
                val limit = limits[name]?.get(metric) ?: 0.0 // without a limit nothing is allowed
                val near = if (error <= limit) error / (if (limit > 0) limit else 1.0) else Double.POSITIVE_INFINITY
                if (near <= nearest) continue
                nearest = near
                val reason = if (near.isFinite()) "" else failure(name, metric, error, limit)
                report = CaseReport(case.name, error, limit, 0.0, 0.0, reason, name, METRICS[metric] ?: metric)
            }
        }
        return report
    }

    private fun failure(name: String, metric: String, error: Double, limit: Double): String {
        if (!error.isFinite()) return "the output '$name' is missing, has another shape or is not finite"
        return "the ${WORDS[metric] ?: metric} of the output '$name' is %.2g (limit %.2g)".format(Locale.ROOT, error, limit)
    }

    /** How far an output is off, by metric; infinite where it is missing, of another shape, or not finite. */
    private fun errors(expected: ExpectedOutput, found: Tensor?): Map<String, Double> {
        val wanted = expected.values
        val metric = if (wanted is FloatTensor) "max_abs" else "wrong"
        if (found == null || !found.shape.contentEquals(expected.shape)) return mapOf(metric to Double.POSITIVE_INFINITY)
        if (wanted is LongTensor) return mapOf("wrong" to wrong(wanted.data, found, expected.step))
        val values = (wanted as FloatTensor).data
        val answers = (found as? FloatTensor)?.data ?: return mapOf(metric to Double.POSITIVE_INFINITY)
        var largest = 0.0
        var squares = 0.0
        for (i in values.indices) {
            val off = abs(values[i].toDouble() - answers[i * expected.step])
            if (!(off <= largest)) largest = if (off.isNaN()) Double.POSITIVE_INFINITY else off
            squares += off * off
        }
        return mapOf("max_abs" to largest, "rms" to if (largest.isFinite()) sqrt(squares / maxOf(values.size, 1)) else largest)
    }

    private fun wrong(values: LongArray, found: Tensor, step: Int): Double {
        val off = values.indices.count { i ->
            when (found) {
                is LongTensor -> found.data[i * step] != values[i]
                is FloatTensor -> found.data[i * step] != values[i].toFloat()
            }
        }
        return off.toDouble() / maxOf(values.size, 1)
    }

    private fun tensor(part: NamedPart, binary: ByteArray, shape: IntArray): Tensor {
        val size = SIZES[part.dtype] ?: Golden.invalid("an array has the dtype ${part.dtype}")
        if (part.step < 1) Golden.invalid("an array has the step ${part.step}")
        val bytes = Golden.part(Part(part.offset, shape.toList()), binary, size)
        if (part.dtype == "float32") return FloatTensor(shape, Golden.floats(bytes))
        return LongTensor(shape, LongArray(bytes.remaining() / size) { integer(bytes, part.dtype, it) })
    }

    private fun integer(bytes: ByteBuffer, dtype: String, index: Int): Long = when (dtype) {
        "int64" -> bytes.getLong(8 * index)
        "int32" -> bytes.getInt(4 * index).toLong()
        "int8" -> bytes.get(index).toLong()
        else -> bytes.get(index).toLong() and 0xff
    }

    private fun bytes(part: NamedPart, binary: ByteArray, size: Int): ByteBuffer = Golden.part(Part(part.offset, part.shape), binary, size)
}

/** The content of golden.json, of a model without scores. */
@Serializable
private class NamedFile(val limits: Map<String, Map<String, Map<String, Double>>>, val cases: List<Case>) {
    @Serializable
    class Case(val name: String, val image: NamedPart?, val inputs: Map<String, NamedPart>, val expected: Map<String, NamedPart>)
}

/** An array in golden.bin: its first byte, the shape of the whole, its dtype, and which values are there. */
@Serializable
private class NamedPart(val offset: Int, val shape: List<Int>, val dtype: String, val step: Int)
