package org.edgekit.android

import com.taobao.android.mnn.MNNNetInstance
import java.io.File
import org.edgekit.EdgekitException
import org.edgekit.FloatTensor
import org.edgekit.LongTensor
import org.edgekit.Model
import org.edgekit.Runner
import org.edgekit.Tensor
import org.edgekit.TensorInfo

/**
 * A `.mnn` file in MNN, on the CPU, through the Java classes of MNN's sources. Its sizes are set anew where they change.
 *
 * Integers have 32 bits in the file, whatever the manifest declares: they are converted here. MNN's classes tell of no error of
 * a run, after which outputs are empty: these are refused. Sessions, which they have alone, run no loops and no branches.
 */
class MnnRunner(override val model: Model, file: File, private val threads: Int) : Runner {
    private val net = MNNNetInstance.createFromFile(file.path) ?: throw EdgekitException("MNN refuses '${file.name}': its log says why")
    private val session = net.createSession(MNNNetInstance.Config().also { it.numThread = threads }) ?: throw EdgekitException("MNN makes no session of '${file.name}': its log says why")
    private val inputs = model.manifest.inputs.associate { it.name to session.getInput(it.name) } // null: nothing reads it

    override val device: String get() = "MNN, CPU, $threads threads"

    override fun run(inputs: Map<String, Tensor>): Map<String, Tensor> {
        model.manifest.check(inputs)
        resize(inputs)
        for ((name, own) in this.inputs) {
            when (val tensor = inputs.getValue(name)) {
                is FloatTensor -> own?.setInputFloatData(tensor.data)
                is LongTensor -> own?.setInputIntData(IntArray(tensor.data.size) { narrow(name, tensor.data[it]) })
            }
        }
        session.run()
        return model.manifest.outputs.associate { it.name to read(it) }
    }

    override fun close() = net.release()

    private fun resize(inputs: Map<String, Tensor>) {
        val changed = this.inputs.filter { (name, own) -> own != null && !own.dimensions.contentEquals(inputs.getValue(name).shape) }
        changed.forEach { (name, own) -> own?.reshape(inputs.getValue(name).shape) }
        if (changed.isNotEmpty() || !sized) session.reshape()
        sized = true
    }

    private var sized = false

    private fun narrow(name: String, value: Long): Int =
        if (value == value.toInt().toLong()) value.toInt() else throw EdgekitException("the input '$name' has the value $value, but MNN takes integers of 32 bits")

    private fun read(info: TensorInfo): Tensor {
        val own = session.getOutput(info.name) ?: throw EdgekitException("MNN has no output '${info.name}': export the assets again")
        val shape = own.dimensions
        val count = shape.fold(1L) { all, edge -> all * edge }
        if (count == 0L || shape.size != info.shape.size) throw noAnswer(info)
        val tensor = when (info.dtype) {
            "float32" -> own.floatData.takeIf { it.size.toLong() == count }?.let { FloatTensor(shape, it.copyOf()) }
            "int64", "int32" -> own.intData.takeIf { it.size.toLong() == count }?.let { read -> LongTensor(shape, LongArray(read.size) { read[it].toLong() }) }
            else -> throw EdgekitException("the output '${info.name}' has the type ${info.dtype}, which is not supported")
        }
        return tensor ?: throw noAnswer(info)
    }

    private fun noAnswer(info: TensorInfo) =
        EdgekitException("MNN gave no answer for '${info.name}': its log says why, and the manifest's notes whether its sessions run the model")
}
