package org.edgekit

import java.io.File
import java.io.InputStream
import java.security.MessageDigest
import kotlinx.serialization.SerialName
import kotlinx.serialization.Serializable

/** The storage of a bundle's files: an app's assets, or a folder in tests. */
interface Source {
    /** Open a file by its path in the bundle. */
    fun open(path: String): InputStream

    /** The same as a file on disk, for runtimes that need a path; its hash is verified. */
    fun file(info: FileInfo): File

    /** Where it is remembered that the bundle of this hash was verified; null where nothing is. */
    fun verifiedBefore(bundle: String): Seal? = null
}

/** One model of a bundle: the artifact's manifest, its file, and the limit of a score's absolute error. */
class Model(val manifest: Manifest, val file: FileInfo, val artifactSha256: String)

/**
 * The files that `edgekit assets android` wrote: `bundle.json`, and the files that it lists.
 *
 * Every file is verified by its hash before use: a damaged model file can load and give other results.
 */
class ModelBundle(private val source: Source) {
    private val written: ByteArray = source.open(INDEX).use { it.readBytes() }
    private val index: Index = decodeJson(written.decodeToString(), INDEX)

    val name: String = index.name
    val referenceSha256: String = index.reference.sha256
    val referenceDevice: String = index.reference.device
    val files: Map<String, FileInfo> = index.files.associateBy { it.path }

    /** The models by target; the best choice first. */
    val models: Map<String, Model> = index.models.associate { entry ->
        val manifest = Manifest.parse(text(entry.manifest), entry.manifest)
        manifest.target to Model(manifest, info(entry.file), entry.artifactSha256)
    }

    /** The query encoder, or null for a model without queries. */
    val encoder: QueryEncoder? by lazy {
        if (VOCABULARY in files) QueryEncoder.parse(text(VOCABULARY), bytes(EMBEDDINGS)) else null
    }

    /** The highest relevance from which something in a picture answers the query; null for a model without. */
    val presenceThreshold: Double? by lazy {
        if (PRESENCE in files) decodeJson<Presence>(text(PRESENCE), PRESENCE).checked() else null
    }

    /** The golden vectors; without cases for a bundle that has none. */
    val golden: Golden by lazy { if (GOLDEN in files) Golden.parse(text(GOLDEN), bytes(GOLDEN_BINARY)) else Golden.NONE }

    /** Read one file and verify its size and hash. */
    fun bytes(path: String): ByteArray {
        val info = info(path)
        val data = source.open(path).use { it.readBytes() }
        if (data.size.toLong() != info.size || sha256(data) != info.sha256) throw damaged(path)
        return data
    }

    /** A model's file on disk. */
    fun file(model: Model): File = source.file(model.file)

    /** Verify the size and hash of every file, unless it was done since the app was installed and the source remembers. */
    fun verifyOnce() {
        val seal = source.verifiedBefore(sha256(written))
        if (seal?.holds == true) return
        verify()
        seal?.write()
    }

    /** Verify the size and hash of every file. */
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

    private fun info(path: String): FileInfo =
        files[path] ?: throw EdgekitException("$INDEX does not list the file '$path': export the assets again")

    private fun text(path: String): String = bytes(path).decodeToString()

    companion object {
        const val INDEX = "bundle.json"
        const val VOCABULARY = "vocabulary.json"
        const val EMBEDDINGS = "embeddings.bin"
        const val PRESENCE = "presence.json"
        const val GOLDEN = "golden.json"
        const val GOLDEN_BINARY = "golden.bin"

        fun sha256(data: ByteArray): String = hex(MessageDigest.getInstance("SHA-256").digest(data))

        fun damaged(path: String) = EdgekitException("'$path' is damaged: install the app again")

        private fun hex(bytes: ByteArray): String = bytes.joinToString("") { "%02x".format(it) }
    }
}

/** The content of bundle.json. */
@Serializable
private class Index(val name: String, val reference: Reference, val models: List<Entry>, val files: List<FileInfo>) {
    @Serializable
    class Reference(val sha256: String, val device: String)

    @Serializable
    class Entry(
        val manifest: String,
        val file: String,
        @SerialName("artifact_sha256") val artifactSha256: String,
    )
}

/** A bundle in a folder. */
class FolderSource(private val folder: File) : Source {
    override fun open(path: String): InputStream = File(folder, path).inputStream()

    override fun file(info: FileInfo): File {
        val file = File(folder, info.path)
        if (!ModelCopy.isIntact(file, info)) throw ModelBundle.damaged(info.path)
        return file
    }
}

/** The content of presence.json. */
@Serializable
private data class Presence(val output: String, val statistic: String, val threshold: Double) {
    fun checked(): Double {
        if (output == "relevance" && statistic == "max" && threshold > 0 && threshold < 1) return threshold
        throw EdgekitException("${ModelBundle.PRESENCE} has no threshold between 0 and 1 for the highest relevance")
    }
}
