package org.edgekit.sample

import android.graphics.Bitmap
import android.graphics.ImageDecoder
import android.net.Uri
import android.os.Bundle
import android.view.View
import android.widget.AdapterView
import android.widget.ArrayAdapter
import android.widget.Button
import android.widget.EditText
import android.widget.ImageView
import android.widget.Spinner
import android.widget.TextView
import androidx.activity.result.PickVisualMediaRequest
import androidx.activity.result.contract.ActivityResultContracts
import androidx.appcompat.app.AppCompatActivity
import edgekit.generated.ArrCocTiny
import java.io.File
import java.util.concurrent.ExecutorService
import java.util.concurrent.Executors
import org.edgekit.Answer
import org.edgekit.Bench
import org.edgekit.EdgekitException
import org.edgekit.ModelBundle
import org.edgekit.Picture
import org.edgekit.Runner
import org.edgekit.android.Runners
import org.edgekit.android.hostFacts
import org.edgekit.android.toPicture
import org.edgekit.answer
import org.edgekit.inputs
import org.edgekit.resultJson
import org.edgekit.selfTest

/** Shows a picture with the relevance of its patches, and checks this device against the recorded reference. */
class MainActivity : AppCompatActivity() {
    // A runner is used from one thread: every use of it runs here.
    private val worker: ExecutorService = Executors.newSingleThreadExecutor()
    private val bundle: ModelBundle by lazy { ArrCocTiny.open(applicationContext).also { it.verifyOnce() } }
    private var runner: Runner? = null
    private var bitmap: Bitmap? = null

    private val pick = registerForActivityResult(ActivityResultContracts.PickVisualMedia()) { uri: Uri? ->
        if (uri != null) inWorker { bitmap = decode(uri).also { show(it) }; scorePicture() }
    }

    override fun onCreate(state: Bundle?) {
        super.onCreate(state)
        setContentView(R.layout.activity_main)
        val models = ArrCocTiny.Models.entries
        val spinner = findViewById<Spinner>(R.id.model)
        spinner.adapter = ArrayAdapter(this, android.R.layout.simple_spinner_dropdown_item, models.map { "${it.target}, ${it.precision}" })
        spinner.onItemSelectedListener = object : AdapterView.OnItemSelectedListener {
            override fun onItemSelected(parent: AdapterView<*>?, view: View?, position: Int, id: Long) = open(models[position].target)

            override fun onNothingSelected(parent: AdapterView<*>?) = Unit
        }
        findViewById<Button>(R.id.pick).setOnClickListener {
            pick.launch(PickVisualMediaRequest(ActivityResultContracts.PickVisualMedia.ImageOnly))
        }
        findViewById<Button>(R.id.check).setOnClickListener { inWorker(::check) }
        findViewById<EditText>(R.id.query).setOnEditorActionListener { _, _, _ -> inWorker(::scorePicture); false }
        showStatus(getString(R.string.checking))
    }

    override fun onDestroy() {
        worker.execute { runner?.close() }
        worker.shutdown()
        super.onDestroy()
    }

    private fun open(target: String) = inWorker {
        runner?.close()
        runner = Runners.open(bundle, target).also { showStatus(getString(R.string.ready, target, it.device)) }
        scorePicture()
    }

    private fun scorePicture() {
        val runner = runner ?: return
        val shown = bitmap ?: return
        val encoder = bundle.encoder ?: throw EdgekitException("the bundle has no vocabulary for queries")
        val query = encoder.encode(findViewById<EditText>(R.id.query).text.toString())
        val picture = shown.toPicture()
        val start = System.nanoTime()
        val answer = runner.answer(picture, query.vector)
        val spent = (System.nanoTime() - start) / 1e6
        show(paint(picture, answer))
        val best = answer.indices[0].toInt()
        val grid = answer.grid
        val text = if (answer.isPresent(bundle.presenceThreshold) == false) R.string.nothing else R.string.answer
        showStatus(getString(text, spent, best / grid.columns + 1, best % grid.columns + 1, answer.relevance[best], grid.rows, grid.columns))
    }

    private fun check() {
        val runner = runner ?: return
        val cases = runner.selfTest(bundle)
        val case = bundle.golden.cases.firstOrNull() ?: throw EdgekitException("the bundle has no golden vectors")
        val timing = Bench().time(runner, runner.model.inputs(case))
        val folder = File(getExternalFilesDir(null), "edgekit/${runner.model.manifest.target}").apply { mkdirs() }
        val file = File(folder, "result.json")
        file.writeText(resultJson(bundle, runner, cases, timing, "android", hostFacts()))
        val verdict = cases.firstOrNull { !it.passed }?.reason ?: "verified"
        showStatus(getString(R.string.checked, verdict, timing.percentile(50.0), file.path))
    }

    private fun decode(uri: Uri): Bitmap = ImageDecoder.decodeBitmap(ImageDecoder.createSource(contentResolver, uri)) { decoder, info, _ ->
        decoder.setAllocator(ImageDecoder.ALLOCATOR_SOFTWARE)
        // 1024 pixels are enough for a model input of 224, and twelve megapixels need 48 MB.
        decoder.setTargetSampleSize(maxOf(1, maxOf(info.size.width, info.size.height) / 1024))
    }

    /** The picture, brighter where its patches are relevant. */
    private fun paint(picture: Picture, answer: Answer): Bitmap {
        val pixels = IntArray(picture.width * picture.height) { i ->
            val patch = answer.grid.patchAt(i / picture.width, i % picture.width)
            val light = 0.25f + 0.75f * (patch?.let { answer.relevance[it] } ?: 0f)
            val rgb = (0 until 3).map { c -> ((picture.rgb[3 * i + c].toInt() and 255) * light).toInt() }
            (255 shl 24) or (rgb[0] shl 16) or (rgb[1] shl 8) or rgb[2]
        }
        return Bitmap.createBitmap(picture.width, picture.height, Bitmap.Config.ARGB_8888).apply {
            setPixels(pixels, 0, picture.width, 0, 0, picture.width, picture.height)
        }
    }

    private fun show(shown: Bitmap) = runOnUiThread { findViewById<ImageView>(R.id.picture).setImageBitmap(shown) }

    private fun showStatus(text: String) = runOnUiThread { findViewById<TextView>(R.id.status).text = text }

    private fun inWorker(work: () -> Unit) = worker.execute {
        try {
            work()
        } catch (error: Exception) {
            showStatus(error.message ?: error.toString())
        }
    }
}
