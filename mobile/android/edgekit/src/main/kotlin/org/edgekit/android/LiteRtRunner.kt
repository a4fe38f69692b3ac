package org.edgekit.android

import com.google.ai.edge.litert.Accelerator
import com.google.ai.edge.litert.CompiledModel
import com.google.ai.edge.litert.TensorBuffer
import java.io.File
import org.edgekit.EdgekitException
import org.edgekit.FloatTensor
import org.edgekit.LongTensor
import org.edgekit.Model
import org.edgekit.Runner
import org.edgekit.Tensor
import org.edgekit.TensorInfo

/**
 * A `.tflite` file in LiteRT, on the CPU, which every phone has. All its sizes are fixed, so its buffers are made once.
 *
 * Integers have 32 bits in the file, whatever the manifest declares: they are converted here.
 */
class LiteRtRunner(override val model: Model, file: File, private val threads: Int) : Runner {
    private val compiled = CompiledModel.create(
        file.path,
        CompiledModel.Options(Accelerator.CPU).apply { cpuOptions = CompiledModel.CpuOptions(numThreads = threads) },
    )
    private val inputs = model.manifest.inputs.associate { it.name to compiled.createInputBuffer(it.name) }
    private val outputs = model.manifest.outputs.associate { it.name to compiled.createOutputBuffer(it.name) }

    override val device: String get() = "LiteRT, CPU, $threads threads"

    override fun run(inputs: Map<String, Tensor>): Map<String, Tensor> {
        model.manifest.check(inputs)
        for ((name, buffer) in this.inputs) write(name, inputs.getValue(name), buffer)
        compiled.run(this.inputs, outputs)
        return model.manifest.outputs.associate { it.name to read(it, outputs.getValue(it.name)) }
    }

    override fun close() {
        (inputs.values + outputs.values).forEach(TensorBuffer::close)
        compiled.close()
    }

    private fun write(name: String, tensor: Tensor, buffer: TensorBuffer) = when (tensor) {
        is FloatTensor -> buffer.writeFloat(tensor.data)
        is LongTensor -> buffer.writeInt(IntArray(tensor.data.size) { narrow(name, tensor.data[it]) })
    }

    private fun narrow(name: String, value: Long): Int =
        if (value == value.toInt().toLong()) value.toInt() else throw EdgekitException("the input '$name' has the value $value, but LiteRT takes integers of 32 bits")

    private fun read(info: TensorInfo, buffer: TensorBuffer): Tensor {
        val shape = model.manifest.shape(info)
        return when (info.dtype) {
            "float32" -> FloatTensor(shape, buffer.readFloat())
            "int64", "int32" -> LongTensor(shape, buffer.readInt().let { read -> LongArray(read.size) { read[it].toLong() } })
            else -> throw EdgekitException("the output '${info.name}' has the type ${info.dtype}, which is not supported")
        }
    }
}
