package org.edgekit

import kotlin.test.Test
import kotlin.test.assertContentEquals
import kotlin.test.assertEquals
import kotlin.test.assertFailsWith
import kotlin.test.assertTrue
import kotlinx.serialization.Serializable
import kotlinx.serialization.json.JsonObject

class BucketsTest {
    private val golden: Golden = Files.json("buckets.json")
    private val buckets = Buckets.parse(golden.index.toString())

    @Test
    fun theBucketIsTheOneThatPythonAndTypeScriptChoose() {
        assertTrue(golden.chosen.isNotEmpty())
        for (case in golden.chosen) assertEquals(case.file, buckets.choose(case.sizes).file, "${case.sizes}")
    }

    @Test
    fun picturesArePaddedAndAnswersCutAsEverywhere() {
        assertTrue(golden.fitted.isNotEmpty())
        for (case in golden.fitted) {
            val bucket = buckets.choose(case.sizes)
            assertEquals(case.file, bucket.file)
            val padded = buckets.padded("images", case.images.floats(), bucket)
            assertContentEquals(case.padded.floats().data, padded.data)
            assertContentEquals(case.padded.floats().shape, padded.shape)
            assertContentEquals(case.query.floats().data, buckets.padded("query", case.query.floats(), bucket).data)
            for ((name, answer) in case.answers) {
                val wanted = case.cut.getValue(name)
                val floats = buckets.cut(name, answer.floats(), bucket, case.sizes) as FloatTensor
                assertEquals(wanted, floats.data.map { it.toLong() }, name)
                val whole = LongTensor(answer.shape.toIntArray(), answer.values.toLongArray())
                assertEquals(wanted, (buckets.cut(name, whole, bucket, case.sizes) as LongTensor).data.toList(), name)
            }
        }
    }

    @Test
    fun whatDoesNotBelongToABucketIsRefused() {
        val bucket = buckets.choose(mapOf("height" to 4, "width" to 4))
        assertFailsWith<EdgekitException> { buckets.padded("images", FloatTensor(intArrayOf(1, 1, 5, 4), FloatArray(20)), bucket) }
        assertFailsWith<EdgekitException> { buckets.cut("mask", FloatTensor(intArrayOf(1, 4, 5), FloatArray(20)), bucket, bucket.sizes) }
        val other = golden.index.toString().replace("\"schema_version\":1", "\"schema_version\":2")
        assertTrue("not 1" in assertFailsWith<EdgekitException> { Buckets.parse(other) }.message.orEmpty())
    }

    @Serializable
    private class Golden(val index: JsonObject, val chosen: List<Chosen>, val fitted: List<Fitted>)

    @Serializable
    private class Chosen(val sizes: Map<String, Int>, val file: String)

    @Serializable
    private class Flat(val shape: List<Int>, val values: List<Long>) {
        fun floats() = FloatTensor(shape.toIntArray(), FloatArray(values.size) { values[it].toFloat() })
    }

    @Serializable
    private class Fitted(
        val sizes: Map<String, Int>,
        val file: String,
        val images: Flat,
        val padded: Flat,
        val query: Flat,
        val answers: Map<String, Flat>,
        val cut: Map<String, List<Long>>,
    )
}
