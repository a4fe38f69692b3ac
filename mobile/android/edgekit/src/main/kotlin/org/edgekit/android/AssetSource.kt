package org.edgekit.android

import android.content.Context
import java.io.File
import java.io.InputStream
import org.edgekit.FileInfo
import org.edgekit.ModelCopy
import org.edgekit.Source

/**
 * A bundle in the app's assets.
 *
 * Runtimes need a path, which assets do not have: a model is copied once to the app's files, under a name with its hash, so
 * that an updated app never runs the old model. The copy is verified each time it is opened.
 */
class AssetSource(private val context: Context, private val folder: String) : Source {
    override fun open(path: String): InputStream = context.assets.open("$folder/$path")

    override fun file(info: FileInfo): File = ModelCopy.verified(File(context.filesDir, folder), info) { open(info.path) }
}
