package org.edgekit

import java.nio.ByteBuffer
import java.nio.ByteOrder

/** An encoded query: its vector, the words that made it, and those that the vocabulary lacks. */
class Query(val vector: FloatArray, val known: List<String>, val unknown: List<String>)

/**
 * Words to rows of the embedding table to their mean.
 *
 * `vocabulary.json` is {"dim": 768, "words": [...]}; `embeddings.bin` holds one row a word, float32, little endian. A text
 * is lower-cased and cut at everything that is neither letter nor digit.
 */
class QueryEncoder private constructor(val words: List<String>, val dim: Int, private val table: FloatArray) {
    private val rows = words.withIndex().associate { (row, word) -> word to row }

    /** Encode a text; throws where no word of it is known. */
    fun encode(text: String): Query {
        val words = WORD.findAll(text.lowercase()).map { it.value }.toList()
        val (known, unknown) = words.partition { it in rows }
        if (known.isEmpty()) {
            val examples = this.words.take(3).joinToString { "'$it'" }
            val what = if (words.isEmpty()) "the query is empty" else "the model does not know ${unknown.joinToString { "'$it'" }}"
            throw EdgekitException("$what: try $examples")
        }
        val sum = DoubleArray(dim)
        for (word in known) {
            val start = rows.getValue(word) * dim
            for (i in 0 until dim) sum[i] += table[start + i]
        }
        return Query(FloatArray(dim) { (sum[it] / known.size).toFloat() }, known, unknown)
    }

    companion object {
        private val WORD = Regex("[\\p{L}\\p{N}]+")

        /** Read the two files; throws where they do not fit each other. */
        fun parse(vocabulary: String, embeddings: ByteArray): QueryEncoder {
            val top = Json.parse(vocabulary, "vocabulary.json")
            val dim = top["dim"].int
            val words = top["words"].list.map { it.text }
            if (embeddings.size.toLong() != 4L * dim * words.size) {
                throw EdgekitException(
                    "embeddings.bin has ${embeddings.size} bytes, and ${words.size} words of $dim numbers need " +
                        "${4L * dim * words.size}: export the assets again",
                )
            }
            val table = FloatArray(dim * words.size)
            ByteBuffer.wrap(embeddings).order(ByteOrder.LITTLE_ENDIAN).asFloatBuffer().get(table)
            return QueryEncoder(words, dim, table)
        }
    }
}
