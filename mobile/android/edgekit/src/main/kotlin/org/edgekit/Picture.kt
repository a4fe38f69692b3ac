package org.edgekit

import kotlin.math.abs
import kotlin.math.floor
import kotlin.math.max

/**
 * RGB bytes, row by row: the form of every image before it is converted to a tensor.
 *
 * edgekit's tests/golden/README.md defines the steps and the filter for all platforms.
 */
class Picture(val height: Int, val width: Int, val rgb: ByteArray) {
    init {
        require(height > 0 && width > 0 && rgb.size.toLong() == 3L * height * width) { "${rgb.size} bytes do not match a size of $height x $width" }
    }

    val size: InputSize get() = InputSize(height, width)

    /** Resized, each side on its own, by a triangle filter, which is wider when the image shrinks. */
    fun resized(height: Int, width: Int): Picture {
        if (height == this.height && width == this.width) return this
        val rows = weights(this.height, height)
        val columns = weights(this.width, width)
        val resized = ByteArray(3 * height * width)
        val row = DoubleArray(3 * this.width)
        for (y in 0 until height) {
            row.fill(0.0)
            rows[y].each { from, weight ->
                val start = 3 * this.width * from
                for (i in row.indices) row[i] += weight * (rgb[start + i].toInt() and 255)
            }
            for (x in 0 until width) {
                for (c in 0 until 3) {
                    var sum = 0.0
                    columns[x].each { from, weight -> sum += weight * row[3 * from + c] }
                    resized[3 * (width * y + x) + c] = floor(sum + 0.5).coerceIn(0.0, 255.0).toInt().toByte()
                }
            }
        }
        return Picture(height, width, resized)
    }

    /** In a model's size, as the manifest's `fit` of its input says: "stretch", "crop" or "letterbox". */
    fun fitted(height: Int, width: Int, fit: String): Picture {
        val size = InputSize(height, width)
        val (part, place) = Placement.of(this.size, size, fit)
        return cut(part).resized(place.height, place.width).bordered(size, place)
    }

    private fun cut(part: Box): Picture {
        if (part.height == height && part.width == width) return this
        val cut = ByteArray(3 * part.height * part.width)
        for (y in 0 until part.height) {
            val start = 3 * (width * (part.top + y) + part.left)
            rgb.copyInto(cut, 3 * part.width * y, start, start + 3 * part.width)
        }
        return Picture(part.height, part.width, cut)
    }

    private fun bordered(size: InputSize, place: Box): Picture {
        if (height == size.height && width == size.width) return this
        val whole = ByteArray(3 * size.height * size.width) { BORDER }
        for (y in 0 until height) rgb.copyInto(whole, 3 * (size.width * (place.top + y) + place.left), 3 * width * y, 3 * width * (y + 1))
        return Picture(size.height, size.width, whole)
    }

    /** `low + (high - low) * byte / 255` in planes red, green, blue: [1, 3, height, width]. */
    fun tensor(low: Double, high: Double): FloatTensor {
        val scale = FloatArray(256) { (low + (high - low) * it / 255.0).toFloat() }
        val plane = height * width
        val data = FloatArray(3 * plane)
        for (i in 0 until plane) {
            for (c in 0 until 3) data[c * plane + i] = scale[rgb[3 * i + c].toInt() and 255]
        }
        return FloatTensor(intArrayOf(1, 3, height, width), data)
    }

    companion object {
        /** Grey of a letterbox's borders. */
        private const val BORDER: Byte = 114

        /** Composite pixels on white. `argb` has the format of `android.graphics.Bitmap.getPixels`: not premultiplied. */
        fun onWhite(height: Int, width: Int, argb: IntArray): Picture {
            val rgb = ByteArray(3 * height * width)
            for (i in argb.indices) {
                val alpha = argb[i] ushr 24
                for (c in 0 until 3) {
                    val value = argb[i] ushr (16 - 8 * c) and 255
                    val composited = if (alpha == 255) value else (2 * (value * alpha + 255 * (255 - alpha)) + 255) / 510
                    rgb[3 * i + c] = composited.toByte()
                }
            }
            return Picture(height, width, rgb)
        }

        private fun weights(size: Int, wanted: Int): Array<Weights> {
            val scale = size.toDouble() / wanted
            val reach = max(scale, 1.0)
            return Array(wanted) { place ->
                val centre = (place + 0.5) * scale
                val first = max(0, floor(centre - reach).toInt())
                val last = minOf(size - 1, floor(centre + reach).toInt())
                val raw = DoubleArray(last - first + 1) { max(0.0, 1 - abs(first + it + 0.5 - centre) / reach) }
                val sum = raw.sum()
                Weights(first, DoubleArray(raw.size) { raw[it] / sum })
            }
        }
    }
}

/** The weights of the source pixels from `first` on, for one new pixel. */
private class Weights(val first: Int, val values: DoubleArray) {
    inline fun each(take: (from: Int, weight: Double) -> Unit) {
        for (i in values.indices) take(first + i, values[i])
    }
}
