package org.edgekit.android

import androidx.camera.core.ImageProxy
import org.edgekit.EdgekitException
import org.edgekit.Picture
import org.edgekit.Plane
import org.edgekit.ofYuv

/** A frame of CameraX, upright; of the format `YUV_420_888`, which `ImageAnalysis` gives by default. Close the frame after. */
fun ImageProxy.toPicture(): Picture {
    val planes = planes.map { Plane(it.buffer, it.rowStride, it.pixelStride) }
    if (planes.size != 3) throw EdgekitException("the camera's frame has ${planes.size} planes instead of the three of YUV_420_888")
    return Picture.ofYuv(height, width, planes[0], planes[1], planes[2], imageInfo.rotationDegrees)
}
