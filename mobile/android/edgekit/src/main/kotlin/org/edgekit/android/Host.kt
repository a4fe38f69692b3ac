package org.edgekit.android

import android.os.Build

/** The name of this device, as its maker gives it to the system: "Google Pixel 8", "samsung SM-S921B". */
fun deviceName(): String = "${Build.MANUFACTURER} ${Build.MODEL}"

/** Device, system and processor, as results have them; the processor is its chip's name from Android 12 on, else its architecture. */
fun hostFacts(): Map<String, String> = mapOf(
    "device" to deviceName(),
    "system" to "Android ${Build.VERSION.RELEASE} API level ${Build.VERSION.SDK_INT}",
    "processor" to processor(),
)

private fun processor(): String {
    val architecture = Build.SUPPORTED_ABIS.firstOrNull().orEmpty()
    if (Build.VERSION.SDK_INT < Build.VERSION_CODES.S || Build.SOC_MODEL == Build.UNKNOWN) return architecture
    return "${Build.SOC_MANUFACTURER} ${Build.SOC_MODEL} $architecture"
}
