package org.edgekit.android

import org.edgekit.Bundle
import org.edgekit.EdgekitException
import org.edgekit.Model
import org.edgekit.Runner

/** Opens a model in the runtime that its target is for. Runtimes that the app does not link are named in the error. */
object Runners {
    fun open(bundle: Bundle, target: String, threads: Int = defaultThreads()): Runner {
        val model = bundle.models[target]
            ?: throw EdgekitException("the bundle has no model '$target': it has ${bundle.models.keys.joinToString()}")
        try {
            return open(bundle, model, threads)
        } catch (missing: NoClassDefFoundError) {
            throw EdgekitException("the app links no runtime for '$target': add ${library(target)} to its build.gradle.kts", missing)
        }
    }

    /** The big cores of most phones; the little ones slow a run down. */
    fun defaultThreads(): Int = (Runtime.getRuntime().availableProcessors() / 2).coerceIn(1, 4)

    private fun open(bundle: Bundle, model: Model, threads: Int): Runner = when {
        model.manifest.target == "torch-mobile" -> PyTorchMobileRunner(model, bundle.file(model), threads)
        model.manifest.target.startsWith("executorch") -> ExecuTorchRunner(model, bundle.file(model), threads)
        model.manifest.target.startsWith("onnx") -> OnnxRuntimeRunner(model, bundle.file(model), threads)
        else -> throw EdgekitException("no runner on Android takes '${model.manifest.target}'")
    }

    private fun library(target: String): String = when {
        target == "torch-mobile" -> "org.pytorch:pytorch_android_lite"
        target.startsWith("executorch") -> "org.pytorch:executorch-android"
        else -> "com.microsoft.onnxruntime:onnxruntime-android"
    }
}
