package org.edgekit

import java.io.File
import java.nio.ByteBuffer
import java.nio.ByteOrder
import kotlinx.serialization.Serializable
import kotlinx.serialization.json.addJsonObject
import kotlinx.serialization.json.buildJsonObject
import kotlinx.serialization.json.put
import kotlinx.serialization.json.putJsonArray
import kotlinx.serialization.json.putJsonObject

/** An array in a binary file: its first byte and its shape. */
@Serializable
class ArrayPart(val offset: Int, val shape: List<Int>)

/** The golden vectors that all platforms share: the folder tests/golden of edgekit's repository. */
internal object Files {
    val golden = File(System.getProperty("edgekit.golden") ?: throw IllegalStateException("set -Dedgekit.golden"))

    inline fun <reified T> json(name: String): T = JsonFormat.decodeFromString(File(golden, name).readText())

    fun bytes(binary: String, part: ArrayPart, size: Int): ByteBuffer {
        val count = part.shape.fold(1, Int::times)
        val data = File(golden, binary).readBytes()
        return ByteBuffer.wrap(data, part.offset, size * count).slice().order(ByteOrder.LITTLE_ENDIAN)
    }

    fun floats(binary: String, part: ArrayPart) = bytes(binary, part, 4).asFloatBuffer().let { b -> FloatArray(b.remaining()).also(b::get) }

    const val PRESENCE = """{"output": "relevance", "statistic": "max", "threshold": 0.47}"""

    /** A bundle on disk with one model of a file of four bytes, as `edgekit assets` writes it. */
    fun bundle(
        folder: File,
        manifest: String = MANIFEST,
        presence: String = PRESENCE,
        targetsOfTheSecond: String = "",
        golden: Map<String, ByteArray> = goldenFiles(targetsOfTheSecond),
    ): File {
        val model = byteArrayOf(1, 2, 3, 4)
        val written = mapOf("toy/manifest.json" to manifest.toByteArray(), "toy/model.ptl" to model, "presence.json" to presence.toByteArray()) + golden
        for ((path, data) in written) File(folder, path).apply { parentFile.mkdirs() }.writeBytes(data)
        val index = buildJsonObject {
            put("schema_version", 2)
            put("name", "toy")
            putJsonObject("reference") {
                put("sha256", "b".repeat(64))
                put("device", "NVIDIA H200")
            }
            putJsonArray("models") {
                addJsonObject {
                    put("manifest", "toy/manifest.json")
                    put("file", "toy/model.ptl")
                    put("artifact_sha256", "a".repeat(64))
                }
            }
            putJsonArray("files") {
                for ((path, data) in written) {
                    addJsonObject {
                        put("path", path)
                        put("size", data.size)
                        put("sha256", ModelBundle.sha256(data))
                    }
                }
            }
        }
        File(folder, ModelBundle.INDEX).writeText(index.toString())
        return folder
    }

    /**
     * A picture of 2 x 2 whose scores are the red bytes over 255, and one of 4 x 6 in four equal parts, each of one red.
     *
     * Resized, the rows of the second one are 6/7 and 1/7 of its upper and lower half, the columns 7/8 and 1/8.
     */
    private fun goldenFiles(targetsOfTheSecond: String): Map<String, ByteArray> {
        val cases = listOf(
            Row("ramp", 2, 2, listOf(0, 51, 102, 255), floatArrayOf(0f, 51f, 102f, 255f), intArrayOf(64, 131, 198, 400)),
            Row("parts", 4, 6, PARTS, floatArrayOf(24f, 72f, 109f, 187f), intArrayOf(96, 159, 208, 310)),
        )
        val binary = ByteBuffer.allocate(1000).order(ByteOrder.LITTLE_ENDIAN)
        val listed = cases.joinToString(", ") { case ->
            val image = binary.position().also { for (red in case.reds) binary.put(byteArrayOf(red.toByte(), 9, 9)) }
            val query = binary.position().also { for (number in 1..3) binary.putFloat(number.toFloat()) }
            val relevance = binary.position().also { for (red in case.wanted) binary.putFloat(red / 255f) }
            val budgets = binary.position().also { case.budgets.forEach(binary::putInt) }
            val indices = binary.position().also { for (place in intArrayOf(3, 2)) binary.putInt(place) }
            """
            {"name": "${case.name}", "targets": [${if (case.height == 4) targetsOfTheSecond else ""}], "image": ${part(image, "uint8", case.height, case.width, 3)},
             "inputs": {"queries": ${part(query, "float32", 1, 3)}},
             "expected": {"relevance": ${part(relevance, "float32", 1, 4)}, "budgets": ${part(budgets, "int32", 1, 4)},
                          "indices": ${part(indices, "int32", 1, 2, of = "relevance")}}}
            """.trimIndent()
        }
        val limits = """{"relevance": {"max_abs": 0.001}, "budgets": {"max_abs": 1.4}, "indices": {"lost_mass": 0.02}}"""
        val json = """{"format": 3, "binary": "golden.bin", "limits": {"torch-mobile": $limits}, "cases": [$listed]}"""
        return mapOf("golden.json" to json.toByteArray(), "golden.bin" to binary.array().copyOf(binary.position()))
    }

    private fun part(offset: Int, dtype: String, vararg shape: Int, of: String = "") =
        """{"offset": $offset, "shape": ${shape.toList()}, "dtype": "$dtype", "step": 1, "of": "$of"}"""

    private class Row(val name: String, val height: Int, val width: Int, val reds: List<Int>, val wanted: FloatArray, val budgets: IntArray)

    private val PARTS = List(24) { listOf(0, 56, 112, 224)[2 * (it / 12) + it % 6 / 3] }

    val MANIFEST: String = """
        {"schema_version": 2, "name": "toy", "target": "torch-mobile", "precision": "fp32", "entry": "model.ptl",
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

/** Computes what the toy model would: the scores are the red plane; `shift` is added to each score. */
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
