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
        assertEquals(listOf(copied().name), home.list()?.toList())
        assertEquals(1, opened)
    }

    @Test
    fun aFlippedByteInTheCopyIsNotRun() {
        val copy = copied()
        copy.writeBytes(flipped())
        assertContentEquals(content, copied().readBytes())
        assertEquals(2, opened)
        copy.writeBytes(flipped())
        val error = assertFailsWith<EdgekitException> { copied(flipped()) }
        assertContains(error.message.orEmpty(), "'toy/model.pte' is damaged")
        assertEquals(emptyList(), home.list()?.toList())
    }

    private fun flipped(): ByteArray = content.copyOf().also { it[54_321] = (it[54_321] + 1).toByte() }
}
