package org.edgekit

import kotlinx.serialization.KSerializer
import kotlinx.serialization.SerialName
import kotlinx.serialization.Serializable
import kotlinx.serialization.descriptors.PrimitiveKind
import kotlinx.serialization.descriptors.PrimitiveSerialDescriptor
import kotlinx.serialization.descriptors.SerialDescriptor
import kotlinx.serialization.encoding.Decoder
import kotlinx.serialization.encoding.Encoder
import kotlinx.serialization.json.JsonDecoder
import kotlinx.serialization.json.int
import kotlinx.serialization.json.jsonPrimitive

/** One size of a tensor: a number, or the name of an axis. */
@Serializable(with = SizeSerializer::class)
sealed interface Size {
    data class Fixed(val value: Int) : Size

    data class Axis(val name: String) : Size
}

/** An input or output of a model. */
@Serializable
data class TensorInfo(
    val name: String,
    val dtype: String,
    val shape: List<Size>,
    val role: String,
    val kind: String,
    val of: String,
    val low: Double,
    val high: Double,
    val fit: String = "stretch",
) {
    init {
        requireName(name)
        shape.filterIsInstance<Size.Axis>().forEach { requireName(it.name) }
    }
}

private val NAME = Regex("[A-Za-z0-9_][A-Za-z0-9_.-]*")

/** Refuse a name of anything but letters, digits, dots, dashes and underscores. */
private fun requireName(name: String) = require(NAME.matches(name)) {
    "'${name.filterNot(Char::isISOControl)}' is not a name: letters, digits, dots, dashes and underscores are possible"
}

/** An axis: dynamic within [minimum, maximum] in steps of [multipleOf], or fixed at [default]. */
@Serializable
data class Axis(
    val default: Int,
    val minimum: Int,
    val maximum: Int,
    @SerialName("multiple_of") val multipleOf: Int,
    val dynamic: Boolean,
) {
    init {
        require(multipleOf > 0) { "an axis has steps of $multipleOf" }
    }

    fun accepts(size: Int): Boolean = if (dynamic) size in minimum..maximum && size % multipleOf == 0 else size == default
}

/** A file by its path in the bundle, its size in bytes and its sha256. A path outside of the bundle is refused. */
@Serializable
data class FileInfo(val path: String, val size: Long, val sha256: String) {
    init {
        val plain = path.none { it == '\\' || it == ':' || it.isISOControl() }
        val inside = plain && path.split('/').none { it.isEmpty() || it == "." || it == ".." }
        require(inside) { "'$path' is not a relative path inside the bundle" }
        require(SHA256.matches(sha256)) { "the sha256 of '$path' is not 64 hexadecimal digits" }
    }

    private companion object {
        val SHA256 = Regex("[0-9a-f]{64}")
    }
}

/** The verdict of one place: "verified", "rejected" or "not verified here". */
@Serializable
data class Verdict(val place: String, val status: String)

/**
 * The description of one artifact that `edgekit export` writes.
 *
 * edgekit's `manifest.schema.json` describes all fields; only those that an app uses are here.
 */
