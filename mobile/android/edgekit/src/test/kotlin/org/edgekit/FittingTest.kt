package org.edgekit

import kotlin.io.path.createTempDirectory
import kotlin.test.Test
import kotlin.test.assertContains
import kotlin.test.assertEquals
import kotlin.test.assertFailsWith
import kotlin.test.assertTrue
import kotlinx.serialization.Serializable

class FittingTest {
    private val golden: Golden = Files.json("fitting.json")

    @Test
    fun aPictureGetsTheSizeThatItGetsInPythonAndTypeScript() {
        val runner = PatchRunner(model(golden.axis))
        assertTrue(golden.cases.isNotEmpty())
        for (case in golden.cases) {
            val answer = runner.answer(picture(case.picture), QUERY)
            val (height, width) = case.size
            assertEquals(InputSize(height, width), answer.grid.size, "${case.picture}")
            assertEquals(listOf(height / 16, width / 16, height * width / 256), listOf(answer.grid.rows, answer.grid.columns, answer.relevance.size))
        }
    }

    @Test
    fun ofListedSizesThatWhichKeepsTheShapeBest() {
        val runner = PatchRunner(model(golden.axis, sizes = golden.listed.sizes))
        assertTrue(golden.listed.cases.isNotEmpty())
        for (case in golden.listed.cases) {
            val (height, width) = case.size
            assertEquals(InputSize(height, width), runner.answer(picture(case.picture), QUERY).grid.size, "${case.picture}")
        }
    }

    @Test
    fun aModelOfOneSizeGetsThatSize() {
        val runner = PatchRunner(model(golden.axis.copy(dynamic = false)))
        assertEquals(InputSize(224, 224), runner.answer(picture(listOf(90, 9)), QUERY).grid.size)
    }

    @Test
    fun aGridSaysInWhichPatchAPixelLies() {
        assertTrue(golden.grids.isNotEmpty())
        for (case in golden.grids) {
            val axis = Axis(2 * case.patch, case.patch, 1024, case.patch, true)
            val size = InputSize(case.size[0], case.size[1])
            val grid = PatchRunner(model(axis, case.fit)).answer(picture(case.picture), QUERY, size = size).grid
            assertEquals(listOf(case.rows, case.columns), listOf(grid.rows, grid.columns))
            assertEquals(Placement(box(case.part), box(case.place)), grid.placement)
            for ((y, x, patch) in case.patches) assertEquals(patch, grid.patchAt(y!!, x!!), "$y, $x in ${case.picture}")
        }
    }

    @Test
    fun scoresThatAreNoSquarePatchesHaveNoGrid() {
        val runner = PatchRunner(model(golden.axis.copy(dynamic = false), count = 5))
        val answer = runner.answer(picture(listOf(9, 9)), QUERY)
        assertEquals(listOf(0, 0, 5), listOf(answer.grid.rows, answer.grid.columns, answer.relevance.size))
        assertEquals(null, answer.grid.patchAt(0, 0))
    }

    @Test
    fun anAnswerOfAnotherGridIsNotUsed() {
        fun fails(message: String, runner: PatchRunner, k: Int = 0) {
            val error = assertFailsWith<EdgekitException> { runner.answer(picture(listOf(200, 400)), QUERY, k) }
            assertContains(error.message.orEmpty(), message)
        }
        val model = model(golden.axis)
        fails("answered with 196 scores instead of 200 for a picture of 160 x 320", PatchRunner(model, answered = 196))
        fails("answered with 195 scores instead of 196 for a picture of 224 x 224", PatchRunner(model(golden.axis.copy(dynamic = false)), answered = 195))
        fails("the output 'relevance' of the model 'toy' is missing", PatchRunner(model, answered = -1))
        fails("the output 'budgets' of the model 'toy' is missing, not finite or not what its manifest says", PatchRunner(model, budgets = 199))
        fails("the output 'indices' of the model 'toy' is missing, not finite or not what its manifest says", PatchRunner(model, best = 200))
        fails("the output 'relevance' of the model 'toy' is missing, not finite", PatchRunner(model, score = Float.NaN))
        val unranked = Model(model.manifest.copy(outputs = model.manifest.outputs.filter { it.role != "ranking" }), model.file, "a")
        fails("k is 201, but there are 200 scores", PatchRunner(unranked), k = 201)
        assertEquals(1, PatchRunner(model).answer(picture(listOf(200, 400)), QUERY, k = 201).indices.size)
        assertFailsWith<EdgekitException> { PatchRunner(model).answer(picture(listOf(9, 9)), floatArrayOf(1f)) }
    }

