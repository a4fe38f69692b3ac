package org.edgekit

import java.io.File
import kotlin.math.abs
import kotlin.test.Test
import kotlin.test.assertContentEquals
import kotlin.test.assertEquals
import kotlin.test.assertFailsWith
import kotlin.test.assertTrue

class GoldenVectorsTest {
    @Test
    fun queriesAreEncodedAsEverywhere() {
        val top = Files.json("query_encoding.json")
        val vocabulary = File(Files.golden, top["vocabulary"].text).readText()
        val encoder = QueryEncoder.parse(vocabulary, File(Files.golden, top["embeddings"].text).readBytes())
        var refused = 0
        for (case in top["cases"].list) {
            val text = case["text"].text
            if (!case["vector"].present) {
                refused++
                assertFailsWith<EdgekitException>(text) { encoder.encode(text) }
                continue
            }
            val query = encoder.encode(text)
            assertEquals(case["known"].list.map { it.text }, query.known, text)
            assertEquals(case["unknown"].list.map { it.text }, query.unknown, text)
            assertClose(Files.floats(top["binary"].text, case["vector"]), query.vector, top["tolerance"].number, text)
        }
        assertEquals(4, refused)
    }

    @Test
    fun picturesBecomeTensorsAsEverywhere() {
        val top = Files.json("preprocessing.json")
        val binary = top["binary"].text
        for (case in top["cases"].list) {
            val name = case["name"].text
            val (height, width) = case["size"].list.map { it.int }
            val (h, w) = case["pixels"]["shape"].list.map { it.int }
            val rgba = Files.bytes(binary, case["pixels"], 1)
            val argb = IntArray(h * w) { i ->
                fun byte(c: Int) = rgba.get(4 * i + c).toInt() and 255
                byte(3) shl 24 or (byte(0) shl 16) or (byte(1) shl 8) or byte(2)
            }
            val scaled = Picture.onWhite(h, w, argb).resized(height, width)
            val wanted = Files.bytes(binary, case["rgb"], 1).let { b -> ByteArray(b.remaining()).also(b::get) }
            for (i in wanted.indices) {
                assertTrue(abs((wanted[i].toInt() and 255) - (scaled.rgb[i].toInt() and 255)) <= 1, "$name at $i")
            }
            val tensor = Picture(height, width, wanted).tensor(case["low"].number, case["high"].number)
            assertContentEquals(intArrayOf(1, 3, height, width), tensor.shape)
            assertClose(Files.floats(binary, case["tensor"]), tensor.data, top["tolerance"].number, name)
        }
    }

    private fun assertClose(wanted: FloatArray, got: FloatArray, tolerance: Double, message: String) {
        assertEquals(wanted.size, got.size, message)
        for (i in wanted.indices) assertTrue(abs(wanted[i] - got[i]) <= tolerance, "$message at $i: ${wanted[i]} and ${got[i]}")
    }
}
