package org.edgekit

import kotlinx.serialization.SerialName
import kotlinx.serialization.Serializable

/** A file of `edgekit export -t onnx-buckets`, and the size of each axis that it takes. */
@Serializable
data class Bucket(val file: String, val sizes: Map<String, Int>) {
    init {
        require(sizes.values.all { it > 0 }) { "a size of the bucket '$file' is not positive" }
    }
}

/** A dimension of an output: the product of axes, each divided by a step. */
@Serializable
data class Factors(val axes: List<String>, val steps: List<Int>) {
    init {
        require(axes.size == steps.size && steps.all { it > 0 }) { "axes and steps of a dimension do not match" }
    }

    internal fun within(sizes: Map<String, Int>): List<Int> = axes.zip(steps) { axis, step -> sizes.getValue(axis) / step }
}

/**
 * The picker of `edgekit export -t onnx-buckets`: which file for an input, and how inputs are padded and answers cut.
 *
 * It runs nothing: give the file that it names to your own runtime. The same in Python and TypeScript.
 */
@Serializable
class Buckets private constructor(
    @SerialName("schema_version") private val schemaVersion: Int,
    /** "resize": give the picture at a bucket's size. "pad": give it as it is to `padded`, and the answers to `cut`. */
    val rule: String,
    private val inputs: Map<String, List<String?>>,
    private val outputs: Map<String, List<Factors?>>,
    val buckets: List<Bucket>,
) {
    init {
        require(schemaVersion == 1) { "its schema version is $schemaVersion, not 1" }
        require(buckets.isNotEmpty()) { "it names no bucket" }
    }

    /** The smallest bucket that holds an input of these sizes; where none does, that which it is scaled down least for. */
    fun choose(sizes: Map<String, Int>): Bucket {
        fun scale(bucket: Bucket) = bucket.sizes.maxOf { (axis, size) -> (sizes[axis] ?: size).toDouble() / size }
        val holding = buckets.filter { scale(it) <= 1 }
        return holding.minByOrNull { it.sizes.values.fold(1L) { all, size -> all * size } } ?: buckets.minBy(::scale)
    }

    /** An input of a bucket's sizes: the last values along each axis repeated. */
    fun padded(name: String, input: FloatTensor, bucket: Bucket): FloatTensor {
        val declared = inputs[name] ?: input.shape.map { null }
        val wanted = input.shape.mapIndexed { d, size -> declared.getOrNull(d)?.let(bucket.sizes::get) ?: size }
        val fits = declared.size == input.shape.size && wanted.zip(input.shape.asList()).all { (new, size) -> new >= size }
        if (!fits) {
            throw EdgekitException("the input '$name' of the shape ${input.shape.toList()} does not go into the bucket '${bucket.file}'")
        }
        val from = places(input.shape.asList(), wanted)
        return FloatTensor(wanted.toIntArray(), FloatArray(from.size) { input.data[from[it]] })
    }

    /** An output of a bucket, cut to what belongs to an input of these sizes. */
    fun cut(name: String, output: Tensor, bucket: Bucket, sizes: Map<String, Int>): Tensor {
        val declared = outputs[name] ?: output.shape.map { null }
        fun factors(of: Map<String, Int>) = output.shape.mapIndexed { d, size -> declared.getOrNull(d)?.within(of) ?: listOf(size) }
        val before = factors(bucket.sizes)
        val after = factors(bucket.sizes + sizes)
        if (declared.size != output.shape.size || before.map(::product) != output.shape.asList()) {
            throw EdgekitException("the output '$name' of the shape ${output.shape.toList()} is none of the bucket '${bucket.file}'")
        }
        val from = places(before.flatten(), after.flatten())
        val shape = after.map(::product).toIntArray()
        return when (output) {
            is FloatTensor -> FloatTensor(shape, FloatArray(from.size) { output.data[from[it]] })
            is LongTensor -> LongTensor(shape, LongArray(from.size) { output.data[from[it]] })
        }
    }

    companion object {
        /** Read a `buckets.json`. */
        fun parse(text: String): Buckets = decodeJson(text, "buckets.json")

        private fun product(sizes: List<Int>): Int = sizes.fold(1, Int::times)

        /** For each value of a tensor of another shape where it comes from: the axes are cut, or repeat their last values. */
        private fun places(shape: List<Int>, wanted: List<Int>): IntArray = IntArray(product(wanted)) { number ->
            var rest = number
            var place = 0
            var stride = 1
            for (d in shape.indices.reversed()) {
                place += minOf(rest % wanted[d], shape[d] - 1) * stride
                rest /= wanted[d]
                stride *= shape[d]
            }
            place
        }
    }
}
