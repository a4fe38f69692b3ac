package org.edgekit.android

import java.io.File
import org.edgekit.EdgekitException
import org.edgekit.Model
import org.edgekit.ModelBundle
import org.edgekit.Runner

/** Opens a model in the runtime of its target. The error names the runtime that the app does not link. */
object Runners {
    fun open(bundle: ModelBundle, target: String, threads: Int = defaultThreads()): Runner {
        val model = bundle.models[target]
            ?: throw EdgekitException("the bundle has no model '$target': possible are ${bundle.models.keys.joinToString()}")
        return open(model, bundle.file(model), threads)
    }

    /** Open a model whose [file] was verified. */
    fun open(model: Model, file: File, threads: Int = defaultThreads()): Runner {
        val target = model.manifest.target
        try {
            return opened(model, file, threads)
        } catch (missing: NoClassDefFoundError) {
            throw EdgekitException("the app does not link the runtime for '$target': add ${library(target)} to its build.gradle.kts", missing)
        }
    }

    /** The number of fast cores of most phones; slow cores make a run slower. */
    fun defaultThreads(): Int = (Runtime.getRuntime().availableProcessors() / 2).coerceIn(1, 4)

    private fun opened(model: Model, file: File, threads: Int): Runner = when {
        model.manifest.target == "torch-mobile" -> PyTorchMobileRunner(model, file, threads)
        model.manifest.target.startsWith("executorch") -> ExecuTorchRunner(model, file, threads)
        model.manifest.target.startsWith("litert") -> LiteRtRunner(model, file, threads)
        model.manifest.target.startsWith("mnn") -> MnnRunner(model, file, threads)
        model.manifest.target.startsWith("onnx") -> OnnxRuntimeRunner(model, file, threads)
        else -> throw EdgekitException("the target '${model.manifest.target}' does not run on Android")
    }

    private fun library(target: String): String = when {
        target == "torch-mobile" -> "org.pytorch:pytorch_android_lite"
        target.startsWith("executorch") -> "org.pytorch:executorch-android"
        target.startsWith("litert") -> "com.google.ai.edge.litert:litert"
        target.startsWith("mnn") -> "MNN's Java classes (mobile/android/README.md says where they are)"
        else -> "com.microsoft.onnxruntime:onnxruntime-android"
    }
}
