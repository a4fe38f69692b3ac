package org.edgekit

import java.io.ByteArrayInputStream
import java.io.File
import kotlin.io.path.createTempDirectory
import kotlin.test.Test
import kotlin.test.assertContains
import kotlin.test.assertContentEquals
import kotlin.test.assertEquals
import kotlin.test.assertFailsWith

class ModelCopyTest {
    private val home: File = File(createTempDirectory("edgekit").toFile(), "models")
    private val content = ByteArray(100_000) { it.toByte() }
    private val info = FileInfo("toy/model.pte", content.size.toLong(), ModelBundle.sha256(content))
    private var opened = 0

    private fun copied(original: ByteArray = content): File =
        ModelCopy.verified(home, info) { ByteArrayInputStream(original).also { opened++ } }

    @Test
    fun copiesOnceAndRemovesOtherVersions() {
        home.mkdirs()
        File(home, "0000000000000000-model.pte").writeText("old")
        assertContentEquals(content, copied().readBytes())
        File(home, "0000000000000000-model.pte.verified").writeText("old")
        assertEquals(listOf(copied().name, "${copied().name}.verified"), home.list()?.sorted())
        assertEquals(1, opened)
    }

    @Test
    fun isHashedAgainWhereItChangedOrTheAppIsAnother() {
        val copy = copied()
        val time = copy.lastModified()
        copy.writeBytes(flipped())
        copy.setLastModified(time) // as the seal remembers it: not hashed
        assertContentEquals(flipped(), copied().readBytes())
        assertContentEquals(content, ModelCopy.verified(home, info, "an update") { ByteArrayInputStream(content) }.readBytes())
        File(copy.path + ".verified").writeText("0")
        copy.writeBytes(flipped())
        assertContentEquals(content, copied().readBytes())
    }

    @Test
    fun aFlippedByteInTheCopyIsNotRun() {
        val copy = copied()
        damage(copy)
        assertContentEquals(content, copied().readBytes())
        assertEquals(2, opened)
        damage(copy)
        val error = assertFailsWith<EdgekitException> { copied(flipped()) }
        assertContains(error.message.orEmpty(), "'toy/model.pte' is damaged")
        assertEquals(emptyList(), home.list()?.toList())
    }

    /** As another program would: at another time. */
    private fun damage(copy: File) {
        copy.writeBytes(flipped())
        copy.setLastModified(copy.lastModified() - 10_000)
    }

    private fun flipped(): ByteArray = content.copyOf().also { it[54_321] = (it[54_321] + 1).toByte() }
}
