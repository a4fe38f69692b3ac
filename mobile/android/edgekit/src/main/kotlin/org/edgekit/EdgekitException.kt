package org.edgekit

/** An error of the bundle, the query or the device, with a sentence for the user of the app, in one line. */
open class EdgekitException(message: String, cause: Throwable? = null) : Exception(message.replace(BREAK, " "), cause) {
    private companion object {
        /** What a name out of a manifest may hold and a line may not. */
        val BREAK = Regex("[\\p{Cc}\\u2028\\u2029]+")
    }
}
