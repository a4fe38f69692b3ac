package org.edgekit

import java.nio.ByteBuffer
import java.nio.ByteOrder
import java.util.Locale
import kotlin.math.abs
import kotlin.math.max
import kotlinx.serialization.Serializable

/** The outputs for one picture. `budgets` and `indices` are empty for a model without them. */
class Answer(val relevance: FloatArray, val budgets: LongArray, val indices: LongArray) {
    /** Whether anything in the picture answers the query, by the bundle's presence threshold; null without one. */
    fun isPresent(threshold: Double?): Boolean? = threshold?.let { limit -> relevance.any { it >= limit } }
}

/** One picture and query with the outputs of the recorded reference. */
class GoldenCase(val name: String, val picture: Picture, val query: FloatArray, val expected: Answer)

/** The result of one golden case; `reason` is empty where it passed. */
class CaseReport(
    val name: String,
    val maxAbs: Double,
    val limit: Double,
    val budgetOff: Double,
    val lostMass: Double,
    val reason: String,
    /** Of a model without scores, the output and the metric that `maxAbs` is of: those that are nearest their limit. */
    val output: String = "",
    val metric: String = "max abs",
) {
    val passed: Boolean get() = reason.isEmpty()
}

/**
 * Golden vectors: pictures with the outputs of the reference, to test this device with.
 *
 * The web bundle has the same format (`golden.json`, `golden.bin`).
 */
object Golden {
    const val FORMAT = 1

    /** Limit of the share of relevance that the selected patches lose: twice the limit of an artifact's verdict. */
    const val MAX_LOST_MASS = 0.02

    /** Whether the file is of a model without scores: `GoldenOutputs` reads it. */
    internal fun isNamed(json: String): Boolean = decodeJson<GoldenFormat>(json, ModelBundle.GOLDEN).format == GoldenOutputs.FORMAT

    /** Parse the two files. */
    fun parse(json: String, binary: ByteArray): List<GoldenCase> {
        val format = decodeJson<GoldenFormat>(json, ModelBundle.GOLDEN).format
        if (format != FORMAT) invalid("format $format is not supported, only $FORMAT and ${GoldenOutputs.FORMAT}")
        val file: GoldenFile = decodeJson(json, ModelBundle.GOLDEN)
        return file.cases.map { case ->
            if (case.image.shape.size != 3 || case.image.shape[2] != 3) invalid("the image of '${case.name}' does not have three channels")
            val (height, width) = case.image.shape
            GoldenCase(
                name = case.name,
                picture = Picture(height, width, part(case.image, binary, 1).let { b -> ByteArray(b.remaining()).also(b::get) }),
                query = floats(part(case.query, binary, 4)),
                expected = Answer(
                    relevance = floats(part(case.expected.relevance, binary, 4)),
                    budgets = longs(part(case.expected.budgets, binary, 4)),
                    indices = longs(part(case.expected.indices, binary, 4)),
                ),
            )
        }
    }

    /** Compare one answer with the reference; `limit` is the largest allowed error of a score. */
    fun evaluate(case: GoldenCase, answer: Answer, limit: Double): CaseReport {
        val wanted = case.expected
        val maxAbs = maxAbsDifference(answer.relevance.size, wanted.relevance.size) { (answer.relevance[it] - wanted.relevance[it]).toDouble() }
        val budgetOff = maxAbsDifference(answer.budgets.size, wanted.budgets.size) { (answer.budgets[it] - wanted.budgets[it]).toDouble() }
        val lost = lostMass(wanted.relevance, wanted.indices, answer.indices)
        // A budget is its score times the range of tokens, rounded: one token more than the error of the score.
        val budgetLimit = 1 + limit * tokensPerScore(wanted)
        val reason = when {
            !maxAbs.isFinite() -> "a score is not a finite number, or the number of scores is wrong"
            maxAbs > limit -> "the largest score error is %.2g (limit %.2g)".format(Locale.ROOT, maxAbs, limit)
            answer.indices.size != wanted.indices.size -> "the number of selected patches is ${answer.indices.size} instead of ${wanted.indices.size}"
            lost > MAX_LOST_MASS -> "the selected patches lose %.1f %% of the relevance (limit %.1f %%)".format(Locale.ROOT, 100 * lost, 100 * MAX_LOST_MASS)
            budgetOff > budgetLimit -> "the largest token budget error is ${budgetOff.toLong()} (limit %.1f)".format(Locale.ROOT, budgetLimit)
            else -> ""
        }
        return CaseReport(case.name, maxAbs, limit, budgetOff, lost, reason)
    }

    private fun maxAbsDifference(size: Int, wanted: Int, difference: (Int) -> Double): Double {
        if (size != wanted) return Double.POSITIVE_INFINITY
        var max = 0.0
        for (i in 0 until size) {
            val error = abs(difference(i))
            if (!(error <= max)) max = if (error.isNaN()) Double.POSITIVE_INFINITY else error
        }
        return max
    }

    private fun lostMass(scores: FloatArray, best: LongArray, selected: LongArray): Double {
        fun mass(places: LongArray): Double = places.toSet().sumOf { scores.getOrElse(it.toInt()) { 0f }.toDouble() }
        val possible = mass(best)
        return if (possible > 0) max(0.0, 1 - mass(selected) / possible) else 0.0
    }

    /** Tokens per unit of score, computed from the expected values. */
    private fun tokensPerScore(expected: Answer): Double {
        if (expected.budgets.isEmpty()) return 0.0
        val low = expected.relevance.indices.minBy { expected.relevance[it] }
        val high = expected.relevance.indices.maxBy { expected.relevance[it] }
        val scores = expected.relevance[high] - expected.relevance[low]
        return if (scores > 1e-3) (expected.budgets[high] - expected.budgets[low]) / scores.toDouble() else 400.0
    }

    internal fun part(part: Part, binary: ByteArray, size: Int): ByteBuffer {
        val count = part.shape.fold(1, Int::times)
        if (part.offset < 0 || count < 0 || part.offset + size.toLong() * count > binary.size) {
            invalid("an array extends past the end of ${ModelBundle.GOLDEN_BINARY}")
        }
        return ByteBuffer.wrap(binary, part.offset, size * count).slice().order(ByteOrder.LITTLE_ENDIAN)
    }

    internal fun invalid(what: String): Nothing = throw EdgekitException("${ModelBundle.GOLDEN} is invalid ($what): export the assets again")

    internal fun floats(bytes: ByteBuffer) = bytes.asFloatBuffer().let { b -> FloatArray(b.remaining()).also(b::get) }

    private fun longs(bytes: ByteBuffer) = bytes.asIntBuffer().let { b -> LongArray(b.remaining()) { b[it].toLong() } }
}

@Serializable
private class GoldenFormat(val format: Int)

/** The content of golden.json. */
@Serializable
private class GoldenFile(val cases: List<Case>) {
    @Serializable
    class Case(val name: String, val image: Part, val query: Part, val expected: Expected)

    @Serializable
    class Expected(val relevance: Part, val budgets: Part, val indices: Part)
}

/** An array in golden.bin: its first byte and its shape. */
@Serializable
internal class Part(val offset: Int, val shape: List<Int>)
