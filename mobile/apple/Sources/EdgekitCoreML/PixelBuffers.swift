import CoreGraphics
import CoreVideo
import Edgekit
import Foundation
import ImageIO

/// The image of a JPEG, HEIC or PNG file, upright as its EXIF orientation says, with edges of at most `longest` pixels.
///
/// `UIImage.cgImage` is what the camera's sensor saw: most photographs of a phone lie on their side in it.
public func uprightImage(_ data: Data, longest: Int = 1024) throws -> CGImage {
    let options: [CFString: Any] = [
        kCGImageSourceCreateThumbnailFromImageAlways: true,
        kCGImageSourceCreateThumbnailWithTransform: true,
        kCGImageSourceThumbnailMaxPixelSize: longest,
    ]
    guard let source = CGImageSourceCreateWithData(data as CFData, nil),
        let image = CGImageSourceCreateThumbnailAtIndex(source, 0, options as CFDictionary)
    else { throw EdgekitError("the file of \(data.count) bytes is no image that this system reads") }
    return image
}

extension Picture {
    /// The pixel buffer of a camera or decoder (32BGRA), composited on white where it is transparent.
    public init(_ buffer: CVPixelBuffer) throws {
        guard CVPixelBufferGetPixelFormatType(buffer) == kCVPixelFormatType_32BGRA else {
            throw EdgekitError("the pixel format is not 32BGRA: set kCVPixelFormatType_32BGRA in the camera output's settings")
        }
        CVPixelBufferLockBaseAddress(buffer, .readOnly)
        defer { CVPixelBufferUnlockBaseAddress(buffer, .readOnly) }
        guard let base = CVPixelBufferGetBaseAddress(buffer) else { throw EdgekitError("the pixel buffer is empty") }
        let height = CVPixelBufferGetHeight(buffer)
        let width = CVPixelBufferGetWidth(buffer)
        let stride = CVPixelBufferGetBytesPerRow(buffer)
        var rgba = [UInt8](repeating: 0, count: 4 * height * width)
        for y in 0..<height {
            let row = base.advanced(by: y * stride).assumingMemoryBound(to: UInt8.self)
            for x in 0..<width {
                for (to, from) in [2, 1, 0, 3].enumerated() { rgba[4 * (width * y + x) + to] = row[4 * x + from] }
            }
        }
        self.init(height: height, width: width, rgba: rgba)
    }

    /// Any image, drawn in sRGB on white.
    public init(_ image: CGImage) throws {
        var rgba = [UInt8](repeating: 0, count: 4 * image.height * image.width)
        let space = CGColorSpace(name: CGColorSpace.sRGB)
        let drawn = rgba.withUnsafeMutableBytes { bytes -> Bool in
            guard let space, let context = CGContext(
                data: bytes.baseAddress, width: image.width, height: image.height, bitsPerComponent: 8,
                bytesPerRow: 4 * image.width, space: space, bitmapInfo: CGImageAlphaInfo.noneSkipLast.rawValue)
            else { return false }
            let whole = CGRect(x: 0, y: 0, width: image.width, height: image.height)
            context.setFillColor(CGColor(gray: 1, alpha: 1))
            context.fill(whole)
            context.draw(image, in: whole)
            return true
        }
        guard drawn else { throw EdgekitError("the image of \(image.width) x \(image.height) pixels cannot be drawn") }
        for i in stride(from: 3, to: rgba.count, by: 4) { rgba[i] = 255 }
        self.init(height: image.height, width: image.width, rgba: rgba)
    }
}

/// A picture's tensor as the pixel buffer that a model with an image input takes.
func pixelBuffer(_ tensor: Tensor, low: Double, high: Double) throws -> CVPixelBuffer {
    let height = tensor.shape[2]
    let width = tensor.shape[3]
    var created: CVPixelBuffer?
    CVPixelBufferCreate(nil, width, height, kCVPixelFormatType_32BGRA, nil, &created)
    guard let buffer = created else { throw EdgekitError("a pixel buffer of \(width) x \(height) cannot be allocated") }
    CVPixelBufferLockBaseAddress(buffer, [])
    defer { CVPixelBufferUnlockBaseAddress(buffer, []) }
    guard let base = CVPixelBufferGetBaseAddress(buffer) else { throw EdgekitError("the pixel buffer is empty") }
    let values = tensor.floats
    let plane = height * width
    for y in 0..<height {
        let row = base.advanced(by: y * CVPixelBufferGetBytesPerRow(buffer)).assumingMemoryBound(to: UInt8.self)
        for x in 0..<width {
            for c in 0..<3 {
                let unit = (Double(values[(2 - c) * plane + y * width + x]) - low) / (high - low)
                row[4 * x + c] = UInt8(min(255, max(0, (255 * unit).rounded())))
            }
            row[4 * x + 3] = 255
        }
    }
    return buffer
}
