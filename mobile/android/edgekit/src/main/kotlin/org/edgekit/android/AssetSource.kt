package org.edgekit.android

import android.content.Context
import java.io.File
import java.io.InputStream
import org.edgekit.FileInfo
import org.edgekit.ModelCopy
import org.edgekit.Seal
import org.edgekit.Source

/**
 * A bundle in the app's assets.
 *
 * Runtimes need a path, which assets do not have: a model is copied once to the app's files, under a name with its hash, so
 * that an updated app never runs the old model. It lies where no backup takes it. What was verified is not hashed again
 * before the app is installed anew or the file changes.
 */
class AssetSource(private val context: Context, private val folder: String) : Source {
    private val home = File(context.noBackupFilesDir, folder)
    private val installed: String by lazy {
        context.packageManager.getPackageInfo(context.packageName, 0).lastUpdateTime.toString()
    }

    override fun open(path: String): InputStream = context.assets.open("$folder/$path")

    override fun file(info: FileInfo): File = ModelCopy.verified(home, info, installed) { open(info.path) }

    override fun verifiedBefore(bundle: String): Seal = Seal(File(home, "bundle.verified"), "$bundle $installed")
}
