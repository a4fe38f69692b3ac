package org.edgekit

import java.io.File
import java.io.InputStream
import java.security.MessageDigest

/** Where a bundle's files are: an app's assets, or a folder in tests. */
interface Source {
    /** Open a file by its path in the bundle. */
    fun open(path: String): InputStream

    /** The same as a file on disk, for runtimes that take paths; its hash has been checked. */
    fun file(info: FileInfo): File
}

/** One model of a bundle: the artifact's manifest, its file, and the largest difference of a score that is still right. */
class Model(val manifest: Manifest, val file: FileInfo, val artifactSha256: String, val maxAbs: Double)

/**
 * What `edgekit assets android` wrote: `bundle.json` and the files that it names.
 *
 * Nothing is trusted before it was hashed: a damaged model file can load and answer differently.
 */
class Bundle(private val source: Source) {
    private val top = source.open(INDEX).use { Json.parse(it.readBytes().decodeToString(), INDEX) }

    val name: String = top["name"].text
    val referenceSha256: String = top["reference"]["sha256"].text
    val referenceDevice: String = top["reference"]["device"].text
    val files: Map<String, FileInfo> = top["files"].list.map(Manifest::file).associateBy { it.path }

    /** The models, by target; the best choice first. */
    val models: Map<String, Model> = top["models"].list.associate { json ->
        val manifest = Manifest.parse(text(json["manifest"].text), json["manifest"].text)
        manifest.target to Model(manifest, info(json["file"].text), json["artifact_sha256"].text, json["max_abs"].number)
    }

    /** The query encoder, or null for a model without queries. */
    val encoder: QueryEncoder? by lazy {
        if (VOCABULARY in files) QueryEncoder.parse(text(VOCABULARY), bytes(EMBEDDINGS)) else null
    }

    /** The golden vectors; empty for a bundle without. */
    val golden: List<GoldenCase> by lazy {
        if (GOLDEN in files) Golden.parse(text(GOLDEN), bytes(GOLDEN_BINARY)) else emptyList()
    }

    /** Read one file whole, after checking its size and hash. */
    fun bytes(path: String): ByteArray {
        val info = info(path)
        val data = source.open(path).use { it.readBytes() }
        if (data.size.toLong() != info.size || sha256(data) != info.sha256) throw damaged(path)
        return data
    }

    /** A model's file on disk. */
    fun file(model: Model): File = source.file(model.file)

    /** Check every file against its size and hash; for the first start of an app version. */
    fun verify() {
        for (info in files.values) {
            val digest = MessageDigest.getInstance("SHA-256")
            var size = 0L
            source.open(info.path).use { stream ->
                val buffer = ByteArray(1 shl 16)
                while (true) {
                    val read = stream.read(buffer)
                    if (read < 0) break
                    digest.update(buffer, 0, read)
                    size += read
                }
            }
            if (size != info.size || hex(digest.digest()) != info.sha256) throw damaged(info.path)
        }
    }

    private fun info(path: String): FileInfo = files[path] ?: throw EdgekitException("the bundle '$INDEX' does not name '$path': export the assets again")

    private fun text(path: String): String = bytes(path).decodeToString()

    companion object {
        const val INDEX = "bundle.json"
        const val VOCABULARY = "vocabulary.json"
        const val EMBEDDINGS = "embeddings.bin"
        const val GOLDEN = "golden.json"
        const val GOLDEN_BINARY = "golden.bin"

        fun sha256(data: ByteArray): String = hex(MessageDigest.getInstance("SHA-256").digest(data))

        fun damaged(path: String) = EdgekitException("'$path' is damaged: install the app again")

        private fun hex(bytes: ByteArray): String = bytes.joinToString("") { "%02x".format(it) }
    }
}

/** A bundle in a folder. */
class FolderSource(private val folder: File) : Source {
    override fun open(path: String): InputStream = File(folder, path).inputStream()

    override fun file(info: FileInfo): File = File(folder, info.path)
}
