package org.edgekit.bench

import android.app.Activity
import android.app.Instrumentation
import android.content.Context
import android.content.Intent
import android.content.IntentFilter
import android.os.BatteryManager
import android.os.Build
import android.os.Bundle
import android.os.PowerManager
import java.io.File
import java.io.IOException
import java.util.Locale
import org.edgekit.EdgekitException
import org.edgekit.android.Runners
import org.edgekit.android.deviceName
import org.edgekit.android.hostFacts

/**
 * Answers the pack in a folder: `am instrument -w -r -e pack FOLDER org.edgekit.bench/.BenchInstrumentation`.
 *
 * Tells its progress as the status `progress`. The result lies in the app's media folder, which adb may read, under the name
 * of the pack's folder; what kept it from one is `error`, a sentence.
 */
class BenchInstrumentation : Instrumentation() {
    private var arguments = Bundle()
    private var told = 0L

    override fun onCreate(arguments: Bundle?) {
        super.onCreate(arguments)
        this.arguments = arguments ?: Bundle()
        start()
    }

    override fun onStart() {
        super.onStart()
        val said = Bundle()
        val code = try {
            said.putString("result", answered().path)
            Activity.RESULT_OK
        } catch (error: EdgekitException) {
            refused(said, error.message.orEmpty())
        } catch (error: IOException) {
            refused(said, firstLine(error))
        } catch (error: OutOfMemoryError) {
            refused(said, "the phone has too little memory (${firstLine(error)})")
        }
        finish(code, said)
    }

    private fun answered(): File {
        val folder = File(arguments.getString("pack") ?: throw EdgekitException("no pack is named: -e pack FOLDER"))
        tell("reading the pack")
        val media = targetContext.externalMediaDirs.firstOrNull() ?: throw EdgekitException("the phone's storage is not there")
        media.listFiles()?.forEach(File::deleteRecursively) // what a run left that was ended
        val out = File(media, folder.name)
        if (!out.mkdirs()) throw EdgekitException("the app cannot make a folder on the phone's storage")
        return PackRun(Pack(folder), out, AndroidDevice(targetContext), Runners::open) { tell(it) }.write()
    }

    private fun refused(said: Bundle, why: String): Int {
        said.putString("error", why)
        return Activity.RESULT_CANCELED
    }

    /** Tell what is going on, not more often than a person reads. */
    private fun tell(text: String) {
        val now = System.nanoTime()
        if (told != 0L && now - told < EVERY) return
        told = now
        sendStatus(0, Bundle().apply { putString("progress", text) })
    }

    private companion object {
        const val EVERY = 2_000_000_000L // nanoseconds
    }
}

/** This phone, by Android's own words. */
private class AndroidDevice(private val context: Context) : Device {
    override val name: String = plain(deviceName())

    override val facts: Map<String, String> = hostFacts().minus("device").mapValues { plain(it.value) }

    override fun state(): Map<String, String> = mapOf("thermal state" to thermal(), "battery" to battery())

    private fun thermal(): String {
        if (Build.VERSION.SDK_INT < Build.VERSION_CODES.Q) return "not told by this Android"
        val status = (context.getSystemService(Context.POWER_SERVICE) as PowerManager).currentThermalStatus
        return STATES.getOrElse(status) { "state $status" }
    }

    private fun battery(): String {
        val tenths = context.registerReceiver(null, IntentFilter(Intent.ACTION_BATTERY_CHANGED))?.getIntExtra(BatteryManager.EXTRA_TEMPERATURE, 0) ?: 0
        return if (tenths == 0) "not told by this Android" else "%.1f \u00b0C".format(Locale.ROOT, tenths / 10.0)
    }

    /** In one line, and without commas, which separate what a result says of its device. */
    private fun plain(text: String): String = text.filterNot { it.isISOControl() || it == ',' }.take(200)

    private companion object {
        /** PowerManager's THERMAL_STATUS_NONE and so on. */
        val STATES = listOf("not throttled", "throttled lightly", "throttled moderately", "throttled severely", "throttled critically", "an emergency", "shutting down")
    }
}
