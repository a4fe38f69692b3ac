package org.edgekit

import java.io.File

/** Remembers in a file that something was verified: what it was, in a [text] that changes with it. */
class Seal(private val file: File, private val text: String) {
    /** Whether it was verified, and is the same since. */
    val holds: Boolean get() = file.isFile && file.readText() == text

    /** Remember it; where storage is full, nothing is, and it is verified again the next time. */
    fun write() {
        try {
            file.parentFile?.mkdirs()
            file.writeText(text)
        } catch (full: java.io.IOException) {
            file.delete()
        }
    }
}
