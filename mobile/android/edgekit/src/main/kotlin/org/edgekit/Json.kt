package org.edgekit

/** Something that is wrong with the bundle, the query or the device, in a sentence for the user of the app. */
open class EdgekitException(message: String, cause: Throwable? = null) : Exception(message, cause)

/**
 * JSON (RFC 8259) to plain values: maps, lists, strings, doubles, booleans and null. No Android class, no library.
 *
 * A reader of typed fields that says which one is wrong: `Json.parse(text, "manifest.json")["files"].list.map { it["path"].text }`.
 */
class Json private constructor(private val value: Any?, private val where: String) {
    operator fun get(key: String): Json = Json(table()[key], if (where.endsWith(":")) "$where $key" else "$where.$key")

    val present: Boolean get() = value != null
    val text: String get() = value as? String ?: wrong("a text")
    val number: Double get() = value as? Double ?: wrong("a number")
    val int: Int get() = number.let { if (it == Math.rint(it) && it in -2e9..2e9) it.toInt() else wrong("an integer") }
    val long: Long get() = number.let { if (it == Math.rint(it) && it in -9e15..9e15) it.toLong() else wrong("an integer") }
    val bool: Boolean get() = value as? Boolean ?: wrong("true or false")
    val isText: Boolean get() = value is String
    val list: List<Json> get() = (value as? List<*> ?: wrong("a list")).mapIndexed { i, item -> Json(item, "$where[$i]") }
    val keys: Set<String> get() = table().keys.map { it as String }.toSet()

    fun wrong(wanted: String): Nothing = throw EdgekitException("$where should be $wanted: export the assets again")

    private fun table(): Map<*, *> = value as? Map<*, *> ?: wrong("an object")

    companion object {
        /** Parse a text; `name` is what errors call it. */
        fun parse(text: String, name: String): Json = Json(Parser(text, name).document(), "$name:")

        /** Write maps, lists, strings, numbers, booleans and null. A number that is not finite becomes null. */
        fun write(value: Any?): String = StringBuilder().also { put(value, it) }.toString()

        private fun put(value: Any?, out: StringBuilder) {
            when (value) {
                null -> out.append("null")
                is String -> quote(value, out)
                is Boolean -> out.append(value)
                is Double -> if (value.isFinite()) out.append(value) else out.append("null")
                is Float -> put(value.toDouble(), out)
                is Number -> out.append(value)
                is Map<*, *> -> {
                    out.append('{')
                    value.entries.forEachIndexed { i, (key, item) ->
                        if (i > 0) out.append(',')
                        quote(key as String, out)
                        out.append(':')
                        put(item, out)
                    }
                    out.append('}')
                }
                is Iterable<*> -> {
                    out.append('[')
                    value.forEachIndexed { i, item ->
                        if (i > 0) out.append(',')
                        put(item, out)
                    }
                    out.append(']')
                }
                else -> throw IllegalArgumentException("no JSON for ${value::class}")
            }
        }

        private fun quote(text: String, out: StringBuilder) {
            out.append('"')
            for (c in text) {
                when {
                    c == '"' || c == '\\' -> out.append('\\').append(c)
                    c < ' ' -> out.append("\\u%04x".format(c.code))
                    else -> out.append(c)
                }
            }
            out.append('"')
        }
    }
}

private class Parser(private val text: String, private val name: String) {
    private var at = 0

    fun document(): Any? {
        val value = value(0)
        skip()
        if (at != text.length) fail("more text after the end")
        return value
    }

    private fun value(depth: Int): Any? {
        if (depth > DEEPEST) fail("nested too deeply")
        skip()
        return when (peek()) {
            '{' -> table(depth)
            '[' -> list(depth)
            '"' -> string()
            't' -> word("true", true)
            'f' -> word("false", false)
            'n' -> word("null", null)
            else -> number()
        }
    }

    private fun table(depth: Int): Map<String, Any?> {
        val made = LinkedHashMap<String, Any?>()
        at++
        skip()
        if (peek() == '}') return made.also { at++ }
        while (true) {
            skip()
            if (peek() != '"') fail("a name expected")
            val key = string()
            skip()
            expect(':')
            made[key] = value(depth + 1)
            skip()
            if (peek() == '}') return made.also { at++ }
            expect(',')
        }
    }

    private fun list(depth: Int): List<Any?> {
        val made = ArrayList<Any?>()
        at++
        skip()
        if (peek() == ']') return made.also { at++ }
        while (true) {
            made.add(value(depth + 1))
            skip()
            if (peek() == ']') return made.also { at++ }
            expect(',')
        }
    }

    private fun string(): String {
        val made = StringBuilder()
        at++
        while (true) {
            val c = peek()
            at++
            when {
                c == '"' -> return made.toString()
                c == '\\' -> made.append(escaped())
                c < ' ' -> fail("a control character in a text")
                else -> made.append(c)
            }
        }
    }

    private fun escaped(): Char {
        val c = peek()
        at++
        return when (c) {
            '"', '\\', '/' -> c
            'b' -> '\b'
            'f' -> '\u000c'
            'n' -> '\n'
            'r' -> '\r'
            't' -> '\t'
            'u' -> {
                if (at + 4 > text.length) fail("a cut \\u")
                val code = text.substring(at, at + 4).toIntOrNull(16) ?: fail("a wrong \\u")
                at += 4
                code.toChar()
            }
            else -> fail("an unknown escape")
        }
    }

    private fun number(): Double {
        val found = NUMBER.matchAt(text, at)?.value ?: fail("a value expected")
        at += found.length
        return found.toDouble()
    }

    private fun <T> word(word: String, value: T): T {
        if (!text.startsWith(word, at)) fail("a value expected")
        at += word.length
        return value
    }

    private fun peek(): Char = if (at < text.length) text[at] else fail("it ends too early")

    private fun expect(c: Char) {
        if (peek() != c) fail("'$c' expected")
        at++
    }

    private fun skip() {
        while (at < text.length && text[at] in " \t\n\r") at++
    }

    private fun fail(what: String): Nothing =
        throw EdgekitException("$name is no JSON ($what at character $at): export the assets again")

    private companion object {
        const val DEEPEST = 64
        val NUMBER = Regex("-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+-]?[0-9]+)?")
    }
}
