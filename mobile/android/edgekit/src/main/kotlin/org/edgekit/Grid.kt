package org.edgekit

import kotlin.math.max
import kotlin.math.sqrt

/** A rectangle of pixels. */
data class Box(val top: Int, val left: Int, val height: Int, val width: Int)

/** Which `part` of a picture fills which `place` of a model's size, as the manifest's `fit` of its input says. */
data class Placement(val part: Box, val place: Box) {
    companion object {
        /** The rule of "stretch", "crop" and "letterbox", on every platform alike. */
        fun of(picture: InputSize, size: InputSize, fit: String): Placement {
            val wider = picture.width.toLong() * size.height > picture.height.toLong() * size.width
            return when (fit) {
                "stretch" -> Placement(middle(picture, picture), middle(size, size))
                "crop" -> {
                    val part = if (wider) picture.copy(width = share(picture.height, size.width, size.height)) else picture.copy(height = share(picture.width, size.height, size.width))
                    Placement(middle(picture, part), middle(size, size))
                }
                "letterbox" -> {
                    val place = if (wider) size.copy(height = share(size.width, picture.height, picture.width)) else size.copy(width = share(size.height, picture.width, picture.height))
                    Placement(middle(picture, picture), middle(size, place))
                }
                else -> throw EdgekitException("the fit '$fit' of a picture is not known: update the library")
            }
        }

        private fun middle(of: InputSize, part: InputSize) =
            Box((of.height - part.height) / 2, (of.width - part.width) / 2, part.height, part.width)

        /** An edge in the proportion of two others, rounded half up, at least one pixel. */
        private fun share(edge: Int, part: Int, of: Int): Int = max(1, ((2L * edge * part + of) / (2L * of)).toInt())
    }
}

/**
 * Where the patches of an answer lie: patch `row * columns + column` of `rows` x `columns` equal ones on the model's input.
 *
 * Without a grid, where the scores are not those of square patches, both are 0.
 */
class Grid(
    val rows: Int,
    val columns: Int,
    /** The size of the model's input that was used. */
    val size: InputSize,
    /** Which part of the picture lies where on the model's input: all of it but for "crop" and "letterbox". */
    val placement: Placement,
) {
    /** The patch in which a pixel of the picture lies; null where the pixel was cropped away, and without a grid. */
    fun patchAt(y: Int, x: Int): Int? {
        val (part, place) = placement
        val (down, across) = y - part.top to x - part.left
        if (rows == 0 || down !in 0 until part.height || across !in 0 until part.width) return null
        return cell(down, part.height, place.top, place.height, rows, size.height) * columns +
            cell(across, part.width, place.left, place.width, columns, size.width)
    }

    /** In which of `count` equal cells of an edge the centre of a pixel lies, which fills a share of `length` from `start` on. */
    private fun cell(pixel: Int, pixels: Int, start: Int, length: Int, count: Int, edge: Int): Int =
        (((2L * pixel + 1) * length + 2L * pixels * start) * count / (2L * pixels * edge)).toInt()
}

/** The number of scores at the default size. */
internal fun Manifest.count(scores: TensorInfo): Long = shape(scores, mapOf("batch" to 1)).fold(1L) { all, edge -> all * edge }

/** Whether the size of each axis of an output is known before a run. That of patches that follow from a picture is not. */
internal fun Manifest.declares(output: TensorInfo): Boolean = output.shape.all { it is Size.Fixed || (it as Size.Axis).name in axes }

/**
 * Rows and columns of the patches at a size, by the number of scores at the default size, or of those in an answer (`found`)
 * if that is not known; null where they are not those of square patches.
 */
internal fun Manifest.patches(scores: TensorInfo, size: InputSize, found: Int): Pair<Int, Int>? {
    val count = if (declares(scores)) count(scores) else found.toLong()
    val usual = if (declares(scores)) defaultSize() else size
    val area = usual.height.toLong() * usual.width
    if (count < 1 || area % count != 0L) return null
    val edge = Math.round(sqrt((area / count).toDouble()))
    val square = edge * edge * count == area && listOf(usual.height, usual.width, size.height, size.width).all { it % edge == 0L }
    return if (square) (size.height / edge).toInt() to (size.width / edge).toInt() else null
}
