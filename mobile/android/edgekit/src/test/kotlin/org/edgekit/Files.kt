package org.edgekit

import java.io.File
import java.nio.ByteBuffer
import java.nio.ByteOrder

/** The golden vectors that all platforms share: the folder tests/golden of edgekit's repository. */
object Files {
    val golden = File(System.getProperty("edgekit.golden") ?: throw IllegalStateException("set -Dedgekit.golden"))

    fun json(name: String): Json = Json.parse(File(golden, name).readText(), name)

    fun bytes(binary: String, part: Json, size: Int): ByteBuffer {
        val count = part["shape"].list.fold(1) { product, n -> product * n.int }
        val data = File(golden, binary).readBytes()
        return ByteBuffer.wrap(data, part["offset"].int, size * count).slice().order(ByteOrder.LITTLE_ENDIAN)
    }

    fun floats(binary: String, part: Json) = bytes(binary, part, 4).asFloatBuffer().let { b -> FloatArray(b.remaining()).also(b::get) }

    /** A bundle on disk with one model of a file of four bytes, as `edgekit assets` writes it. */
    fun bundle(folder: File, manifest: String = MANIFEST): File {
        val model = byteArrayOf(1, 2, 3, 4)
        val written = mapOf("toy/manifest.json" to manifest.toByteArray(), "toy/model.ptl" to model) + goldenFiles()
        for ((path, data) in written) File(folder, path).apply { parentFile.mkdirs() }.writeBytes(data)
        val files = written.map { (path, data) -> mapOf("path" to path, "size" to data.size, "sha256" to Bundle.sha256(data)) }
        val index = mapOf(
            "schema_version" to 1,
            "name" to "toy",
            "reference" to mapOf("sha256" to "b".repeat(64), "device" to "NVIDIA H200"),
            "models" to listOf(
                mapOf("manifest" to "toy/manifest.json", "file" to "toy/model.ptl", "artifact_sha256" to "a".repeat(64), "max_abs" to 1e-3),
            ),
            "files" to files,
        )
        File(folder, Bundle.INDEX).writeText(Json.write(index))
        return folder
    }

    /** One golden case: a picture of 2 x 2 whose scores are the red bytes over 255. */
    private fun goldenFiles(): Map<String, ByteArray> {
        val binary = ByteBuffer.allocate(12 + 12 + 16 + 16 + 8).order(ByteOrder.LITTLE_ENDIAN)
        binary.put(byteArrayOf(0, 9, 9, 51, 9, 9, 102, 9, 9, -1, 9, 9))
        for (number in floatArrayOf(1f, 2f, 3f)) binary.putFloat(number)
        for (number in floatArrayOf(0f, 0.2f, 0.4f, 1f)) binary.putFloat(number)
        for (number in intArrayOf(64, 131, 198, 400)) binary.putInt(number)
        for (number in intArrayOf(3, 2)) binary.putInt(number)
        fun part(offset: Int, vararg shape: Int) = mapOf("offset" to offset, "shape" to shape.toList())
        val expected = mapOf("relevance" to part(24, 4), "budgets" to part(40, 4), "indices" to part(56, 2))
        val case = mapOf("name" to "ramp", "words" to listOf("red"), "image" to part(0, 2, 2, 3), "query" to part(12, 3), "expected" to expected)
        val json = Json.write(mapOf("format" to 1, "binary" to "golden.bin", "cases" to listOf(case)))
        return mapOf("golden.json" to json.toByteArray(), "golden.bin" to binary.array())
    }

    val MANIFEST: String = """
        {"schema_version": 1, "name": "toy", "target": "torch-mobile", "precision": "fp32", "entry": "model.ptl",
         "inputs": [
           {"name": "images", "dtype": "float32", "shape": ["batch", 3, "height", 2], "role": "tensor", "kind": "image", "of": "", "low": 0.0, "high": 1.0},
           {"name": "queries", "dtype": "float32", "shape": ["batch", 3], "role": "tensor", "kind": "query", "of": "", "low": -1.0, "high": 1.0}],
         "outputs": [
           {"name": "relevance", "dtype": "float32", "shape": ["batch", 4], "role": "scores", "kind": "tensor", "of": "", "low": 0.0, "high": 1.0},
           {"name": "budgets", "dtype": "int64", "shape": ["batch", 4], "role": "counts", "kind": "tensor", "of": "relevance", "low": 64.0, "high": 400.0},
           {"name": "indices", "dtype": "int64", "shape": ["batch", 2], "role": "ranking", "kind": "tensor", "of": "relevance", "low": 0.0, "high": 1.0}],
         "axes": {
           "batch": {"default": 1, "minimum": 1, "maximum": 8, "multiple_of": 1, "dynamic": true},
           "height": {"default": 2, "minimum": 2, "maximum": 8, "multiple_of": 2, "dynamic": false}},
         "files": [{"path": "model.ptl", "size": 4, "sha256": "9f64a747e1b97f131fabb6b447296c9b6f0201e79fb3c5356e6c77e89b6a806a", "gzip": null, "brotli": null}],
         "verdicts": [{"place": "cpu", "status": "verified", "reason": ""}],
         "notes": ["a toy"]}
    """.trimIndent()
}

/** Answers as the toy model would: scores are the red plane, budgets and ranks follow; `shift` spoils the scores. */
class ToyRunner(override val model: Model, private val shift: Float = 0f) : Runner {
    override val device = "a toy on the JVM"
    var runs = 0

    override fun run(inputs: Map<String, Tensor>): Map<String, Tensor> {
        model.manifest.check(inputs)
        runs++
        val scores = (inputs.getValue("images") as FloatTensor).data.copyOf(4).map { it + shift }.toFloatArray()
        val budgets = LongArray(4) { Math.floor(64 + 336.0 * scores[it] + 0.5).toLong() }
        return mapOf(
            "relevance" to FloatTensor(intArrayOf(1, 4), scores),
            "budgets" to LongTensor(intArrayOf(1, 4), budgets),
            "indices" to LongTensor(intArrayOf(1, 2), topK(scores, 2).map(Int::toLong).toLongArray()),
        )
    }

    override fun close() = Unit
}
