package org.edgekit

import java.nio.ByteBuffer
import java.nio.ByteOrder
import kotlinx.serialization.Serializable

/** An encoded query: its vector and its words. */
class Query(val vector: FloatArray, val known: List<String>)

/**
 * A query's vector is the mean of its words' rows in the embedding table.
 *
 * `vocabulary.json` is {"dim": 768, "words": [...]}; `embeddings.bin` has one float32 row per word, little-endian. A text is
 * converted to lower case and split at every character that is neither a letter nor a digit.
 */
class QueryEncoder private constructor(val words: List<String>, val dim: Int, private val table: FloatArray) {
    private val rows = words.withIndex().associate { (row, word) -> word to row }

    /** Encode a text. Throws an EdgekitException if it has no word, or an unknown one: "not red" is not "red". */
    fun encode(text: String): Query {
        val words = WORD.findAll(text.lowercase()).map { it.value }.toList()
        val unknown = words.filter { it !in rows }.distinct()
        if (words.isEmpty() || unknown.isNotEmpty()) {
            val examples = this.words.take(3).joinToString { "'$it'" }
            val what = if (words.isEmpty()) "the query holds no word" else "the model does not know ${unknown.joinToString { "'$it'" }}"
            throw EdgekitException("$what: try for example $examples")
        }
        val sum = DoubleArray(dim)
        for (word in words) {
            val start = rows.getValue(word) * dim
            for (i in 0 until dim) sum[i] += table[start + i]
        }
        return Query(FloatArray(dim) { (sum[it] / words.size).toFloat() }, words)
    }

    companion object {
        private val WORD = Regex("[\\p{L}\\p{N}]+")

        /** Parse the two files. Throws an EdgekitException if they do not match. */
        fun parse(vocabulary: String, embeddings: ByteArray): QueryEncoder {
            val (dim, words) = decodeJson<Vocabulary>(vocabulary, ModelBundle.VOCABULARY)
            if (embeddings.size.toLong() != 4L * dim * words.size) {
                throw EdgekitException(
                    "embeddings.bin has ${embeddings.size} bytes, but ${words.size} words with $dim float32 values each need " +
                        "${4L * dim * words.size}: export the assets again",
                )
            }
            val table = FloatArray(dim * words.size)
            ByteBuffer.wrap(embeddings).order(ByteOrder.LITTLE_ENDIAN).asFloatBuffer().get(table)
            return QueryEncoder(words, dim, table)
        }
    }
}

/** The content of vocabulary.json. */
@Serializable
private data class Vocabulary(val dim: Int, val words: List<String>)
