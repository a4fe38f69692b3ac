package org.edgekit

/**
 * One model in one runtime, for one thread at a time; close it after use.
 *
 * `org.edgekit.android.Runners` opens models in ExecuTorch, LiteRT, ONNX Runtime and PyTorch Mobile.
 */
interface Runner : AutoCloseable {
    val model: Model

    /** A description of the runtime, its version and threads. */
    val device: String

    /** Run one batch: inputs and outputs by name. */
    fun run(inputs: Map<String, Tensor>): Map<String, Tensor>
}

/** The model's inputs for one picture and query; the picture gets the model's size as its input says. */
fun Model.inputs(picture: Picture, query: FloatArray): Map<String, Tensor> = manifest.inputs.associate { input ->
    val shape = manifest.shape(input, mapOf("batch" to 1))
    input.name to when (input.kind) {
        "image" -> picture.fitted(shape[2], shape[3], input.fit).tensor(input.low, input.high)
        "query" -> FloatTensor(shape, query)
        else -> throw EdgekitException("the input '${input.name}' is neither an image nor a query: use Runner.run")
    }
}

/** The outputs for one picture. `budgets` and `indices` are empty for a model without them. */
class Answer(val relevance: FloatArray, val budgets: LongArray, val indices: LongArray) {
    /** Whether anything in the picture answers the query, by the bundle's presence threshold; null without one. */
    fun isPresent(threshold: Double?): Boolean? = threshold?.let { limit -> relevance.any { it >= limit } }
}

/** Run the model on one picture and query. For a model without top-K, `indices` are computed here. */
fun Runner.answer(picture: Picture, query: FloatArray, k: Int = 0): Answer {
    val outputs = run(model.inputs(picture, query))
    val scores = model.manifest.output("scores") ?: throw EdgekitException("the model '${model.manifest.name}' has no scores output: use Runner.run")
    val relevance = (outputs.getValue(scores.name) as FloatTensor).data
    fun counts(role: String): LongArray? = model.manifest.output(role)?.let { (outputs[it.name] as? LongTensor)?.data }
    val indices = counts("ranking") ?: topK(relevance, k).map(Int::toLong).toLongArray()
    return Answer(relevance, counts("counts") ?: LongArray(0), indices)
}

/** Run every golden case on this device. */
fun Runner.selfTest(bundle: ModelBundle): List<CaseReport> =
    bundle.golden.cases.map { bundle.golden.evaluate(it, run(model.inputs(it)), model.manifest.target) }

/** The inputs of a golden case; its picture is preprocessed as any other. */
fun Model.inputs(case: GoldenCase): Map<String, Tensor> {
    val picture = case.picture ?: return case.inputs
    val input = manifest.inputs.first { it.kind == "image" }
    val shape = manifest.shape(input, mapOf("batch" to 1))
    return case.inputs + (input.name to picture.fitted(shape[2], shape[3], input.fit).tensor(input.low, input.high))
}
