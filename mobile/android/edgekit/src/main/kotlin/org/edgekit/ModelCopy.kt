package org.edgekit

import java.io.File
import java.io.InputStream
import java.security.MessageDigest

/**
 * A model's file outside of the app's assets, for runtimes that need a path.
 *
 * The copy is hashed after it is made, and again where its size, its time of change or the installed app is another than then:
 * a damaged model can load and give other results. A damaged copy is made again once; where that one is damaged too, nothing
 * runs. Damage that changes neither size nor time is not seen here; the golden vectors show it.
 */
object ModelCopy {
    /**
     * The verified copy of [info] in [home]; [open] gives the original's bytes. Copies of other versions are removed.
     * [installed] tells installations of the app apart.
     */
    fun verified(home: File, info: FileInfo, installed: String = "", open: () -> InputStream): File {
        home.mkdirs()
        val name = File(info.path).name
        val copy = File(home, "${info.sha256.take(16)}-$name")
        if (!seal(copy, info, installed).holds) {
            if (!isIntact(copy, info)) copy(copy, info, open)
            seal(copy, info, installed).write()
        }
        val own = setOf(copy.name, "${copy.name}.verified")
        home.listFiles { file -> (file.name.endsWith("-$name") || file.name.endsWith("-$name.verified")) && file.name !in own }?.forEach { it.delete() }
        return copy
    }

    private fun seal(copy: File, info: FileInfo, installed: String) =
        Seal(File(copy.path + ".verified"), "${info.sha256} ${copy.length()} ${copy.lastModified()} $installed")

    private fun copy(copy: File, info: FileInfo, open: () -> InputStream) {
        val temporary = File(copy.path + ".tmp")
        open().use { from -> temporary.outputStream().use { to -> from.copyTo(to) } }
        if (!isIntact(temporary, info) || !temporary.renameTo(copy)) {
            for (file in listOf(temporary, copy, File(copy.path + ".verified"))) file.delete()
            throw ModelBundle.damaged(info.path)
        }
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
