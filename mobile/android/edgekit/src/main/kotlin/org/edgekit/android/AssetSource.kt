package org.edgekit.android

import android.content.Context
import java.io.File
import java.io.InputStream
import org.edgekit.FileInfo
import org.edgekit.ModelBundle
import org.edgekit.Source

/**
 * A bundle in the app's assets.
 *
 * Runtimes need a path, which assets do not have: a model is copied once to the app's files, under a name with its hash, so
 * that an updated app never runs the old model. The copy is verified and then renamed; older copies are removed.
 */
class AssetSource(private val context: Context, private val folder: String) : Source {
    override fun open(path: String): InputStream = context.assets.open("$folder/$path")

    override fun file(info: FileInfo): File {
        val home = File(context.filesDir, folder).apply { mkdirs() }
        val name = File(info.path).name
        val copy = File(home, "${info.sha256.take(16)}-$name")
        if (!copy.isFile || copy.length() != info.size) {
            val temporary = File(home, "${copy.name}.tmp")
            open(info.path).use { from -> temporary.outputStream().use { to -> from.copyTo(to) } }
            val intact = temporary.length() == info.size && ModelBundle.sha256(temporary.readBytes()) == info.sha256
            if (!intact || !temporary.renameTo(copy)) {
                temporary.delete()
                throw ModelBundle.damaged(info.path)
            }
        }
        home.listFiles { file -> file.name.endsWith("-$name") && file != copy }?.forEach { it.delete() }
        return copy
    }
}
