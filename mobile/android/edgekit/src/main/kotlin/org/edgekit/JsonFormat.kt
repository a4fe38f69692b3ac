package org.edgekit

import kotlinx.serialization.json.Json

/** The format of the files that edgekit writes. Fields that an app does not use are ignored. */
internal val JsonFormat: Json = Json { ignoreUnknownKeys = true }

/** Decode a JSON file; `name` is its name in error messages, which contain the parser's own description. */
internal inline fun <reified T> decodeJson(text: String, name: String): T = try {
    JsonFormat.decodeFromString<T>(text)
} catch (error: IllegalArgumentException) { // SerializationException, or a `require` of the decoded class
    throw EdgekitException("$name is invalid (${error.message.orEmpty().lineSequence().first()}): export the assets again", error)
}
