package com.google.ai.edge.litert

enum class Accelerator { CPU, GPU, NPU }

abstract class JniHandle : AutoCloseable {
    override fun close() = Unit
}

class TensorBuffer private constructor() : JniHandle() {
    fun writeFloat(data: FloatArray): Unit = throw RuntimeException("stub")

    fun writeInt(data: IntArray): Unit = throw RuntimeException("stub")

    fun readFloat(): FloatArray = throw RuntimeException("stub")

    fun readInt(): IntArray = throw RuntimeException("stub")
}

class CompiledModel private constructor() : JniHandle() {
    data class CpuOptions(val numThreads: Int? = null, val xnnPackFlags: Int? = null, val xnnPackWeightCachePath: String? = null)

    class Options(vararg accelerators: Accelerator) {
        var cpuOptions: CpuOptions? = null
    }

    fun createInputBuffer(inputName: String, signature: String? = null): TensorBuffer = throw RuntimeException("stub")

    fun createOutputBuffer(outputName: String, signature: String? = null): TensorBuffer = throw RuntimeException("stub")

    fun run(inputs: Map<String, TensorBuffer>, outputs: Map<String, TensorBuffer>, signature: String? = null): Unit = throw RuntimeException("stub")

    companion object {
        @JvmStatic
        @JvmOverloads
        fun create(filePath: String, options: Options = Options(Accelerator.CPU), optionalEnv: Environment? = null): CompiledModel = throw RuntimeException("stub")
    }
}

class Environment private constructor() : JniHandle()
