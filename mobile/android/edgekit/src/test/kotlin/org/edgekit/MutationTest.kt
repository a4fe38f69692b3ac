package org.edgekit

import java.io.ByteArrayInputStream
import java.io.File
import java.io.InputStream
import kotlin.random.Random
import kotlin.test.Test
import kotlin.test.assertTrue

/**
 * Random mutations of the files that an app reads: each is read, or refused by an [EdgekitException] in one line.
 *
 * -Dedgekit.fuzz=60 goes on for a minute; -Dedgekit.seed repeats a run.
 */
class MutationTest {
    private val random = Random(System.getProperty("edgekit.seed")?.toLong() ?: 15L)

    @Test
    fun aMutatedManifestIsReadOrRefused() = mutate(Files.MANIFEST.toByteArray()) { data ->
        val manifest = Manifest.parse(data.decodeToString())
        for (tensor in manifest.inputs + manifest.outputs) manifest.shape(tensor)
        manifest.fittingSize(InputSize(3, 4))
        manifest.check(mapOf("images" to FloatTensor(intArrayOf(1, 3, 2, 2), FloatArray(12)), "queries" to FloatTensor(intArrayOf(1, 3), FloatArray(3))))
    }

    @Test
    fun aMutatedIndexIsReadOrRefused() {
        val folder = File.createTempFile("edgekit", "bundle").apply { delete() }
        try {
            val there = Files.bundle(folder).walk().filter { it.isFile }.associate { it.relativeTo(folder).invariantSeparatorsPath to it.readBytes() }
            mutate(there.getValue("bundle.json")) { data ->
                val bundle = ModelBundle(Held(there + ("bundle.json" to data)))
                bundle.verify()
                bundle.encoder
                bundle.presenceThreshold
                bundle.golden
                for (path in bundle.files.keys) assertTrue(File("/app", path).normalize().path.startsWith("/app/"), path)
            }
        } finally {
            folder.deleteRecursively()
        }
    }

    /** A bundle in memory. A path that is not there is what Android's assets answer: an IOException, which an app expects. */
    private class Held(private val files: Map<String, ByteArray>) : Source {
        override fun open(path: String): InputStream = ByteArrayInputStream(files[path] ?: throw java.io.FileNotFoundException(path))

        override fun file(info: FileInfo): File = throw EdgekitException("no file")
    }

    private fun mutate(text: ByteArray, read: (ByteArray) -> Unit) {
        val end = System.nanoTime() + ((System.getProperty("edgekit.fuzz")?.toDouble() ?: 0.3) * 1e9 / 2).toLong()
        var taken = 0
        var refused = 0
        while (System.nanoTime() < end || taken + refused < 200) {
            val data = mutated(text)
            try {
                read(data)
                taken++
            } catch (error: EdgekitException) {
                assertTrue('\n' !in error.message.orEmpty(), error.message)
                refused++
            } catch (_: java.io.FileNotFoundException) {
                refused++
            } catch (error: Throwable) {
                throw AssertionError("read neither well nor in a sentence: ${data.decodeToString()}", error)
            }
        }
        println("$taken read, $refused refused")
        assertTrue(refused > 10)
    }

    private fun mutated(text: ByteArray): ByteArray {
        var data = text
        repeat(1 + random.nextInt(3)) {
            val at = random.nextInt(data.size)
            data = when (random.nextInt(4)) {
                0 -> data.copyOf().also { it[at] = random.nextInt(256).toByte() }
                1 -> data.copyOfRange(0, at) + data.copyOfRange(minOf(data.size, at + 1 + random.nextInt(9)), data.size)
                2 -> data.copyOfRange(0, at) + PIECES[random.nextInt(PIECES.size)].toByteArray() + data.copyOfRange(at, data.size)
                else -> replacedValue(data)
            }
            if (data.isEmpty()) data = text
        }
        return data
    }

    /** A number or a text that is in it is another one. */
    private fun replacedValue(data: ByteArray): ByteArray {
        val text = data.decodeToString()
        val values = VALUE.findAll(text).toList()
        if (values.isEmpty()) return data
        val range = values[random.nextInt(values.size)].groups[1]!!.range
        return text.replaceRange(range, PIECES[random.nextInt(PIECES.size)]).toByteArray()
    }

    private companion object {
        val VALUE = Regex(""": ?("[^"]*"|-?[0-9.eE+-]+)""")
        val PIECES = listOf("0", "-1", "1e999", "99999999999999999999", "2147483647", "null", "[]", "{}", "\"\"", "\"../x\"", "\"\\u0000\"", "\"a\\nb\"", "\"/etc/passwd\"", "\"batch\"", ",", "[", "]", "NaN", "\"./x\"")
    }
}
