package org.edgekit

import java.nio.ByteBuffer

/** A plane of a camera's picture: bytes, and how far apart rows and pixels are in them. Read from the start of [bytes]. */
class Plane(val bytes: ByteBuffer, val rowStride: Int, val pixelStride: Int) {
    internal fun at(y: Int, x: Int): Int = bytes.get(y * rowStride + x * pixelStride).toInt() and 255
}

/**
 * A picture of three planes, as `YUV_420_888` of Android's cameras has them: brightness for each pixel, and both colours for
 * each square of four; in the full range of bytes, by the matrix of ITU-R BT.601 (as JFIF has it).
 *
 * [rotation] is how far it is turned clockwise to stand upright, in degrees: 0, 90, 180 or 270; the picture that comes out stands.
 */
fun Picture.Companion.ofYuv(height: Int, width: Int, y: Plane, u: Plane, v: Plane, rotation: Int = 0): Picture {
    require(rotation in listOf(0, 90, 180, 270)) { "a picture is turned by 0, 90, 180 or 270 degrees, not $rotation" }
    val turned = rotation % 180 != 0
    val (rows, columns) = if (turned) width to height else height to width
    val rgb = ByteArray(3 * height * width)
    for (row in 0 until height) {
        for (column in 0 until width) {
            val light = y.at(row, column).toDouble()
            val blue = u.at(row / 2, column / 2) - 128
            val red = v.at(row / 2, column / 2) - 128
            val place = when (rotation) {
                0 -> row * columns + column
                90 -> column * columns + (columns - 1 - row)
                180 -> (rows - 1 - row) * columns + (columns - 1 - column)
                else -> (rows - 1 - column) * columns + row
            }
            rgb[3 * place] = byte(light + 1.402 * red)
            rgb[3 * place + 1] = byte(light - 0.344136 * blue - 0.714136 * red)
            rgb[3 * place + 2] = byte(light + 1.772 * blue)
        }
    }
    return Picture(rows, columns, rgb)
}

private fun byte(value: Double): Byte = (value + 0.5).toInt().coerceIn(0, 255).toByte()
