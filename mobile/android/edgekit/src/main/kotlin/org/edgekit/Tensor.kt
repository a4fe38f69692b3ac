package org.edgekit

/** Numbers with a shape, row-major. */
sealed interface Tensor {
    val shape: IntArray
}

/** float32 numbers. */
class FloatTensor(override val shape: IntArray, val data: FloatArray) : Tensor {
    init {
        require(data.size.toLong() == shape.fold(1L) { all, edge -> all * edge }) { "${data.size} values do not match the shape ${shape.toList()}" }
    }
}

/** int64 numbers. */
class LongTensor(override val shape: IntArray, val data: LongArray) : Tensor {
    init {
        require(data.size.toLong() == shape.fold(1L) { all, edge -> all * edge }) { "${data.size} values do not match the shape ${shape.toList()}" }
    }
}

/**
 * The indices of the K largest scores, largest first; of equal scores the lower index comes first, as on every platform.
 *
 * Needed for models without top-K, which Core ML and WebGPU do not run.
 */
fun topK(scores: FloatArray, k: Int): IntArray {
    require(k in 0..scores.size) { "k is $k, but there are ${scores.size} scores" }
    return scores.indices.sortedWith(compareByDescending<Int> { scores[it] }.thenBy { it }).take(k).toIntArray()
}
