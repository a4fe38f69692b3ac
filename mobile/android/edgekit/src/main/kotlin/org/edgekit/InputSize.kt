package org.edgekit

import kotlin.math.max
import kotlin.math.min

/** Height and width of a picture in pixels. */
data class InputSize(val height: Int, val width: Int) {
    override fun toString(): String = "$height x $width"
}

/**
 * Of the sizes that the model takes, the one that keeps a picture's shape best, with about as many pixels as the default;
 * the default where the model takes one size only.
 *
 * The same in Python, TypeScript and Swift: edgekit's tests/golden/README.md defines it.
 */
fun Manifest.fittingSize(picture: InputSize): InputSize {
    val (rows, columns) = sides()
    val usual = defaultSize()
    if (rows !is Size.Axis || columns !is Size.Axis || rows == columns) return usual
    val (down, across) = axis(rows.name) to axis(columns.name)
    val possible = when {
        sizes.isNotEmpty() -> sizes.asSequence().map { InputSize(it[rows.name] ?: usual.height, it[columns.name] ?: usual.width) }
        down.dynamic && across.dynamic -> sizesNear(down, across, picture)
        else -> emptySequence()
    }
    return possible.minByOrNull { misfit(it, usual, picture) } ?: usual
}

/** The default size of the model's picture. */
internal fun Manifest.defaultSize(): InputSize {
    val shape = shape(pictureInput(), mapOf("batch" to 1))
    return InputSize(shape[2], shape[3])
}

/** Refuse a size that the model does not take, before a picture is brought to it. */
internal fun Manifest.check(size: InputSize) {
    val (rows, columns) = sides()
    val named = listOf(rows to size.height, columns to size.width).mapNotNull { (side, edge) -> (side as? Size.Axis)?.let { it.name to edge } }
    val fits = size.height > 0 && size.width > 0 && accepts(rows, size.height) && accepts(columns, size.width)
    if (!fits) throw EdgekitException("the model '$name' does not accept pictures of $size: it accepts [${describe(rows)}, ${describe(columns)}]")
    checkListed(named.toMap(), "$size")
}

internal fun Manifest.pictureInput(): TensorInfo {
    val input = input("image") ?: throw EdgekitException("the model '$name' takes no picture: use Runner.run")
    if (input.shape.size != 4) throw EdgekitException("the manifest of '$name' is invalid: a picture has ${input.shape.size} dimensions, not 4")
    return input
}

private fun Manifest.sides(): Pair<Size, Size> = pictureInput().shape.let { it[2] to it[3] }

/**
 * How badly a size suits a picture, from 1: shape to the fourth power, times pixels, each a quotient of at least 1. A picture
 * squeezed by 5 % is as bad as 22 % more or fewer pixels.
 */
private fun misfit(size: InputSize, usual: InputSize, picture: InputSize): Double {
    val shape = quotient(size.height.toLong() * picture.width, size.width.toLong() * picture.height)
    val square = shape * shape
    return square * square * quotient(size.height.toLong() * size.width, usual.height.toLong() * usual.width)
}

private fun quotient(one: Long, other: Long): Double = max(one, other).toDouble() / min(one, other)

/** For each height the widths on both sides of the one that keeps the picture's shape: no other suits it better. */
private fun sizesNear(rows: Axis, columns: Axis, picture: InputSize): Sequence<InputSize> = sequence {
    val least = (columns.minimum + columns.multipleOf - 1L) / columns.multipleOf
    val most = columns.maximum / columns.multipleOf.toLong()
    for (count in (rows.minimum + rows.multipleOf - 1L) / rows.multipleOf..rows.maximum / rows.multipleOf) {
        val height = count * rows.multipleOf
        val below = height * picture.width / (picture.height.toLong() * columns.multipleOf)
        for (beside in below..below + 1) yield(InputSize(height.toInt(), (min(max(beside, least), most) * columns.multipleOf).toInt()))
    }
}
