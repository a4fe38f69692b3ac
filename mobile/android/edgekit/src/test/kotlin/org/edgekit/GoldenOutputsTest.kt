package org.edgekit

import java.nio.ByteBuffer
import java.nio.ByteOrder
import kotlin.io.path.createTempDirectory
import kotlin.test.Test
import kotlin.test.assertContains
import kotlin.test.assertEquals
import kotlin.test.assertFailsWith

class GoldenOutputsTest {
    private val bundle = ModelBundle(FolderSource(Files.bundle(createTempDirectory("edgekit").toFile(), MANIFEST, golden = files())))
    private val model = bundle.models.getValue("torch-mobile")

    @Test
    fun aModelChecksItselfByName() {
        val (report) = MaskRunner(model).selfTest(bundle)
        assertEquals("", report.reason)
        val off = MaskRunner(model, shift = 0.02f).selfTest(bundle).single()
        assertContains(off.reason, "the root mean square error of the output 'mask' is 0.020 (limit 0.010)")
        assertContains(MaskRunner(model, label = 4).selfTest(bundle).single().reason, "the share of wrong values of the output 'label' is 1.0 (limit 0.0)")
        assertContains(MaskRunner(model, shift = Float.NaN).selfTest(bundle).single().reason, "not finite")
        val missing = bundle.golden.evaluate(bundle.golden.cases[0], emptyMap(), "torch-mobile")
        assertContains(missing.reason, "the output 'mask' is missing")
        assertContains(bundle.golden.evaluate(bundle.golden.cases[0], MaskRunner(model, 0.1f).run(model.inputs(bundle.golden.cases[0])), "other").reason, "limit 0.0")
    }

    @Test
    fun theInputsAreThePictureAndTheRest() {
        val inputs = model.inputs(bundle.golden.cases[0])
        assertEquals(setOf("images", "tokens"), inputs.keys)
        assertEquals(listOf(7L, -1L), (inputs.getValue("tokens") as LongTensor).data.toList())
        assertEquals(12, (inputs.getValue("images") as FloatTensor).data.size)
    }

    @Test
    fun theResultNamesOutputAndMetric() {
        val off = MaskRunner(model, shift = 0.02f)
        val text = resultJson(bundle, off, off.selfTest(bundle), null, "phone", emptyMap())
        assertContains(text, """"output":"mask","metric":"rms"""")
        assertContains(text, """"status":"rejected"""")
    }

    @Test
    fun aDtypeThatIsNotKnownIsRefused() {
        val json = files().getValue("golden.json").decodeToString().replace("int64", "complex64")
        val error = assertFailsWith<EdgekitException> { Golden.parse(json, files().getValue("golden.bin")) }
        assertContains(error.message.orEmpty(), "complex64")
        assertFailsWith<EdgekitException> { Golden.parse(json.replace("complex64", "int64"), ByteArray(3)) }
    }

    @Test
    fun aShapeThatNoArrayHasIsRefused() {
        val json = files().getValue("golden.json").decodeToString()
        for ((from, to) in listOf("[1, 4]" to "[65536, 65536]", "[2, 2, 3]" to "[65536, 65536, 3]", "[2, 2, 3]" to "[-2, -2, 3]", "[1, 2]" to "[-1, -2]")) {
            assertContains(json, from)
            val error = assertFailsWith<EdgekitException>(to) { Golden.parse(json.replace(from, to), files().getValue("golden.bin")) }
            assertContains(error.message.orEmpty(), "golden.json is invalid (an array has the shape")
        }
    }

    /** The mask is the red plane, of which the golden vectors hold every second value. */
    private class MaskRunner(override val model: Model, private val shift: Float = 0f, private val label: Long = 3) : Runner {
        override val device = "a toy on the JVM"

        override fun run(inputs: Map<String, Tensor>): Map<String, Tensor> {
            val red = (inputs.getValue("images") as FloatTensor).data.copyOf(4).map { it + shift }.toFloatArray()
            return mapOf("mask" to FloatTensor(intArrayOf(1, 4), red), "label" to LongTensor(intArrayOf(1), longArrayOf(label)))
        }

        override fun close() = Unit
    }

    private companion object {
        val MANIFEST = Files.MANIFEST.replace("\"queries\", \"dtype\": \"float32\"", "\"tokens\", \"dtype\": \"int64\"").replace("\"kind\": \"query\"", "\"kind\": \"tensor\"")

        fun files(): Map<String, ByteArray> {
            val binary = ByteBuffer.allocate(48).order(ByteOrder.LITTLE_ENDIAN)
            for (red in intArrayOf(0, 51, 102, 255)) binary.put(byteArrayOf(red.toByte(), 9, 9))
            binary.putInt(0).putLong(7).putLong(-1).putFloat(0f).putFloat(102 / 255f).putLong(3)
            val json = """{"format": 3, "binary": "golden.bin",
                "limits": {"torch-mobile": {"mask": {"max_abs": 0.05, "rms": 0.01}, "label": {"wrong": 0.0}}},
                "cases": [{"name": "one", "image": {"offset": 0, "shape": [2, 2, 3], "dtype": "uint8", "step": 1},
                  "inputs": {"tokens": {"offset": 16, "shape": [1, 2], "dtype": "int64", "step": 1}},
                  "expected": {"mask": {"offset": 32, "shape": [1, 4], "dtype": "float32", "step": 2},
                               "label": {"offset": 40, "shape": [1], "dtype": "int64", "step": 1}}}]}"""
            return mapOf("golden.json" to json.toByteArray(), "golden.bin" to binary.array())
        }
    }
}
