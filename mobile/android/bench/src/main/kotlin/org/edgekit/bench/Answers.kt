package org.edgekit.bench

import java.io.File
import java.io.RandomAccessFile
import java.nio.ByteBuffer
import java.nio.ByteOrder
import java.util.zip.ZipEntry
import java.util.zip.ZipOutputStream
import org.edgekit.EdgekitException
import org.edgekit.FloatTensor
import org.edgekit.LongTensor
import org.edgekit.Manifest
import org.edgekit.Tensor

/**
 * Answers by `<batch>/<output>`, rows first, in files of a folder: all answers of a model do not fit into an app's memory.
 *
 * [axes] is the batch axis of each output; an output without one is one thing for a whole run, and becomes a single row.
 */
class Answers(private val folder: File, private val manifest: Manifest, private val axes: Map<String, Int?>) {
    private class Stored(val file: File, val kind: String, val row: List<Int>) {
        var rows = 0
    }

    /** Rows of an output: their number, the shape and the bytes of each. */
    private class Rows(val count: Int, val row: List<Int>, val bytes: ByteArray)

    private val stored = LinkedHashMap<String, Stored>()

    /** Add the answer of a run behind those of its batch. */
    fun add(batch: String, answer: Map<String, Tensor>) {
        for (output in manifest.outputs) {
            val rows = rows(output.name, answer)
            val own = stored.getOrPut("$batch/${output.name}") { Stored(File(folder, "${stored.size}.rows").apply { delete() }, kind(output.dtype), rows.row) }
            if (own.row != rows.row) throw EdgekitException("two runs answered '${output.name}' with rows of the shapes ${own.row} and ${rows.row}")
            own.file.appendBytes(rows.bytes)
            own.rows += rows.count
        }
    }

    /** Whether an answer is the row of a batch that was added before, bit for bit. */
    fun same(batch: String, row: Int, answer: Map<String, Tensor>): Boolean = manifest.outputs.all { output ->
        val rows = rows(output.name, answer)
        val first = stored.getValue("$batch/${output.name}")
        first.row == rows.row && row < first.rows && RandomAccessFile(first.file, "r").use { file ->
            val bytes = ByteArray(rows.bytes.size / rows.count)
            file.seek(row.toLong() * bytes.size)
            file.readFully(bytes)
            bytes.contentEquals(rows.bytes)
        }
    }

    /** Forget a batch. */
    fun drop(batch: String) {
        stored.keys.filter { it.substringBefore('/') == batch }.forEach { stored.remove(it)?.file?.delete() }
    }

    /** Write everything as `.npz`. */
    fun write(file: File) = ZipOutputStream(file.outputStream().buffered()).use { zip ->
        for ((name, own) in stored) {
            zip.putNextEntry(ZipEntry("$name.npy"))
            zip.write(Npz.head(own.kind, listOf(own.rows) + own.row))
            own.file.inputStream().use { it.copyTo(zip) }
            zip.closeEntry()
        }
    }

    private fun kind(dtype: String): String = when (dtype) {
        "float32" -> Npz.FLOAT
        "int64" -> Npz.LONG
        else -> throw EdgekitException("an output has the type $dtype, and this app writes float32 and int64")
    }

    private fun rows(name: String, answer: Map<String, Tensor>): Rows {
        val tensor = answer[name] ?: throw EdgekitException("the runtime returned no '$name'")
        val bytes = bytes(tensor, kind(manifest.outputs.first { it.name == name }.dtype))
        val axis = if (name in axes) axes[name] else 0
        if (axis == null || axis >= tensor.shape.size) return Rows(1, tensor.shape.toList(), bytes)
        val count = tensor.shape[axis]
        return Rows(count, tensor.shape.filterIndexed { at, _ -> at != axis }, first(bytes, tensor.shape, axis))
    }

    /** An array's bytes with an axis moved to the front. */
    private fun first(bytes: ByteArray, shape: IntArray, axis: Int): ByteArray {
        val outer = shape.take(axis).fold(1) { all, edge -> all * edge }
        val inner = if (bytes.isEmpty()) 0 else bytes.size / outer / shape[axis]
        if (outer == 1) return bytes
        val moved = ByteArray(bytes.size)
        for (i in 0 until shape[axis]) {
            for (o in 0 until outer) bytes.copyInto(moved, (i * outer + o) * inner, (o * shape[axis] + i) * inner, (o * shape[axis] + i + 1) * inner)
        }
        return moved
    }

    private fun bytes(tensor: Tensor, kind: String): ByteArray = when (tensor) {
        is FloatTensor -> little(4 * tensor.data.size).also { if (kind == Npz.FLOAT) it.asFloatBuffer().put(tensor.data) else wrong(kind) }
        is LongTensor -> little(8 * tensor.data.size).also { if (kind == Npz.LONG) it.asLongBuffer().put(tensor.data) else wrong(kind) }
    }.array()

    private fun little(size: Int): ByteBuffer = ByteBuffer.allocate(size).order(ByteOrder.LITTLE_ENDIAN)

    private fun wrong(kind: String): Nothing = throw EdgekitException("the runtime returned other numbers than '$kind', which the manifest says")
}
