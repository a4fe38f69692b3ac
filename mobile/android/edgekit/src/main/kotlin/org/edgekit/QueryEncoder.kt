package org.edgekit

import kotlinx.serialization.Serializable

/** An encoded query: its vector and its words. */
class Query(val vector: FloatArray, val known: List<String>)

/**
 * A query's vector is the mean of its words' rows in the embedding table.
 *
 * `vocabulary.json` is {"dim": 768, "scale": ..., "offset": ..., "words": [...], "rows": [...]}: the row of each word in
 * `embeddings.bin`, which has int8 values; each is scale * byte + offset. Words that mean the same share a row. A text is
 * converted to lower case and split at every character that is neither a letter nor a digit.
 */
class QueryEncoder private constructor(val words: List<String>, val dim: Int, rows: List<Int>, private val table: FloatArray) {
    private val rows = words.zip(rows).toMap()

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
            val (dim, scale, offset, words, rows) = decodeJson<Vocabulary>(vocabulary, ModelBundle.VOCABULARY)
            val needed = dim.toLong() * ((rows.maxOrNull() ?: -1) + 1L)
            if (embeddings.size.toLong() != needed || rows.size != words.size || rows.any { it < 0 }) {
                throw EdgekitException(
                    "embeddings.bin has ${embeddings.size} bytes, which are not the rows of ${words.size} words with $dim values " +
                        "each: export the assets again",
                )
            }
            return QueryEncoder(words, dim, rows, FloatArray(embeddings.size) { scale * embeddings[it] + offset })
        }
    }
}

/** The content of vocabulary.json. */
@Serializable
private data class Vocabulary(val dim: Int, val scale: Float, val offset: Float, val words: List<String>, val rows: List<Int>)
