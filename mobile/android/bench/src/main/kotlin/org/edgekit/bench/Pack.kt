package org.edgekit.bench

import java.io.File
import kotlinx.serialization.SerializationException
import kotlinx.serialization.json.Json
import kotlinx.serialization.json.JsonArray
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonNull
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.boolean
import kotlinx.serialization.json.double
import kotlinx.serialization.json.int
import kotlinx.serialization.json.jsonArray
import kotlinx.serialization.json.jsonObject
import kotlinx.serialization.json.jsonPrimitive
import org.edgekit.EdgekitException
import org.edgekit.FileInfo
import org.edgekit.Manifest
import org.edgekit.Model
import org.edgekit.ModelCopy
import org.edgekit.Tensor

/** A pack that this app cannot read; no fault of its artifact. */
class PackException(message: String, cause: Throwable? = null) : EdgekitException(message, cause)

/** Inputs that belong together: [runs] runs of [rowsARun] rows, of which the first [repeated] at most are asked twice. */
class Batch(val name: String, val runs: Int, val rowsARun: Int, val repeated: Int, private val inputs: List<String>, private val file: File) {
    /** The inputs of each run, in the order of [numbers]. */
    fun ask(numbers: Iterable<Int>, use: (Int, Map<String, Tensor>) -> Unit) = Npz(file).use { stored ->
        for (number in numbers) use(number, inputs.associateWith { stored.tensor("$number/$it") })
    }
}

/** What `edgekit verify --place adb` sent: one artifact, one place, and the questions; every file is verified by its hash. */
class Pack(private val folder: File) {
    /** The whole record, which the result repeats. */
    val record: JsonObject = try {
        Json.parseToJsonElement(File(folder, "pack.json").readText()).jsonObject
    } catch (error: SerializationException) {
        throw PackException("pack.json is invalid: pack again", error)
    }

    init {
        val version = record.getValue("schema_version").jsonPrimitive.int
        if (version != SCHEMA_VERSION) throw PackException("the pack has schema version $version, but this app reads $SCHEMA_VERSION: install the bench app again")
    }

    val place: String = only("places")
    val target: String = only("artifacts")
    val seconds: Double = record.getValue("seconds").jsonPrimitive.double
    val timed: Boolean = record.getValue("places").jsonObject.getValue(place).jsonObject.getValue("timed").jsonPrimitive.boolean
    val rowAxes: Map<String, Int?> = record.getValue("row_axes").jsonObject.mapValues { (_, axis) -> if (axis is JsonNull) null else axis.jsonPrimitive.int }
    val batches: List<Batch> = record.getValue("batches").jsonArray.map { batch(it.jsonObject) }
    private val artifact: JsonObject = record.getValue("artifacts").jsonObject.getValue(target).jsonObject
    private val files: List<FileInfo> = artifact.getValue("files").jsonObject.map { (path, digest) -> verified("artifacts/$target/$path", digest.jsonPrimitive.content) }

    /** The artifact, and its entry, which a runtime opens. */
    val model: Model
    val entry: File

    init {
        val manifest = Manifest.parse(File(folder, "artifacts/$target/manifest.json").readText())
        val own = files.firstOrNull { it.path == "artifacts/$target/${manifest.entry}" } ?: throw PackException("the pack has no file '${manifest.entry}': pack again")
        model = Model(manifest, own, artifact.getValue("sha256").jsonPrimitive.content)
        entry = File(folder, own.path)
    }

    private fun only(kind: String): String =
        record.getValue(kind).jsonObject.keys.singleOrNull() ?: throw PackException("the pack has several $kind, but this app answers one: name one with -t")

    private fun batch(said: JsonObject): Batch {
        fun number(name: String): Int = said.getValue(name).jsonPrimitive.int
        val name = said.getValue("name").jsonPrimitive.content
        val file = verified("questions/$name.npz", said.getValue("sha256").jsonPrimitive.content)
        val inputs = said.getValue("inputs").jsonArray.map { it.jsonPrimitive.content }
        return Batch(name, number("runs"), number("rows_a_run"), number("repeated"), inputs, File(folder, file.path))
    }

    private fun verified(path: String, digest: String): FileInfo {
        val file = File(folder, path)
        val info = FileInfo(path, file.length(), digest)
        if (!ModelCopy.isIntact(file, info)) throw PackException("'$path' is damaged or was not copied: run it again")
        return info
    }

    private companion object {
        const val SCHEMA_VERSION = 2
    }
}

/**
 * JSON as Python's `json.dumps(..., sort_keys=True)` writes it: a record's seal is the hash of this text.
 *
 * Takes what JSON has, as Kotlin's own and as elements; a Double gets three places behind its point, which Python writes alike.
 */
fun canonical(value: Any?): String = when (value) {
    null, JsonNull -> "null"
    is JsonObject -> canonicalObject(value)
    is JsonArray -> canonicalList(value)
    is JsonElement -> value.jsonPrimitive.let { if (it.isString) quoted(it.content) else it.content }
    is Map<*, *> -> canonicalObject(value)
    is List<*> -> canonicalList(value)
    is String -> quoted(value)
    is Double -> value.toBigDecimal().setScale(3, java.math.RoundingMode.HALF_EVEN).toPlainString().trimEnd('0').let { if (it.endsWith('.')) "${it}0" else it }
    is Int, is Long, is Boolean -> value.toString()
    else -> throw IllegalArgumentException("JSON has no ${value::class}")
}

private fun canonicalObject(value: Map<*, *>): String =
    value.entries.sortedBy { it.key.toString() }.joinToString(", ", "{", "}") { "${quoted(it.key.toString())}: ${canonical(it.value)}" }

private fun canonicalList(value: List<*>): String = value.joinToString(", ", "[", "]", transform = ::canonical)

private fun quoted(text: String): String = text.asIterable().joinToString("", "\"", "\"") { c ->
    when (c) {
        '"' -> "\\\""
        '\\' -> "\\\\"
        '\n' -> "\\n"
        '\r' -> "\\r"
        '\t' -> "\\t"
        '\b' -> "\\b"
        '\u000c' -> "\\f"
        in ' '..'~' -> c.toString()
        else -> "\\u%04x".format(c.code)
    }
}