@Serializable
data class Manifest(
    val name: String,
    val target: String,
    val precision: String,
    val entry: String,
    val inputs: List<TensorInfo>,
    val outputs: List<TensorInfo>,
    val axes: Map<String, Axis>,
    /** The only sizes of the axes beside the batch that the artifact takes together; empty: all within `axes`. */
    val sizes: List<Map<String, Int>> = emptyList(),
    val files: List<FileInfo>,
    val verdicts: List<Verdict>,
    val notes: List<String>,
) {
    init {
        (listOf(name, target, precision) + axes.keys + verdicts.map(Verdict::place)).forEach(::requireName)
    }

    /** The input of a kind ("image", "query"), or null. */
    fun input(kind: String): TensorInfo? = inputs.firstOrNull { it.kind == kind }

    /** The output of a role ("scores", "counts", "ranking", "features"), or null. */
    fun output(role: String): TensorInfo? = outputs.firstOrNull { it.role == role }

    /** The shape of a tensor; an axis that is not in `sizes` has its default size. */
    fun shape(tensor: TensorInfo, sizes: Map<String, Int> = emptyMap()): IntArray =
        tensor.shape.map { size ->
            when (size) {
                is Size.Fixed -> size.value
                is Size.Axis -> sizes[size.name] ?: axis(size.name).default
            }
        }.toIntArray()

    /** Refuse inputs whose shape the artifact does not accept: a runtime may run them and return wrong results. */
    fun check(inputs: Map<String, Tensor>) {
        for (declared in this.inputs) {
            val given = inputs[declared.name] ?: throw EdgekitException("the input '${declared.name}' of the model '$name' is missing")
            val fits = given.shape.size == declared.shape.size && given.shape.zip(declared.shape).all { (size, wanted) -> accepts(wanted, size) }
            if (!fits) {
                val wanted = declared.shape.joinToString(", ", transform = ::describe)
                throw EdgekitException("the input '${declared.name}' of the model '$name' has the shape ${given.shape.toList()}, but the model accepts [$wanted]")
            }
        }
        val given = this.inputs.flatMap { declared -> declared.shape.zip(inputs.getValue(declared.name).shape.asList()) }
        val shapes = this.inputs.joinToString { "'${it.name}' ${inputs.getValue(it.name).shape.toList()}" }
        checkListed(given.mapNotNull { (declared, size) -> (declared as? Size.Axis)?.let { it.name to size } }.toMap(), shapes)
    }

    /** Refuse sizes of axes that the artifact does not take together; `shown` says what has them. */
    internal fun checkListed(given: Map<String, Int>, shown: String) {
        if (sizes.isEmpty() || sizes.any { one -> given.all { (axis, size) -> (one[axis] ?: size) == size } }) return
        throw EdgekitException("the model '$name' ($target) takes the sizes ${sizes.joinToString(transform = ::sizeText)}, not $shown")
    }

    /** Sizes in the order in which the inputs' shapes name their axes: height 320 and width 256 are "320x256". */
    private fun sizeText(sizes: Map<String, Int>): String =
        inputs.flatMap { it.shape }.filterIsInstance<Size.Axis>().distinct().mapNotNull { sizes[it.name] }.joinToString("x")

    internal fun accepts(declared: Size, size: Int): Boolean = when (declared) {
        is Size.Fixed -> size == declared.value
        is Size.Axis -> axis(declared.name).accepts(size)
    }

    internal fun axis(name: String): Axis = axes[name] ?: throw EdgekitException("the manifest of '${this.name}' has no axis '$name'")

    internal fun describe(size: Size): String = when (size) {
        is Size.Fixed -> size.value.toString()
        is Size.Axis -> axis(size.name).let { if (it.dynamic) "${it.minimum} to ${it.maximum} in steps of ${it.multipleOf}" else it.default.toString() }
    }

    companion object {
        const val SCHEMA_VERSION = 2

        /** Parse a manifest.json; `name` is its name in error messages. */
        fun parse(text: String, name: String = "manifest.json"): Manifest {
            val version = decodeJson<Versioned>(text, name).schemaVersion
            if (version != SCHEMA_VERSION) {
                throw EdgekitException("$name has schema version $version, but this app supports version $SCHEMA_VERSION: export the assets again")
            }
            return decodeJson(text, name)
        }
    }
}

/** Decoded first: the other fields may differ in another schema version. */
@Serializable
private class Versioned(@SerialName("schema_version") val schemaVersion: Int)

internal object SizeSerializer : KSerializer<Size> {
    override val descriptor: SerialDescriptor = PrimitiveSerialDescriptor("org.edgekit.Size", PrimitiveKind.STRING)

    override fun deserialize(decoder: Decoder): Size {
        val value = (decoder as JsonDecoder).decodeJsonElement().jsonPrimitive
        return if (value.isString) Size.Axis(value.content) else Size.Fixed(value.int)
    }

    override fun serialize(encoder: Encoder, value: Size) = when (value) {
        is Size.Fixed -> encoder.encodeInt(value.value)
        is Size.Axis -> encoder.encodeString(value.name)
    }
}
