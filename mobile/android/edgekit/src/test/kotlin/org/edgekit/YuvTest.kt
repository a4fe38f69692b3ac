package org.edgekit

import java.nio.ByteBuffer
import kotlin.test.Test
import kotlin.test.assertContains
import kotlin.test.assertContentEquals
import kotlin.test.assertEquals
import kotlin.test.assertFailsWith

class YuvTest {
    /** Two rows of four: grey, then colours; planes with gaps between rows and pixels, as cameras have them. */
    private val light = plane(listOf(listOf(0, 64, 128, 255), listOf(10, 20, 30, 40)), rowStride = 6, pixelStride = 1)
    private val grey = plane(listOf(listOf(128, 128)), rowStride = 8, pixelStride = 2)

    private fun plane(rows: List<List<Int>>, rowStride: Int, pixelStride: Int): Plane {
        val bytes = ByteBuffer.allocate(rowStride * rows.size)
        rows.forEachIndexed { y, row -> row.forEachIndexed { x, value -> bytes.put(y * rowStride + x * pixelStride, value.toByte()) } }
        return Plane(bytes, rowStride, pixelStride)
    }

    private fun reds(picture: Picture): List<Int> = picture.rgb.filterIndexed { i, _ -> i % 3 == 0 }.map { it.toInt() and 255 }

    @Test
    fun greyStaysGrey() {
        val picture = Picture.ofYuv(2, 4, light, grey, grey)
        assertEquals(InputSize(2, 4), picture.size)
        assertEquals(listOf(0, 64, 128, 255, 10, 20, 30, 40), reds(picture))
        assertContentEquals(ByteArray(3) { 64 }, picture.rgb.copyOfRange(3, 6))
    }

    @Test
    fun coloursAreThoseOfJfif() {
        fun colour(y: Int, u: Int, v: Int) = Picture.ofYuv(
            1, 1, plane(listOf(listOf(y)), 1, 1), plane(listOf(listOf(u)), 1, 1), plane(listOf(listOf(v)), 1, 1),
        ).rgb.map { it.toInt() and 255 }
        assertEquals(listOf(254, 0, 0), colour(76, 85, 255)) // red, as JPEG files hold it
        assertEquals(listOf(0, 255, 1), colour(150, 44, 21))
        assertEquals(listOf(0, 0, 254), colour(29, 255, 107))
    }

    @Test
    fun isTurnedClockwise() {
        fun turned(rotation: Int) = Picture.ofYuv(2, 4, light, grey, grey, rotation)
        assertEquals(InputSize(4, 2), turned(90).size)
        assertEquals(listOf(10, 0, 20, 64, 30, 128, 40, 255), reds(turned(90)))
        assertEquals(listOf(40, 30, 20, 10, 255, 128, 64, 0), reds(turned(180)))
        assertEquals(listOf(255, 40, 128, 30, 64, 20, 0, 10), reds(turned(270)))
        val error = assertFailsWith<IllegalArgumentException> { turned(45) }
        assertContains(error.message.orEmpty(), "not 45")
    }
}
