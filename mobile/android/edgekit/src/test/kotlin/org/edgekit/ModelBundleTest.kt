package org.edgekit

import java.io.File
import kotlin.io.path.createTempDirectory
import kotlin.test.Test
import kotlin.test.assertContains
import kotlin.test.assertEquals
import kotlin.test.assertFailsWith
import kotlin.test.assertTrue
import kotlinx.serialization.json.Json
import kotlinx.serialization.json.jsonArray
import kotlinx.serialization.json.jsonObject
import kotlinx.serialization.json.jsonPrimitive

class ModelBundleTest {
    private val folder: File = Files.bundle(createTempDirectory("edgekit").toFile())
    private val bundle: ModelBundle = ModelBundle(FolderSource(folder))
    private val model: Model = bundle.models.getValue("torch-mobile")

    @Test
    fun verifiesItsFiles() {
        bundle.verify()
        assertEquals(4, bundle.file(model).length())
        File(folder, "toy/model.ptl").writeBytes(byteArrayOf(1, 2, 3, 5))
        val error = assertFailsWith<EdgekitException> { ModelBundle(FolderSource(folder)).verify() }
        assertContains(error.message.orEmpty(), "'toy/model.ptl' is damaged")
        assertFailsWith<EdgekitException> { bundle.file(model) }
    }

    @Test
    fun isVerifiedOnceWhereTheSourceRemembers() {
        val seal = File(createTempDirectory("edgekit").toFile(), "kept/bundle.verified")
        var installed = "1"
        var opened = 0
        val files = FolderSource(folder)
        val source = object : Source by files {
            override fun open(path: String) = files.open(path).also { opened++ }
            override fun verifiedBefore(bundle: String) = Seal(seal, "$bundle $installed")
        }
        fun reads(): Int = ModelBundle(source).let { kept -> opened = 0; kept.verifyOnce(); opened }
        val all = reads()
        assertEquals(ModelBundle(source).files.size, all)
        assertEquals(0, reads())
        installed = "2"
        assertEquals(all, reads())
        File(folder, "toy/model.ptl").writeBytes(byteArrayOf(1, 2, 3, 5))
        installed = "3"
        assertFailsWith<EdgekitException> { reads() }
        assertFailsWith<EdgekitException> { reads() } // what failed is not remembered
    }

    @Test
    fun aDamagedManifestIsNotRead() {
        File(folder, "toy/manifest.json").appendText(" ")
        assertFailsWith<EdgekitException> { ModelBundle(FolderSource(folder)) }
    }

    @Test
    fun saysWhetherAnythingIsThere() {
        assertEquals(0.47, bundle.presenceThreshold)
        val grid = Grid(1, 2, InputSize(1, 2), Placement.of(InputSize(1, 2), InputSize(1, 2), "stretch"))
        fun answer(vararg relevance: Float) = Answer(relevance, LongArray(0), LongArray(0), grid)
        assertEquals(true, answer(0.1f, 0.48f).isPresent(bundle.presenceThreshold))
        assertEquals(false, answer(0.1f, 0.46f).isPresent(bundle.presenceThreshold))
        assertEquals(null, answer(0.1f).isPresent(null))
        val wrong = Files.bundle(createTempDirectory("edgekit").toFile(), presence = Files.PRESENCE.replace("0.47", "1.5"))
        assertFailsWith<EdgekitException> { ModelBundle(FolderSource(wrong)).presenceThreshold }
    }

    @Test
    fun checksThisDeviceWithGoldenVectors() {
        val reports = ToyRunner(model).selfTest(bundle)
        assertEquals(listOf("", ""), reports.map { it.reason })
        val spoilt = ToyRunner(model, shift = 0.01f).selfTest(bundle).first()
        assertContains(spoilt.reason, "the largest error of the output 'relevance' is 0.010 (limit 0.0010)")
        val broken = ToyRunner(model, shift = Float.NaN).selfTest(bundle).first()
        assertContains(broken.reason, "is not finite")
    }

