package org.edgekit

import java.io.File
import kotlin.math.abs
import kotlin.test.Test
import kotlin.test.assertContentEquals
import kotlin.test.assertEquals
import kotlin.test.assertFailsWith
import kotlin.test.assertTrue
import kotlinx.serialization.Serializable

class GoldenVectorsTest {
    @Test
    fun queriesAreEncodedAsEverywhere() {
        val file: Queries = Files.json("query_encoding.json")
        val vocabulary = File(Files.golden, file.vocabulary).readText()
        val encoder = QueryEncoder.parse(vocabulary, File(Files.golden, file.embeddings).readBytes())
        var refused = 0
        for (case in file.cases) {
            if (case.vector == null) {
                refused++
                val refusal = assertFailsWith<EdgekitException>(case.text) { encoder.encode(case.text) }
                for (word in case.unknown) assertTrue("'$word'" in refusal.message.orEmpty(), "${case.text}: ${refusal.message}")
                continue
            }
            val query = encoder.encode(case.text)
            assertEquals(case.known, query.known, case.text)
            assertEquals(emptyList(), case.unknown, case.text)
            assertClose(Files.floats(file.binary, case.vector), query.vector, file.tolerance, case.text)
        }
        assertEquals(8, refused)
    }

    @Test
    fun picturesBecomeTensorsAsEverywhere() {
        val file: Pictures = Files.json("preprocessing.json")
        for (case in file.cases) {
            val (height, width) = case.size
            val (h, w) = case.pixels.shape
            val rgba = Files.bytes(file.binary, case.pixels, 1)
            val argb = IntArray(h * w) { i ->
                fun byte(c: Int) = rgba.get(4 * i + c).toInt() and 255
                byte(3) shl 24 or (byte(0) shl 16) or (byte(1) shl 8) or byte(2)
            }
            val scaled = Picture.onWhite(h, w, argb).fitted(height, width, case.fit)
            val wanted = Files.bytes(file.binary, case.rgb, 1).let { b -> ByteArray(b.remaining()).also(b::get) }
            for (i in wanted.indices) {
                assertTrue(abs((wanted[i].toInt() and 255) - (scaled.rgb[i].toInt() and 255)) <= 1, "${case.name} at $i")
            }
            val tensor = Picture(height, width, wanted).tensor(case.low, case.high)
            assertContentEquals(intArrayOf(1, 3, height, width), tensor.shape)
            assertClose(Files.floats(file.binary, case.tensor), tensor.data, file.tolerance, case.name)
        }
    }

    private fun assertClose(wanted: FloatArray, got: FloatArray, tolerance: Double, message: String) {
        assertEquals(wanted.size, got.size, message)
        for (i in wanted.indices) assertTrue(abs(wanted[i] - got[i]) <= tolerance, "$message at $i: ${wanted[i]} and ${got[i]}")
    }

    @Serializable
    private class Queries(val vocabulary: String, val embeddings: String, val binary: String, val tolerance: Double, val cases: List<Case>) {
        @Serializable
        class Case(val text: String, val known: List<String> = emptyList(), val unknown: List<String> = emptyList(), val vector: ArrayPart? = null)
    }

    @Serializable
    private class Pictures(val binary: String, val tolerance: Double, val cases: List<Case>) {
        @Serializable
        class Case(
            val name: String,
            val pixels: ArrayPart,
            val size: List<Int>,
            val low: Double,
            val high: Double,
            val fit: String,
            val rgb: ArrayPart,
            val tensor: ArrayPart,
        )
    }
}
