package org.edgekit.android

import java.io.File
import org.edgekit.EdgekitException
import org.edgekit.FloatTensor
import org.edgekit.LongTensor
import org.edgekit.Model
import org.edgekit.Runner
import org.edgekit.Tensor
import org.pytorch.executorch.DType
import org.pytorch.executorch.EValue
import org.pytorch.executorch.Module
import org.pytorch.executorch.Tensor as TorchTensor

/** A `.pte` file in ExecuTorch with XNNPACK; the file is mapped, not read into memory. */
class ExecuTorchRunner(override val model: Model, file: File, private val threads: Int) : Runner {
    private val module = Module.load(file.path, Module.LOAD_MODE_MMAP, threads)

    override val device: String get() = "ExecuTorch, XNNPACK, $threads threads"

    override fun run(inputs: Map<String, Tensor>): Map<String, Tensor> {
        model.manifest.check(inputs)
        val values = model.manifest.inputs.map { EValue.from(torch(inputs.getValue(it.name))) }
        val outputs = module.forward(*values.toTypedArray())
        if (outputs.size != model.manifest.outputs.size) throw EdgekitException("ExecuTorch returned ${outputs.size} outputs instead of ${model.manifest.outputs.size}: see its log")
        return model.manifest.outputs.zip(outputs.toList()).associate { (info, value) -> info.name to plain(value.toTensor()) }
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
            DType.FLOAT -> FloatTensor(shape, tensor.dataAsFloatArray)
            DType.INT64 -> LongTensor(shape, tensor.dataAsLongArray)
            else -> throw EdgekitException("an output has the type ${tensor.dtype()}, which is not supported")
        }
    }
}
