package org.edgekit.bench

import java.io.File
import java.nio.ByteBuffer
import java.nio.ByteOrder
import java.util.zip.ZipFile
import org.edgekit.FloatTensor
import org.edgekit.LongTensor
import org.edgekit.Tensor

/** The arrays of a `.npz` file by name, in C order, of float32 and int64: what a pack asks. */
class Npz(private val file: File) : AutoCloseable {
    private val zip = ZipFile(file)

    fun tensor(name: String): Tensor {
        val entry = zip.getEntry("$name.npy") ?: throw PackException("'${file.name}' has no array '$name': pack again")
        val bytes = ByteBuffer.wrap(zip.getInputStream(entry).use { it.readBytes() }).order(ByteOrder.LITTLE_ENDIAN)
        val (kind, shape) = header(bytes, name)
        return when (kind) {
            FLOAT -> FloatTensor(shape, bytes.asFloatBuffer().let { all -> FloatArray(all.remaining()).also(all::get) })
            LONG -> LongTensor(shape, bytes.asLongBuffer().let { all -> LongArray(all.remaining()).also(all::get) })
            else -> throw PackException("the array '$name' is of the kind '$kind', and this app reads float32 and int64")
        }
    }

    override fun close() = zip.close()

    /** The kind of an array's numbers and its shape; `bytes` stands behind the header then. */
    private fun header(bytes: ByteBuffer, name: String): Pair<String, IntArray> {
        val magic = ByteArray(MAGIC.size).also { if (bytes.remaining() > HEAD) bytes.get(it) }
        if (!magic.contentEquals(MAGIC)) throw PackException("the array '$name' of '${file.name}' is damaged: pack again")
        val version = bytes.get().toInt().also { bytes.get() }
        val length = if (version == 1) bytes.getShort().toInt() and 0xffff else bytes.getInt()
        val text = ByteArray(length.coerceIn(0, bytes.remaining())).also(bytes::get).decodeToString()
        val match = HEADER.find(text) ?: throw PackException("the array '$name' has the header '${text.trim()}', which this app does not read")
        val shape = match.groupValues[2].split(',').map(String::trim).filter(String::isNotEmpty).map(String::toInt)
        return match.groupValues[1] to shape.toIntArray()
    }

    companion object {
        const val FLOAT = "<f4"
        const val LONG = "<i8"
        private const val HEAD = 16
        private val MAGIC = byteArrayOf(0x93.toByte()) + "NUMPY".encodeToByteArray()
        private val HEADER = Regex("'descr': *'([^']+)', *'fortran_order': *False, *'shape': *\\(([0-9, ]*)\\)")

        /** The first bytes of a `.npy` file of an array. */
        fun head(kind: String, shape: List<Int>): ByteArray {
            val sizes = shape.joinToString("") { "$it, " }
            val text = "{'descr': '$kind', 'fortran_order': False, 'shape': ($sizes), }"
            val padding = 64 - (MAGIC.size + 4 + text.length + 1) % 64
            val whole = text + " ".repeat(padding) + "\n"
            val size = byteArrayOf((whole.length and 0xff).toByte(), (whole.length shr 8).toByte())
            return MAGIC + byteArrayOf(1, 0) + size + whole.encodeToByteArray()
        }
    }
}
