package org.edgekit.reactnative

import android.graphics.ImageDecoder
import android.net.Uri
import com.facebook.react.bridge.Arguments
import com.facebook.react.bridge.Promise
import com.facebook.react.bridge.ReactApplicationContext
import com.facebook.react.bridge.ReadableArray
import com.facebook.react.bridge.WritableArray
import com.facebook.react.bridge.WritableMap
import java.io.File
import java.io.IOException
import java.net.URI
import java.util.Base64
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.AtomicInteger
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.SupervisorJob
import kotlinx.coroutines.cancel
import kotlinx.coroutines.launch
import org.edgekit.Answer
import org.edgekit.Box
import org.edgekit.CaseReport
import org.edgekit.EdgekitException
import org.edgekit.FolderSource
import org.edgekit.InputSize
import org.edgekit.ModelBundle
import org.edgekit.Picture
import org.edgekit.Query
import org.edgekit.RunnerThread
import org.edgekit.android.AssetSource
import org.edgekit.android.Runners
import org.edgekit.android.toPicture
import org.edgekit.selfTest

/** edgekit's Kotlin library for JavaScript: opens runners, names them by numbers, and settles promises. */
class EdgekitModule(context: ReactApplicationContext) : NativeEdgekitSpec(context) {
    private class Opened(val bundle: ModelBundle, val runner: RunnerThread)

    private val opened = ConcurrentHashMap<Int, Opened>()
    private val lastNumber = AtomicInteger()
    private val scope = CoroutineScope(SupervisorJob() + Dispatchers.Default)

    override fun load(source: String, target: String?, selfTest: Boolean, promise: Promise) = settle(promise) {
        val bundle = openBundle(source)
        coded("HASH_MISMATCH") { bundle.verifyOnce() }
        val runner = coded("BACKEND") {
            val name = target ?: bundle.models.keys.firstOrNull() ?: throw EdgekitException("the bundle '$source' has no model: export the assets again")
            RunnerThread.open { Runners.open(bundle, name) }
        }
        try {
            val cases = if (selfTest) coded("BACKEND") { runner.use { selfTest(bundle) } } else emptyList()
            cases.firstOrNull { !it.passed }?.let { throw CodedException("SELF_TEST", "this device differs from the reference in '${it.name}': ${it.reason}") }
            val facts = info(bundle, runner, cases)
            val number = lastNumber.incrementAndGet()
            opened[number] = Opened(bundle, runner)
            facts.apply { putInt("runner", number) }
        } catch (failure: Throwable) {
            runner.close()
            throw failure
        }
    }

    override fun run(
        runner: Double,
        image: String,
        pixels: ReadableArray,
        query: String?,
        vector: ReadableArray,
        k: Double,
        size: ReadableArray,
        promise: Promise,
    ) = settle(promise) {
        val own = find(runner)
        val start = System.nanoTime()
        val picture = coded("IMAGE") { if (pixels.size() == 0) decode(image) else unpack(image, pixels.getInt(0), pixels.getInt(1)) }
        val encoded = coded("QUERY") {
            val encoder = own.bundle.encoder
            when {
                query == null -> Query(FloatArray(vector.size()) { vector.getDouble(it).toFloat() }, emptyList())
                encoder == null -> throw EdgekitException("the bundle has no vocabulary: pass the query as a Float32Array")
                else -> encoder.encode(query)
            }
        }
        val inputSize = if (size.size() == 0) null else InputSize(size.getInt(0), size.getInt(1))
        val answer = coded("BACKEND") { own.runner.answer(picture, encoded.vector, k.toInt(), inputSize) }
        result(answer, encoded.known, answer.isPresent(own.bundle.presenceThreshold), (System.nanoTime() - start) / 1e6)
    }

    override fun selfTest(runner: Double, promise: Promise) = settle(promise) {
        val own = find(runner)
        list(coded("BACKEND") { own.runner.use { selfTest(own.bundle) } }) { pushMap(case(it)) }
    }

    override fun dispose(runner: Double, promise: Promise) = settle(promise) {
        opened.remove(runner.toInt())?.runner?.close()
        null
    }

    /** The app reloads its JavaScript, or ends: nobody knows the runners' numbers any more. */
    override fun invalidate() {
        scope.cancel()
        opened.keys.forEach { opened.remove(it)?.runner?.close() }
        super.invalidate()
    }

    private fun find(runner: Double): Opened =
        opened[runner.toInt()] ?: throw CodedException("USAGE", "the runner was disposed: load the bundle again")

