package org.edgekit

/** An error of the bundle, the query or the device, with a sentence for the user of the app. */
open class EdgekitException(message: String, cause: Throwable? = null) : Exception(message, cause)
