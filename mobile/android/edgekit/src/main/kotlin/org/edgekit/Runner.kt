package org.edgekit

/**
 * One model in one runtime, for one thread at a time; close it after use.
 *
 * `org.edgekit.android.Runners` opens models in ExecuTorch, LiteRT, MNN, ONNX Runtime and PyTorch Mobile.
 */
interface Runner : AutoCloseable {
    val model: Model

    /** A description of the runtime, its version and threads. */
    val device: String

    /** Run one batch: inputs and outputs by name. */
    fun run(inputs: Map<String, Tensor>): Map<String, Tensor>
}

/**
 * The model's inputs for one picture and query. The picture gets the size, as its input's `fit` says: by default, of the sizes
 * that the model takes, the one that keeps its shape best.
 */
fun Model.inputs(picture: Picture, query: FloatArray, size: InputSize = manifest.fittingSize(picture.size)): Map<String, Tensor> =
    manifest.inputs.associate { input ->
        input.name to when (input.kind) {
            "image" -> tensor(input, picture, size)
            "query" -> vector(input, query)
            else -> throw EdgekitException("the input '${input.name}' is neither an image nor a query: use Runner.run")
        }
    }

private fun Model.tensor(input: TensorInfo, picture: Picture, size: InputSize): FloatTensor {
    manifest.check(size)
    return picture.fitted(size.height, size.width, input.fit).tensor(input.low, input.high)
}

private fun Model.vector(input: TensorInfo, query: FloatArray): FloatTensor {
    val shape = manifest.shape(input, mapOf("batch" to 1))
    val count = shape.fold(1L) { all, edge -> all * edge }
    if (query.size.toLong() != count) throw EdgekitException("the query has ${query.size} values, but the model expects $count")
    return FloatTensor(shape, query)
}

/** The outputs for one picture, and where its patches lie. `budgets` and `indices` are empty for a model without them. */
class Answer(val relevance: FloatArray, val budgets: LongArray, val indices: LongArray, val grid: Grid) {
    /** Whether anything in the picture answers the query, by the bundle's presence threshold; null without one. */
    fun isPresent(threshold: Double?): Boolean? = threshold?.let { limit -> relevance.any { it >= limit } }
}

/**
 * Run the model on one picture and query. For a model without top-K, `indices` are computed here. `size` is that of the
 * model's input: by default the one that keeps the picture's shape best.
 *
 * Throws an EdgekitException where the outputs are not those of the manifest for this size.
 */
fun Runner.answer(picture: Picture, query: FloatArray, k: Int = 0, size: InputSize = model.manifest.fittingSize(picture.size)): Answer {
    val manifest = model.manifest
    val scores = manifest.output("scores") ?: throw EdgekitException("the model '${manifest.name}' has no scores output: use Runner.run")
    val outputs = run(model.inputs(picture, query, size))
    val relevance = (outputs[scores.name] as? FloatTensor)?.data?.takeIf { it.all(Float::isFinite) } ?: throw wrong(scores)
    fun integers(role: String): LongArray? = manifest.output(role)?.let { (outputs[it.name] as? LongTensor)?.data ?: throw wrong(it) }
    val budgets = integers("counts") ?: LongArray(0)
    val ranking = integers("ranking")
    val patches = manifest.patches(scores, size, relevance.size)
    val expected = patches?.let { (rows, columns) -> rows * columns } ?: if (size == manifest.defaultSize() && manifest.declares(scores)) manifest.count(scores).toInt() else relevance.size
    if (relevance.size != expected) {
        throw EdgekitException("the model '${manifest.name}' answered with ${relevance.size} scores instead of $expected for a picture of $size: export the assets again")
    }
    if (budgets.isNotEmpty() && budgets.size != expected) throw wrong(manifest.output("counts"))
    if (ranking != null && ranking.any { it !in relevance.indices }) throw wrong(manifest.output("ranking"))
    if (ranking == null && k !in 0..expected) throw EdgekitException("k is $k, but there are $expected scores")
    val indices = ranking ?: topK(relevance, k).map(Int::toLong).toLongArray()
    val placement = Placement.of(picture.size, size, manifest.pictureInput().fit)
    return Answer(relevance, budgets, indices, Grid(patches?.first ?: 0, patches?.second ?: 0, size, placement))
}

private fun Runner.wrong(output: TensorInfo?) =
    EdgekitException("the output '${output?.name}' of the model '${model.manifest.name}' is missing, not finite or not what its manifest says: export the assets again")

/** Run every golden case on this device. */
fun Runner.selfTest(bundle: ModelBundle): List<CaseReport> =
    bundle.golden.casesOf(model.manifest.target).map { bundle.golden.evaluate(it, run(model.inputs(it)), model.manifest.target) }

/** The inputs of a golden case; its picture is preprocessed as any other. */
fun Model.inputs(case: GoldenCase): Map<String, Tensor> {
    val picture = case.picture ?: return case.inputs
    val input = manifest.pictureInput()
    return case.inputs + (input.name to tensor(input, picture, manifest.fittingSize(picture.size)))
}
