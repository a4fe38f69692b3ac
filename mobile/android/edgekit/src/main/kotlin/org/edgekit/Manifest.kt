package org.edgekit

/** An input or output of a model. A size is fixed, or the name of an axis. */
data class TensorInfo(
    val name: String,
    val dtype: String,
    val shape: List<Any>,
    val role: String,
    val kind: String,
    val of: String,
    val low: Double,
    val high: Double,
)

/** A dimension: dynamic within [minimum, maximum] in steps of [multipleOf], or fixed at [default]. */
data class Axis(val default: Int, val minimum: Int, val maximum: Int, val multipleOf: Int, val dynamic: Boolean) {
    fun takes(size: Int): Boolean =
        if (dynamic) size in minimum..maximum && size % multipleOf == 0 else size == default
}

/** A file by path, size in bytes and sha256. */
data class FileInfo(val path: String, val size: Long, val sha256: String)

/**
 * What `edgekit export` says of one artifact: the contract that every platform reads.
 *
 * `manifest.schema.json` of edgekit describes the whole; only what an app needs is read here.
 */
data class Manifest(
    val name: String,
    val target: String,
    val precision: String,
    val entry: String,
    val inputs: List<TensorInfo>,
    val outputs: List<TensorInfo>,
    val axes: Map<String, Axis>,
    val files: List<FileInfo>,
    val verdicts: Map<String, String>,
    val notes: List<String>,
) {
    /** The input of a kind ("image", "query"), or null. */
    fun input(kind: String): TensorInfo? = inputs.firstOrNull { it.kind == kind }

    /** The output of a role ("scores", "counts", "ranking", "features"), or null. */
    fun output(role: String): TensorInfo? = outputs.firstOrNull { it.role == role }

    /** The sizes of a tensor, where `sizes` gives those of some axes and the others have their defaults. */
    fun shape(tensor: TensorInfo, sizes: Map<String, Int> = emptyMap()): IntArray =
        tensor.shape.map { size ->
            if (size is String) sizes[size] ?: axis(size).default else size as Int
        }.toIntArray()

    /** Refuse inputs whose sizes the artifact does not take: a runtime may answer all the same, and wrongly. */
    fun check(inputs: Map<String, Tensor>) {
        for (declared in this.inputs) {
            val given = inputs[declared.name] ?: throw EdgekitException("the model '$name' needs the input '${declared.name}'")
            val fits = given.shape.size == declared.shape.size &&
                given.shape.zip(declared.shape).all { (size, wanted) ->
                    if (wanted is String) axis(wanted).takes(size) else size == wanted
                }
            if (!fits) {
                val wanted = declared.shape.joinToString(", ") { if (it is String) words(it) else it.toString() }
                throw EdgekitException("'${declared.name}' of the model '$name' takes [$wanted], not ${given.shape.toList()}")
            }
        }
    }

    private fun axis(name: String): Axis = axes[name] ?: throw EdgekitException("the manifest of '${this.name}' lacks the axis '$name'")

    private fun words(name: String): String = axis(name).let { a ->
        if (a.dynamic) "${a.minimum} to ${a.maximum} in steps of ${a.multipleOf}" else a.default.toString()
    }

    companion object {
        const val SCHEMA_VERSION = 1

        /** Read a manifest.json. */
        fun parse(text: String, name: String = "manifest.json"): Manifest {
            val top = Json.parse(text, name)
            val version = top["schema_version"].int
            if (version != SCHEMA_VERSION) {
                throw EdgekitException("$name has schema version $version, and this app reads $SCHEMA_VERSION: export the assets again")
            }
            return Manifest(
                name = top["name"].text,
                target = top["target"].text,
                precision = top["precision"].text,
                entry = top["entry"].text,
                inputs = top["inputs"].list.map(::tensor),
                outputs = top["outputs"].list.map(::tensor),
                axes = top["axes"].let { axes -> axes.keys.associateWith { axis(axes[it]) } },
                files = top["files"].list.map(::file),
                verdicts = top["verdicts"].list.associate { it["place"].text to it["status"].text },
                notes = top["notes"].list.map { it.text },
            )
        }

        /** Read a file's path, size and hash; a path that leaves the folder is refused. */
        fun file(json: Json): FileInfo {
            val path = json["path"].text
            val plain = path.isNotEmpty() && !path.startsWith("/") && '\\' !in path && ':' !in path && ".." !in path.split('/')
            if (!plain) json["path"].wrong("a plain relative path, not '$path'")
            val sha256 = json["sha256"].text
            if (!Regex("[0-9a-f]{64}").matches(sha256)) json["sha256"].wrong("64 hexadecimal digits")
            return FileInfo(path, json["size"].long, sha256)
        }

        private fun tensor(json: Json) = TensorInfo(
            name = json["name"].text,
            dtype = json["dtype"].text,
            shape = json["shape"].list.map { if (it.isText) it.text else it.int },
            role = json["role"].text,
            kind = json["kind"].text,
            of = json["of"].text,
            low = json["low"].number,
            high = json["high"].number,
        )

        private fun axis(json: Json) = Axis(
            default = json["default"].int,
            minimum = json["minimum"].int,
            maximum = json["maximum"].int,
            multipleOf = json["multiple_of"].int,
            dynamic = json["dynamic"].bool,
        )
    }
}
