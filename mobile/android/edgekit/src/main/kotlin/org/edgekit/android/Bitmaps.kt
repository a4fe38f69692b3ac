package org.edgekit.android

import android.graphics.Bitmap
import org.edgekit.Picture

/** A bitmap as a picture, composited on white where it is transparent; a hardware bitmap is copied first. */
fun Bitmap.toPicture(): Picture {
    val readable = if (config == Bitmap.Config.HARDWARE) copy(Bitmap.Config.ARGB_8888, false) else this
    val pixels = IntArray(readable.width * readable.height)
    readable.getPixels(pixels, 0, readable.width, 0, 0, readable.width, readable.height)
    return Picture.onWhite(readable.height, readable.width, pixels)
}
