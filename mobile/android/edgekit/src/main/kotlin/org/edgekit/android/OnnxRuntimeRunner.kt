package org.edgekit.android

import ai.onnxruntime.OnnxTensor
import ai.onnxruntime.OrtEnvironment
import ai.onnxruntime.OrtSession
import ai.onnxruntime.TensorInfo
import java.io.File
import java.nio.FloatBuffer
import java.nio.LongBuffer
import org.edgekit.EdgekitException
import org.edgekit.FloatTensor
import org.edgekit.LongTensor
import org.edgekit.Model
import org.edgekit.Runner
import org.edgekit.Tensor

/** An `.onnx` file in ONNX Runtime, on the CPU execution provider, which every phone has. */
class OnnxRuntimeRunner(override val model: Model, file: File, private val threads: Int) : Runner {
    private val environment = OrtEnvironment.getEnvironment()
    private val session: OrtSession =
        OrtSession.SessionOptions().use { options ->
            options.setIntraOpNumThreads(threads)
            environment.createSession(file.path, options)
        }

    override val device: String get() = "ONNX Runtime ${environment.version}, CPU, $threads threads"

    override fun run(inputs: Map<String, Tensor>): Map<String, Tensor> {
        model.manifest.check(inputs)
        val tensors = model.manifest.inputs.associate { it.name to onnx(inputs.getValue(it.name)) }
        try {
            session.run(tensors).use { answer ->
                return model.manifest.outputs.associate { info ->
                    val value = answer.get(info.name).orElse(null) as? OnnxTensor
                    info.name to plain(value ?: throw EdgekitException("ONNX Runtime returned no tensor '${info.name}': export the assets again"))
                }
            }
        } finally {
            tensors.values.forEach(OnnxTensor::close)
        }
    }

    override fun close() = session.close()

    private fun onnx(tensor: Tensor): OnnxTensor {
        val shape = tensor.shape.map(Int::toLong).toLongArray()
        return when (tensor) {
            is FloatTensor -> OnnxTensor.createTensor(environment, FloatBuffer.wrap(tensor.data), shape)
            is LongTensor -> OnnxTensor.createTensor(environment, LongBuffer.wrap(tensor.data), shape)
        }
    }

    private fun plain(tensor: OnnxTensor): Tensor {
        val info = tensor.info as TensorInfo
        val shape = info.shape.map(Long::toInt).toIntArray()
        val floats = tensor.floatBuffer
        if (floats != null) return FloatTensor(shape, FloatArray(floats.remaining()).also(floats::get))
        val longs = tensor.longBuffer ?: throw EdgekitException("an output has the type ${info.type}, which is not supported")
        return LongTensor(shape, LongArray(longs.remaining()).also(longs::get))
    }
}