    @Test
    fun aSizeThatTheModelDoesNotTakeIsRefused() {
        fun fails(message: String, model: Model, height: Int, width: Int) {
            val error = assertFailsWith<EdgekitException> { model.inputs(picture(listOf(9, 9)), QUERY, InputSize(height, width)) }
            assertContains(error.message.orEmpty(), message)
        }
        fails("does not accept pictures of 100 x 224: it accepts [96 to 512 in steps of 16, 96 to 512 in steps of 16]", model(golden.axis), 100, 224)
        fails("does not accept pictures of -16 x 224", model(golden.axis), -16, 224)
        fails("the model 'toy' (torch-mobile) takes the sizes 224x224, 96x96, 512x512, 96x512, 512x224, 224x96, not 224 x 240", model(golden.axis, sizes = golden.listed.sizes), 224, 240)
        val listed = model(golden.axis, sizes = golden.listed.sizes)
        val error = assertFailsWith<EdgekitException> { listed.manifest.check(model(golden.axis).inputs(picture(listOf(9, 9)), QUERY, InputSize(224, 240))) }
        assertContains(error.message.orEmpty(), "224x96, not 'images' [1, 3, 224, 240], 'queries' [1, 3]")
    }

    @Test
    fun aGoldenCaseIsAskedOfTheModelsThatItNames() {
        val bundle = ModelBundle(FolderSource(Files.bundle(createTempDirectory("edgekit").toFile(), targetsOfTheSecond = "\"onnx\"")))
        val reports = ToyRunner(bundle.models.getValue("torch-mobile")).selfTest(bundle)
        assertEquals(listOf("ramp"), reports.map { it.name })
        assertEquals(listOf("ramp", "parts"), bundle.golden.casesOf("onnx").map { it.name })
    }

    private fun picture(size: List<Int>) = Picture(size[0], size[1], ByteArray(3 * size[0] * size[1]))

    private fun box(edges: List<Int>) = Box(edges[0], edges[1], edges[2], edges[3])

    /** The toy with open sizes; its scores are those of patches of 16 x 16 pixels, unless `count` says another number. */
    private fun model(axis: Axis, fit: String = "stretch", sizes: List<List<Int>> = emptyList(), count: Int = axis.default * axis.default / 256): Model {
        val edges = """{"default": ${axis.default}, "minimum": ${axis.minimum}, "maximum": ${axis.maximum}, "multiple_of": ${axis.multipleOf}, "dynamic": ${axis.dynamic}}"""
        val listed = sizes.joinToString { (height, width) -> """{"height": $height, "width": $width}""" }
        val text = Files.MANIFEST
            .replace(Regex("\"height\": \\{[^}]*}}"), "\"height\": $edges, \"width\": $edges}, \"sizes\": [$listed]")
            .replace("\"height\", 2]", "\"height\", \"width\"]").replace("[\"batch\", 4]", "[\"batch\", $count]")
            .replaceFirst("\"high\": 1.0}", "\"high\": 1.0, \"fit\": \"$fit\"}")
        return Model(Manifest.parse(text), FileInfo("model.ptl", 4, "a".repeat(64)), "a")
    }

    /** Answers with one score a patch, or with other numbers of values. */
    private class PatchRunner(override val model: Model, private val answered: Int? = null, private val budgets: Int? = null, private val best: Long = 0, private val score: Float = 0f) : Runner {
        override val device = "a toy on the JVM"

        override fun run(inputs: Map<String, Tensor>): Map<String, Tensor> {
            model.manifest.check(inputs)
            val shape = inputs.getValue("images").shape
            val declared = (model.manifest.outputs[0].shape[1] as Size.Fixed).value
            val count = answered ?: if (declared == 5) 5 else shape[2] * shape[3] / 256
            val others = mapOf(
                "budgets" to LongTensor(intArrayOf(1, budgets ?: maxOf(count, 0)), LongArray(budgets ?: maxOf(count, 0))),
                "indices" to LongTensor(intArrayOf(1, 1), longArrayOf(best)),
            )
            return if (count < 0) others else others + ("relevance" to FloatTensor(intArrayOf(1, count), FloatArray(count) { score }))
        }

        override fun close() = Unit
    }

    @Serializable
    private class Golden(val axis: Axis, val cases: List<Case>, val listed: Listed, val grids: List<GridCase>)

    @Serializable
    private class Case(val picture: List<Int>, val size: List<Int>)

    @Serializable
    private class Listed(val sizes: List<List<Int>>, val cases: List<Case>)

    @Serializable
    private class GridCase(
        val picture: List<Int>,
        val size: List<Int>,
        val fit: String,
        val patch: Int,
        val rows: Int,
        val columns: Int,
        val part: List<Int>,
        val place: List<Int>,
        val patches: List<List<Int?>>,
    )

    private companion object {
        val QUERY = floatArrayOf(1f, 2f, 3f)
    }
}
