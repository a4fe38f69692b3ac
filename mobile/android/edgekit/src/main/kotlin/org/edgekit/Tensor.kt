package org.edgekit

/** Numbers with a shape, row-major. */
sealed interface Tensor {
    val shape: IntArray
}

/** float32 numbers. */
class FloatTensor(override val shape: IntArray, val data: FloatArray) : Tensor {
    init {
        require(data.size == shape.fold(1, Int::times)) { "${data.size} numbers do not fill ${shape.toList()}" }
    }
}

/** int64 numbers. */
class LongTensor(override val shape: IntArray, val data: LongArray) : Tensor {
    init {
        require(data.size == shape.fold(1, Int::times)) { "${data.size} numbers do not fill ${shape.toList()}" }
    }
}

/**
 * The K largest scores' places, largest first; of equal scores the lower place comes first, on every platform.
 *
 * Core ML and WebGPU models leave top-K to the app; the others answer it themselves.
 */
fun topK(scores: FloatArray, k: Int): IntArray {
    require(k in 0..scores.size) { "there are ${scores.size} scores, not $k" }
    return scores.indices.sortedWith(compareByDescending<Int> { scores[it] }.thenBy { it }).take(k).toIntArray()
}
