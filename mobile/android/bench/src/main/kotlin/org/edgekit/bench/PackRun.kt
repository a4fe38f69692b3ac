package org.edgekit.bench

import java.io.File
import java.security.MessageDigest
import java.util.zip.ZipEntry
import java.util.zip.ZipOutputStream
import org.edgekit.EdgekitException
import org.edgekit.Model
import org.edgekit.ModelBundle
import org.edgekit.ModelCopy
import org.edgekit.Runner
import org.edgekit.Timing

/** The phone: its name in words, and what of it changes while it runs (temperature, throttling), by name. */
interface Device {
    val name: String

    /** Facts that stay: its system, its processor. */
    val facts: Map<String, String>

    fun state(): Map<String, String>
}

/**
 * Answers a pack, and writes its sealed `result.zip` into [out], which nothing else uses.
 *
 * What this app or phone lacks stands in the result as `missing`, what the runtime said of the artifact as `error`.
 */
class PackRun(
    private val pack: Pack,
    private val out: File,
    private val device: Device,
    private val open: (Model, File) -> Runner,
    private val tell: (String) -> Unit,
) {
    fun write(): File {
        val answered = File(out, "answers.npz")
        val before = device.state()
        val run = mapOf("place" to pack.place, "target" to pack.target) + outcome(answered)
        val after = device.state()
        val changes = before.mapValues { (name, then) -> if (after[name] == then) then else "$then, then ${after[name]}" }
        val whole = if ("device" in run) run + mapOf("facts" to device.facts + changes) + sealed(answered) else run
        return archive(whole, answered)
    }

    private fun outcome(answered: File): Map<String, Any?> = try {
        pack.model.manifest.run { inputs + outputs }.firstOrNull { it.dtype !in TAKEN }?.let {
            throw EdgekitException("the Android library takes and gives float32 and int64 alone, and '${it.name}' is ${it.dtype}")
        }
        evaluated(answered)
    } catch (error: PackException) {
        throw error
    } catch (missing: EdgekitException) {
        mapOf("missing" to missing.message)
    } catch (missing: LinkageError) {
        mapOf("missing" to "the app has no such runtime for this processor (${firstLine(missing)})")
    } catch (missing: OutOfMemoryError) {
        mapOf("missing" to "the phone has too little memory for it (${firstLine(missing)})")
    } catch (error: Exception) {
        mapOf("error" to firstLine(error))
    }

    private fun evaluated(answered: File): Map<String, Any?> {
        val answers = Answers(out, pack.model.manifest, pack.rowAxes)
        val started = startUp()
        tell("opened")
        return open(pack.model, pack.entry).use { runner ->
            val evaluation = Evaluation(pack, runner, answers, tell).apply { run() }
            tell("writing the answers")
            answers.write(answered)
            mapOf(
                "device" to "${runner.device}, ${device.name}",
                "failures" to evaluation.failures,
                "again" to evaluation.again,
                "repeated" to evaluation.repeated,
                "timed_answers" to evaluation.timedAnswers,
                "devices" to timed(evaluation) { runner.device },
                "milliseconds" to timed(evaluation) { it.milliseconds.toList() },
                "start_up" to started,
            )
        }
    }

    private fun timed(evaluation: Evaluation, what: (Timing) -> Any): Map<String, Any> =
        evaluation.timing?.let { mapOf("run" to what(it)) } ?: emptyMap()

    /** What this process, which has done nothing else, needs to open the artifact and to answer once. */
    private fun startUp(): Map<String, Any?> {
        open(pack.model, pack.entry).close() // the runtime's own libraries are no part of the artifact
        var opened = 0L
        var answered = 0L
        val began = System.nanoTime()
        open(pack.model, pack.entry).use { runner ->
            opened = System.nanoTime()
            var asked = opened
            pack.batches.first().ask(0..0) { _, inputs ->
                asked = System.nanoTime()
                runner.run(inputs)
            }
            answered = System.nanoTime() - (asked - opened) // without the time that reading the question took
        }
        return mapOf("open_ms" to (opened - began) / 1e6, "first_answer_ms" to (answered - began) / 1e6, "peak_memory" to peakMemory())
    }

    private fun peakMemory(): Long? = File("/proc/self/status").takeIf(File::canRead)?.useLines { lines ->
        lines.firstOrNull { it.startsWith("VmHWM:") }?.split(Regex("\\s+"))?.get(1)?.toLongOrNull()?.times(1024)
    }

    private fun sealed(answered: File): Map<String, Any> = mapOf("answers" to entry(), "answers_sha256" to ModelCopy.sha256(answered))

    private fun entry() = "answers/${pack.place}/${pack.target}.npz"

    /** The record and the answers, with the record's seal; written beside, then renamed. */
    private fun archive(run: Map<String, Any?>, answered: File): File {
        val record = mapOf("schema_version" to 1, "pack" to pack.record, "runs" to listOf(run))
        val seal = ModelBundle.sha256(canonical(record).encodeToByteArray())
        val result = File(out, "result.zip")
        val temporary = File(out, "result.part")
        ZipOutputStream(temporary.outputStream().buffered()).use { zip ->
            if ("device" in run) {
                zip.putNextEntry(ZipEntry(entry()))
                answered.inputStream().use { it.copyTo(zip) }
                zip.closeEntry()
            }
            zip.putNextEntry(ZipEntry("result.json"))
            zip.write(canonical(record + ("sha256" to seal)).encodeToByteArray())
            zip.closeEntry()
        }
        if (!temporary.renameTo(result)) throw EdgekitException("the result could not be written to the phone's storage")
        return result
    }

    private companion object {
        val TAKEN = listOf("float32", "int64")
    }
}