    private fun openBundle(source: String): ModelBundle = try {
        val isFolder = source.startsWith("file:")
        coded("MANIFEST") { ModelBundle(if (isFolder) FolderSource(File(URI(source))) else AssetSource(reactApplicationContext, "edgekit/$source")) }
    } catch (failure: CodedException) {
        if (failure.cause !is IOException) throw failure
        throw CodedException("ASSET_MISSING", "there is no bundle '$source': run edgekit assets android", failure)
    }

    private fun decode(address: String): Picture {
        val file = ImageDecoder.createSource(reactApplicationContext.contentResolver, Uri.parse(address))
        val bitmap = ImageDecoder.decodeBitmap(file) { decoder, info, _ ->
            decoder.setAllocator(ImageDecoder.ALLOCATOR_SOFTWARE)
            // 1024 pixels are enough for a model input of 224, and twelve megapixels need 48 MB.
            decoder.setTargetSampleSize(maxOf(1, maxOf(info.size.width, info.size.height) / 1024))
        }
        return bitmap.toPicture()
    }

    /** RGB or RGBA bytes in Base64 as a picture. */
    private fun unpack(base64: String, height: Int, width: Int): Picture {
        val bytes = Base64.getDecoder().decode(base64)
        if (bytes.size.toLong() != 4L * height * width) return Picture(height, width, bytes)
        fun byte(at: Int): Int = bytes[at].toInt() and 255
        val argb = IntArray(height * width) { (byte(4 * it + 3) shl 24) or (byte(4 * it) shl 16) or (byte(4 * it + 1) shl 8) or byte(4 * it + 2) }
        return Picture.onWhite(height, width, argb)
    }

    private fun info(bundle: ModelBundle, runner: RunnerThread, cases: List<CaseReport>): WritableMap = Arguments.createMap().apply {
        val manifest = runner.model.manifest
        putString("name", bundle.name)
        putString("target", manifest.target)
        putArray("targets", list(bundle.models.keys) { pushString(it) })
        putString("precision", manifest.precision)
        putString("device", runner.device)
        putString("reference", bundle.referenceDevice)
        val verdicts = list(manifest.verdicts) { verdict ->
            pushMap(Arguments.createMap().apply { putString("place", verdict.place); putString("status", verdict.status) })
        }
        putArray("verdicts", verdicts)
        putArray("words", list(bundle.encoder?.words.orEmpty()) { pushString(it) })
        bundle.presenceThreshold.let { if (it == null) putNull("threshold") else putDouble("threshold", it) }
        putArray("cases", list(cases) { pushMap(case(it)) })
    }

    private fun result(answer: Answer, known: List<String>, isPresent: Boolean?, ms: Double): WritableMap = Arguments.createMap().apply {
        val (part, place) = answer.grid.placement
        putArray("relevance", list(answer.relevance.asIterable()) { pushDouble(it.toDouble()) })
        putArray("budgets", list(answer.budgets.asIterable()) { pushDouble(it.toDouble()) })
        putArray("indices", list(answer.indices.asIterable()) { pushDouble(it.toDouble()) })
        putInt("rows", answer.grid.rows)
        putInt("columns", answer.grid.columns)
        putArray("size", list(listOf(answer.grid.size.height, answer.grid.size.width)) { pushInt(it) })
        putArray("part", box(part))
        putArray("place", box(place))
        putArray("known", list(known) { pushString(it) })
        if (isPresent == null) putNull("present") else putBoolean("present", isPresent)
        putDouble("ms", ms)
    }

    private fun case(report: CaseReport): WritableMap = Arguments.createMap().apply {
        putString("name", report.name)
        putBoolean("pass", report.passed)
        putString("output", report.output)
        putString("metric", report.metric)
        putDouble("error", report.error)
        putDouble("limit", report.limit)
        putString("reason", report.reason)
    }

    private fun box(box: Box): WritableArray = list(listOf(box.top, box.left, box.height, box.width)) { pushInt(it) }

    private fun <T> list(values: Iterable<T>, push: WritableArray.(T) -> Unit): WritableArray =
        Arguments.createArray().apply { values.forEach { push(it) } }

    /** Work off JavaScript's thread, and tell the promise how it ended. */
    private fun settle(promise: Promise, work: suspend () -> Any?) {
        scope.launch {
            try {
                promise.resolve(work())
            } catch (failure: Throwable) {
                promise.reject((failure as? CodedException)?.code ?: "BACKEND", failure.message ?: failure.toString(), failure)
            }
        }
    }
}

/** A failure with a code of `@edgekit/web/types`. */
private class CodedException(val code: String, message: String, cause: Throwable? = null) : EdgekitException(message, cause)

/** Give what a step throws the step's code. */
private inline fun <T> coded(code: String, step: () -> T): T = try {
    step()
} catch (failure: CodedException) {
    throw failure
} catch (failure: Throwable) {
    throw CodedException(code, failure.message ?: failure.toString(), failure)
}
