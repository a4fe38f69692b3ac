package org.edgekit

/**
 * One model in one runtime. Make it once, use it from one thread at a time, close it.
 *
 * PyTorch Mobile, ONNX Runtime and ExecuTorch are behind this one interface (`org.edgekit.android.Runners`).
 */
interface Runner : AutoCloseable {
    val model: Model

    /** What runs it, in words: runtime, version, threads. */
    val device: String

    /** Answer one batch, by names. */
    fun run(inputs: Map<String, Tensor>): Map<String, Tensor>
}

/** The model's inputs of one picture and query; the picture is scaled to the model's size. */
fun Model.inputs(picture: Picture, query: FloatArray): Map<String, Tensor> = manifest.inputs.associate { input ->
    val shape = manifest.shape(input, mapOf("batch" to 1))
    input.name to when (input.kind) {
        "image" -> picture.resized(shape[2], shape[3]).tensor(input.low, input.high)
        "query" -> FloatTensor(shape, query)
        else -> throw EdgekitException("the input '${input.name}' is neither a picture nor a query: use Runner.run")
    }
}

/** Answer one picture and query. Where the model leaves top-K to the app, `indices` are made here. */
fun Runner.answer(picture: Picture, query: FloatArray, k: Int = 0): Answer {
    val outputs = run(model.inputs(picture, query))
    val scores = model.manifest.output("scores") ?: throw EdgekitException("the model '${model.manifest.name}' has no scores: use Runner.run")
    val relevance = (outputs.getValue(scores.name) as FloatTensor).data
    fun counts(role: String): LongArray? = model.manifest.output(role)?.let { (outputs[it.name] as? LongTensor)?.data }
    val indices = counts("ranking") ?: topK(relevance, k).map(Int::toLong).toLongArray()
    return Answer(relevance, counts("counts") ?: LongArray(0), indices)
}

/** Answer every golden case on this device. */
fun Runner.selfTest(bundle: Bundle): List<CaseReport> = bundle.golden.map { case ->
    Golden.judge(case, answer(case.picture, case.query, case.expected.indices.size), model.maxAbs)
}
