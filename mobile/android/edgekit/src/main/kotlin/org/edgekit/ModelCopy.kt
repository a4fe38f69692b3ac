package org.edgekit

import java.io.File
import java.io.InputStream
import java.security.MessageDigest

/**
 * A model's file outside of the app's assets, for runtimes that need a path.
 *
 * The copy that runs is hashed each time before it is handed out, not only when it is made: storage fails, and a damaged model
 * can load and give other results. A damaged copy is made again once; where that one is damaged too, nothing runs.
 */
object ModelCopy {
    /** The verified copy of [info] in [home]; [open] gives the original's bytes. Copies of other versions are removed. */
    fun verified(home: File, info: FileInfo, open: () -> InputStream): File {
        home.mkdirs()
        val name = File(info.path).name
        val copy = File(home, "${info.sha256.take(16)}-$name")
        if (!isIntact(copy, info)) {
            val temporary = File(home, "${copy.name}.tmp")
            open().use { from -> temporary.outputStream().use { to -> from.copyTo(to) } }
            if (!isIntact(temporary, info) || !temporary.renameTo(copy)) {
                temporary.delete()
                copy.delete()
                throw ModelBundle.damaged(info.path)
            }
        }
        home.listFiles { file -> file.name.endsWith("-$name") && file != copy }?.forEach { it.delete() }
        return copy
    }

    /** Whether a file has the size and the hash of [info]. */
    fun isIntact(file: File, info: FileInfo): Boolean = file.isFile && file.length() == info.size && sha256(file) == info.sha256

    /** The sha256 of a file, which is not read into memory. */
    fun sha256(file: File): String {
        val digest = MessageDigest.getInstance("SHA-256")
        file.inputStream().use { stream ->
            val buffer = ByteArray(1 shl 16)
            while (true) {
                val read = stream.read(buffer)
                if (read < 0) break
                digest.update(buffer, 0, read)
            }
        }
        return digest.digest().joinToString("") { "%02x".format(it) }
    }
}
