package org.edgekit

import kotlin.test.Test
import kotlin.test.assertContains
import kotlin.test.assertContentEquals
import kotlin.test.assertEquals
import kotlin.test.assertFailsWith

class ManifestTest {
    private val manifest = Manifest.parse(Files.MANIFEST)

    @Test
    fun readsWhatAnAppNeeds() {
        assertEquals("images", manifest.input("image")?.name)
        assertEquals("indices", manifest.output("ranking")?.name)
        assertEquals(mapOf("cpu" to "verified"), manifest.verdicts)
        assertContentEquals(intArrayOf(3, 3, 2, 2), manifest.shape(manifest.inputs[0], mapOf("batch" to 3)))
    }

    @Test
    fun refusesSizesThatTheArtifactDoesNotTake() {
        fun inputs(batch: Int, height: Int) = mapOf(
            "images" to FloatTensor(intArrayOf(batch, 3, height, 2), FloatArray(batch * 6 * height)),
            "queries" to FloatTensor(intArrayOf(batch, 3), FloatArray(batch * 3)),
        )
        manifest.check(inputs(8, 2))
        for ((batch, height) in listOf(9 to 2, 1 to 4)) {
            val error = assertFailsWith<EdgekitException> { manifest.check(inputs(batch, height)) }
            assertContains(error.message.orEmpty(), "takes [1 to 8 in steps of 1, 3, 2, 2], not [$batch, 3, $height, 2]")
        }
        assertFailsWith<EdgekitException> { manifest.check(emptyMap()) }
    }

    @Test
    fun namesTheFieldThatIsWrong() {
        fun fails(from: String, to: String, message: String) {
            val error = assertFailsWith<EdgekitException>(message) { Manifest.parse(Files.MANIFEST.replace(from, to)) }
            assertContains(error.message.orEmpty(), message)
        }
        fails("\"schema_version\": 1", "\"schema_version\": 2", "schema version 2")
        fails("\"entry\": \"model.ptl\"", "\"entry\": 3", "entry should be a text")
        fails("\"path\": \"model.ptl\"", "\"path\": \"../model.ptl\"", "a plain relative path, not '../model.ptl'")
        fails("9f64", "9F64", "64 hexadecimal digits")
        fails("\"size\": 4", "\"size\": 4.5", "an integer")
    }

    @Test
    fun readsAndWritesJson() {
        val text = """{"a":[1.5,-2.0,true,null,"é\"\\\u0001"],"b":{}}"""
        assertEquals(listOf("a", "b"), Json.parse(text, "x").keys.toList())
        assertEquals(-20.0, Json.parse("[-2e1]", "x").list[0].number)
        assertEquals("""{"a":[1,null,"q\"\u000a"]}""", Json.write(mapOf("a" to listOf(1, Double.NaN, "q\"\n"))))
        for (bad in listOf("", "{", "[1,]", "{\"a\" 1}", "nul", "01", "[1] 2", "\"\\x\"", "[".repeat(999))) {
            val error = assertFailsWith<EdgekitException>(bad) { Json.parse(bad, "x.json") }
            assertContains(error.message.orEmpty(), "x.json is no JSON")
        }
    }

    @Test
    fun equalScoresGoToTheLowerPlace() {
        assertContentEquals(intArrayOf(1, 3, 0), topK(floatArrayOf(0.5f, 0.9f, 0.5f, 0.9f), 3))
        assertFailsWith<IllegalArgumentException> { topK(floatArrayOf(1f), 2) }
    }
}