    @Test
    fun aGoldenPictureOfAnotherSizeTellsHowItIsResized() {
        val case = bundle.golden.cases[1]
        val picture = case.picture!!
        assertEquals(listOf(4, 6), listOf(picture.height, picture.width))
        val corner = Picture(2, 2, ByteArray(12) { picture.rgb[18 * (it / 6) + it % 6] })
        val cropped = GoldenCase(case.name, corner, case.inputs, case.expected)
        val report = bundle.golden.evaluate(case, ToyRunner(model).run(model.inputs(cropped)), "torch-mobile")
        assertContains(report.reason, "the largest error of the output 'relevance' is 0.73 (limit 0.0010)")
    }

    @Test
    fun aRankingThatLosesScoresIsNotTheReferences() {
        val case = bundle.golden.cases[0]
        val right = ToyRunner(model).run(model.inputs(case))
        val lowest = right + ("indices" to LongTensor(intArrayOf(1, 2), longArrayOf(0, 1)))
        val report = bundle.golden.evaluate(case, lowest, "torch-mobile")
        assertContains(report.reason, "the lost share of the scores of the output 'indices' is 0.86 (limit 0.020)")
        val swapped = right + ("indices" to LongTensor(intArrayOf(1, 2), longArrayOf(2, 3)))
        assertEquals("", bundle.golden.evaluate(case, swapped, "torch-mobile").reason)
    }

    @Test
    fun timesByTheProtocol() {
        var now = 0L
        val runner = ToyRunner(model)
        val bench = Bench(clock = { now.also { now += 500_000 } })
        val timing = bench.time(runner, model.inputs(bundle.golden.cases[0]))
        assertTrue(timing.runs >= 100)
        assertEquals(timing.runs + 10, runner.runs)
        assertEquals(0.5, timing.percentile(50.0), 1e-9)
        val known = Timing("x", doubleArrayOf(1.0, 2.0, 4.0, 8.0))
        assertEquals(3.0, known.percentile(50.0), 1e-12)
        assertEquals(6.8, known.percentile(90.0), 1e-12)
        assertEquals(2.680951, known.std, 1e-6)
    }

    @Test
    fun writesAResultThatEdgekitReads() {
        val host = mapOf("system" to "JVM ${System.getProperty("java.version")}", "device" to "test")
        val inputs = model.inputs(bundle.golden.cases[0])
        val timing = Bench(warmUps = 1, runs = 5, seconds = 0.0).time(ToyRunner(model), inputs)
        val text = resultJson(bundle, ToyRunner(model), ToyRunner(model).selfTest(bundle), timing, "phone", host)
        assertEquals("verified", status(text))
        // edgekit's own reader gets it from here (tests/mobile/test_kotlin.py).
        System.getProperty("edgekit.result")?.let { File(it).writeText(text) }
        val spoilt = ToyRunner(model, shift = 0.01f)
        val rejected = resultJson(bundle, spoilt, spoilt.selfTest(bundle), null, "phone", host)
        assertEquals("rejected", status(rejected))
    }

    @Test
    fun aScoreThatIsNotFiniteIsNullInTheResult() {
        val broken = ToyRunner(model, shift = Float.NaN)
        val text = resultJson(bundle, broken, broken.selfTest(bundle), null, "phone", emptyMap())
        assertContains(text, """"value":null""")
    }

    @Test
    fun anIndexThatNamesAFileOutsideIsRefused() {
        val index = File(folder, ModelBundle.INDEX)
        index.writeText(index.readText().replaceFirst("toy/model.ptl\",\"size", "../model.ptl\",\"size"))
        val error = assertFailsWith<EdgekitException> { ModelBundle(FolderSource(folder)) }
        assertContains(error.message.orEmpty(), "'../model.ptl' is not a relative path inside the bundle")
    }

    private fun status(result: String): String {
        val place = Json.parseToJsonElement(result).jsonObject.getValue("places").jsonArray.single().jsonObject
        return place.getValue("status").jsonPrimitive.content
    }
}
