package org.edgekit.android

import java.io.File
import org.edgekit.EdgekitException
import org.edgekit.FloatTensor
import org.edgekit.LongTensor
import org.edgekit.Model
import org.edgekit.Runner
import org.edgekit.Tensor
import org.pytorch.DType
import org.pytorch.IValue
import org.pytorch.LiteModuleLoader
import org.pytorch.PyTorchAndroid
import org.pytorch.Tensor as TorchTensor

/** A `.ptl` file in PyTorch Mobile's lite interpreter. No longer developed: new apps take [ExecuTorchRunner]. */
class PyTorchMobileRunner(override val model: Model, file: File, private val threads: Int) : Runner {
    private val module = LiteModuleLoader.load(file.path)

    init {
        PyTorchAndroid.setNumThreads(threads)
    }

    override val device: String get() = "PyTorch Mobile, CPU, $threads threads"

    override fun run(inputs: Map<String, Tensor>): Map<String, Tensor> {
        model.manifest.check(inputs)
        val values = model.manifest.inputs.map { IValue.from(torch(inputs.getValue(it.name))) }
        val answer = module.forward(*values.toTypedArray())
        val outputs = if (answer.isTuple) answer.toTuple().toList() else listOf(answer)
        if (outputs.size != model.manifest.outputs.size) throw EdgekitException("PyTorch Mobile returned ${outputs.size} outputs instead of ${model.manifest.outputs.size}: export the assets again")
        return model.manifest.outputs.zip(outputs).associate { (info, value) -> info.name to plain(value.toTensor()) }
    }

    override fun close() = module.destroy()

    private fun torch(tensor: Tensor): TorchTensor {
        val shape = tensor.shape.map(Int::toLong).toLongArray()
        return when (tensor) {
            is FloatTensor -> TorchTensor.fromBlob(tensor.data, shape)
            is LongTensor -> TorchTensor.fromBlob(tensor.data, shape)
        }
    }

    private fun plain(tensor: TorchTensor): Tensor {
        val shape = tensor.shape().map(Long::toInt).toIntArray()
        return when (tensor.dtype()) {
            DType.FLOAT32 -> FloatTensor(shape, tensor.dataAsFloatArray)
            DType.INT64 -> LongTensor(shape, tensor.dataAsLongArray)
            else -> throw EdgekitException("an output has the type ${tensor.dtype()}, which is not supported")
        }
    }
}
