import com.facebook.react.bridge.JavaOnlyArray
import com.facebook.react.bridge.Promise
import com.facebook.react.bridge.ReactApplicationContext
import com.facebook.react.bridge.ReadableArray
import com.facebook.react.bridge.ReadableMap
import java.lang.reflect.Proxy
import kotlinx.serialization.json.Json
import kotlinx.serialization.json.JsonArray
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonNull
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.JsonPrimitive
import kotlinx.serialization.json.boolean
import kotlinx.serialization.json.contentOrNull
import kotlinx.serialization.json.double
import kotlinx.serialization.json.jsonArray
import kotlinx.serialization.json.jsonObject
import kotlinx.serialization.json.jsonPrimitive
import org.edgekit.reactnative.EdgekitPackage
import org.edgekit.reactnative.NativeEdgekitSpec

/** The Kotlin module in a process that is no phone: a call is a line of JSON with its number, and so is its answer. */
fun main() {
    val module = EdgekitPackage().getModule(NativeEdgekitSpec.NAME, ReactApplicationContext()) as NativeEdgekitSpec
    for (line in generateSequence(::readlnOrNull)) {
        val (number, name, arguments) = Json.parseToJsonElement(line).jsonArray
        val given = arguments.jsonArray
        val promise = promise(number)
        when (name.jsonPrimitive.content) {
            "load" -> module.load(given.text(0), given.textOrNull(1), given[2].jsonPrimitive.boolean, promise)
            "run" -> module.run(
                given.number(0), given.text(1), given.numbers(2), given.textOrNull(3), given.numbers(4), given.number(5), given.numbers(6), promise,
            )
            "selfTest" -> module.selfTest(given.number(0), promise)
            "dispose" -> module.dispose(given.number(0), promise)
        }
    }
    module.invalidate()
}

private fun promise(number: JsonElement): Promise =
    Proxy.newProxyInstance(Promise::class.java.classLoader, arrayOf(Promise::class.java)) { _, method, arguments ->
        val answer = if (method.name == "resolve") mapOf("value" to arguments[0]) else mapOf("code" to arguments[0], "message" to arguments[1])
        println(json(answer + ("number" to number)))
    } as Promise

private fun JsonArray.text(at: Int): String = this[at].jsonPrimitive.content

private fun JsonArray.textOrNull(at: Int): String? = this[at].jsonPrimitive.contentOrNull

private fun JsonArray.number(at: Int): Double = this[at].jsonPrimitive.double

private fun JsonArray.numbers(at: Int): ReadableArray = JavaOnlyArray.from(this[at].jsonArray.map { it.jsonPrimitive.double })

private fun json(value: Any?): JsonElement = when (value) {
    is JsonElement -> value
    is ReadableMap -> json(value.toHashMap())
    is ReadableArray -> json(value.toArrayList())
    is Map<*, *> -> JsonObject(value.entries.associate { (name, own) -> name.toString() to json(own) })
    is List<*> -> JsonArray(value.map(::json))
    is Number -> JsonPrimitive(value)
    is Boolean -> JsonPrimitive(value)
    is String -> JsonPrimitive(value)
    else -> JsonNull
}
