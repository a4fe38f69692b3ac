package org.edgekit

import java.nio.ByteBuffer
import java.nio.ByteOrder
import kotlin.math.abs
import kotlin.math.max

/** What the model says of one picture. `budgets` and `indices` are empty for a model without them. */
class Answer(val relevance: FloatArray, val budgets: LongArray, val indices: LongArray)

/** One picture and query with the answer that the reference gave. */
class GoldenCase(val name: String, val picture: Picture, val query: FloatArray, val expected: Answer)

/** How one golden case came out; `reason` is empty where it passed. */
class CaseReport(val name: String, val maxAbs: Double, val limit: Double, val budgetOff: Double, val lostMass: Double, val reason: String) {
    val passed: Boolean get() = reason.isEmpty()
}

/**
 * Golden vectors: pictures with the reference's answers, to check this very device with.
 *
 * The format (`golden.json`, `golden.bin`) is the one that the web bundle has.
 */
object Golden {
    const val FORMAT = 1

    /** Largest share of relevance that the chosen patches may miss: twice what an artifact's verdict allows. */
    const val LOST_MASS = 0.02

    /** Read the two files. */
    fun parse(json: String, binary: ByteArray): List<GoldenCase> {
        val top = Json.parse(json, Bundle.GOLDEN)
        if (top["format"].int != FORMAT) top["format"].wrong("$FORMAT")
        return top["cases"].list.map { case ->
            val expected = case["expected"]
            val (height, width, channels) = case["image"]["shape"].list.map { it.int }
            if (channels != 3) case["image"]["shape"].wrong("a picture with three channels")
            GoldenCase(
                name = case["name"].text,
                picture = Picture(height, width, part(case["image"], binary, 1).let { b -> ByteArray(b.remaining()).also(b::get) }),
                query = floats(part(case["query"], binary, 4)),
                expected = Answer(
                    relevance = floats(part(expected["relevance"], binary, 4)),
                    budgets = longs(part(expected["budgets"], binary, 4)),
                    indices = longs(part(expected["indices"], binary, 4)),
                ),
            )
        }
    }

    /** Judge one answer; `limit` is the largest allowed difference of a score. */
    fun judge(case: GoldenCase, answer: Answer, limit: Double): CaseReport {
        val wanted = case.expected
        val maxAbs = largest(answer.relevance.size, wanted.relevance.size) { (answer.relevance[it] - wanted.relevance[it]).toDouble() }
        val budgetOff = largest(answer.budgets.size, wanted.budgets.size) { (answer.budgets[it] - wanted.budgets[it]).toDouble() }
        val lost = lostMass(wanted.relevance, wanted.indices, answer.indices)
        val reason = when {
            !maxAbs.isFinite() -> "a score is not a number, or there are more or fewer of them"
            maxAbs > limit -> "a score is off by %.2g, and %.2g is allowed".format(maxAbs, limit)
            answer.indices.size != wanted.indices.size -> "another number of patches was chosen"
            lost > LOST_MASS -> "the chosen patches miss %.1f %% of the relevance".format(100 * lost)
            // A budget follows from its score over a range of tokens, and rounds once more.
            budgetOff > 1 + limit * spread(wanted) -> "a budget is off by ${budgetOff.toLong()} tokens"
            else -> ""
        }
        return CaseReport(case.name, maxAbs, limit, budgetOff, lost, reason)
    }

    private fun largest(size: Int, wanted: Int, off: (Int) -> Double): Double {
        if (size != wanted) return Double.POSITIVE_INFINITY
        var most = 0.0
        for (i in 0 until size) {
            val here = abs(off(i))
            if (!(here <= most)) most = if (here.isNaN()) Double.POSITIVE_INFINITY else here
        }
        return most
    }

    private fun lostMass(scores: FloatArray, best: LongArray, chosen: LongArray): Double {
        fun mass(places: LongArray): Double = places.toSet().sumOf { scores.getOrElse(it.toInt()) { 0f }.toDouble() }
        val possible = mass(best)
        return if (possible > 0) max(0.0, 1 - mass(chosen) / possible) else 0.0
    }

    /** Tokens per unit of score, from the expected values themselves. */
    private fun spread(expected: Answer): Double {
        if (expected.budgets.isEmpty()) return 0.0
        val low = expected.relevance.indices.minBy { expected.relevance[it] }
        val high = expected.relevance.indices.maxBy { expected.relevance[it] }
        val scores = expected.relevance[high] - expected.relevance[low]
        return if (scores > 1e-3) (expected.budgets[high] - expected.budgets[low]) / scores.toDouble() else 400.0
    }

    private fun part(json: Json, binary: ByteArray, size: Int): ByteBuffer {
        val count = json["shape"].list.fold(1) { product, n -> product * n.int }
        val offset = json["offset"].int
        if (offset < 0 || count < 0 || offset + size.toLong() * count > binary.size) json["offset"].wrong("inside of ${Bundle.GOLDEN_BINARY}")
        return ByteBuffer.wrap(binary, offset, size * count).slice().order(ByteOrder.LITTLE_ENDIAN)
    }

    private fun floats(bytes: ByteBuffer) = bytes.asFloatBuffer().let { b -> FloatArray(b.remaining()).also(b::get) }

    private fun longs(bytes: ByteBuffer) = bytes.asIntBuffer().let { b -> LongArray(b.remaining()) { b[it].toLong() } }
}
