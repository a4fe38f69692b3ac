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
        assertEquals(listOf(Verdict("cpu", "verified")), manifest.verdicts)
        assertContentEquals(intArrayOf(3, 3, 2, 2), manifest.shape(manifest.inputs[0], mapOf("batch" to 3)))
    }

    @Test
    fun refusesShapesThatTheArtifactDoesNotAccept() {
        fun inputs(batch: Int, height: Int) = mapOf(
            "images" to FloatTensor(intArrayOf(batch, 3, height, 2), FloatArray(batch * 6 * height)),
            "queries" to FloatTensor(intArrayOf(batch, 3), FloatArray(batch * 3)),
        )
        manifest.check(inputs(8, 2))
        for ((batch, height) in listOf(9 to 2, 1 to 4)) {
            val error = assertFailsWith<EdgekitException> { manifest.check(inputs(batch, height)) }
            assertContains(error.message.orEmpty(), "has the shape [$batch, 3, $height, 2], but the model accepts [1 to 8 in steps of 1, 3, 2, 2]")
        }
        assertFailsWith<EdgekitException> { manifest.check(emptyMap()) }
    }

    @Test
    fun namesTheFieldThatIsWrong() {
        fun fails(from: String, to: String, message: String) {
            val error = assertFailsWith<EdgekitException>(message) { Manifest.parse(Files.MANIFEST.replace(from, to)) }
            assertContains(error.message.orEmpty(), message)
        }
        fails("\"schema_version\": 2", "\"schema_version\": 3", "schema version 3")
        fails("\"entry\": \"model.ptl\",", "", "Field 'entry' is required")
        fails("\"entry\": \"model.ptl\"", "\"entry\": 3", "at path: $.entry")
        fails("\"path\": \"model.ptl\"", "\"path\": \"../model.ptl\"", "'../model.ptl' is not a relative path inside the bundle")
        for (name in listOf("P{init{}};object/**/Q", "a b", "a\\nb", "a/b", "")) {
            fails("\"name\": \"images\"", "\"name\": \"$name\"", "is not a name")
            fails("\"name\": \"toy\"", "\"name\": \"$name\"", "is not a name")
            fails("[\"batch\", 4]", "[\"$name\", 4]", "is not a name")
        }
        fails("9f64", "9F64", "64 hexadecimal digits")
        fails("\"path\": \"model.ptl\"", "\"path\": \"a//model.ptl\"", "is not a relative path inside the bundle")
        fails("\"multiple_of\": 1", "\"multiple_of\": 0", "an axis has steps of 0")
        fails("\"size\": 4", "\"size\": 4.5", "at path: $.files[0].size")
        fails("[\"batch\", 4]", "[\"batch\", []]", "manifest.json is invalid")
    }

    @Test
    fun refusesWhatIsNoJson() {
        val nested = "[".repeat(100_000)
        for (bad in listOf("", "{", "[1,]", "{\"name\" 1}", "nul", "01", Files.MANIFEST + " 2", nested, Files.MANIFEST.replace("[\"a toy\"]", nested), Files.MANIFEST.replace("[\"batch\", 4]", "[$nested"), Files.MANIFEST.replaceFirst("{", "{\"x\": $nested, "))) {
            val error = assertFailsWith<EdgekitException>(bad.take(40)) { Manifest.parse(bad, "x.json") }
            assertContains(error.message.orEmpty(), "x.json is invalid (")
            assertContains(error.message.orEmpty(), "): export the assets again")
        }
    }

    @Test
    fun equalScoresGoToTheLowerPlace() {
        assertContentEquals(intArrayOf(1, 3, 0), topK(floatArrayOf(0.5f, 0.9f, 0.5f, 0.9f), 3))
        assertFailsWith<IllegalArgumentException> { topK(floatArrayOf(1f), 2) }
    }
}
