/// RGB bytes, row by row: the form of every image before it is converted to a tensor.
///
/// edgekit's tests/golden/README.md defines the steps and the filter for all platforms.
public struct Picture: Sendable {
    public let height: Int
    public let width: Int
    public let rgb: [UInt8]

    public init(height: Int, width: Int, rgb: [UInt8]) {
        precondition(rgb.count == 3 * height * width, "\(rgb.count) bytes do not match a size of \(height) x \(width)")
        self.height = height
        self.width = width
        self.rgb = rgb
    }

    /// Composite pixels on white: RGBA bytes, not premultiplied.
    public init(height: Int, width: Int, rgba: [UInt8]) {
        precondition(rgba.count == 4 * height * width, "\(rgba.count) bytes do not match a size of \(height) x \(width)")
        var composited = [UInt8](repeating: 0, count: 3 * height * width)
        for i in 0..<height * width {
            let alpha = Int(rgba[4 * i + 3])
            for c in 0..<3 {
                let value = Int(rgba[4 * i + c])
                composited[3 * i + c] = UInt8((2 * (value * alpha + 255 * (255 - alpha)) + 255) / 510)
            }
        }
        self.init(height: height, width: width, rgb: composited)
    }

    public var size: InputSize { InputSize(height: height, width: width) }

    /// Resized, each side on its own, by a triangle filter, which is wider when the image shrinks.
    public func resized(height: Int, width: Int) -> Picture {
        if height == self.height && width == self.width { return self }
        let rows = Weights.all(size: self.height, wanted: height)
        let columns = Weights.all(size: self.width, wanted: width)
        var resized = [UInt8](repeating: 0, count: 3 * height * width)
        var row = [Double](repeating: 0, count: 3 * self.width)
        for y in 0..<height {
            for i in row.indices { row[i] = 0 }
            for (offset, weight) in rows[y].values.enumerated() {
                let start = 3 * self.width * (rows[y].first + offset)
                for i in row.indices { row[i] += weight * Double(rgb[start + i]) }
            }
            for x in 0..<width {
                for c in 0..<3 {
                    var sum = 0.0
                    for (offset, weight) in columns[x].values.enumerated() {
                        sum += weight * row[3 * (columns[x].first + offset) + c]
                    }
                    resized[3 * (width * y + x) + c] = UInt8(min(255, max(0, (sum + 0.5).rounded(.down))))
                }
            }
        }
        return Picture(height: height, width: width, rgb: resized)
    }

    /// In a model's size, as the manifest's `fit` of its input says: "stretch", "crop" or "letterbox".
    public func fitted(height: Int, width: Int, fit: String) throws -> Picture {
        let size = InputSize(height: height, width: width)
        let placement = try Placement(picture: self.size, size: size, fit: fit)
        let place = placement.place
        return cut(placement.part).resized(height: place.height, width: place.width).bordered(size, place)
    }

    private func cut(_ part: Box) -> Picture {
        if part.height == height && part.width == width { return self }
        var cut: [UInt8] = []
        cut.reserveCapacity(3 * part.height * part.width)
        for y in part.top..<part.top + part.height {
            let start = 3 * (width * y + part.left)
            cut += rgb[start..<start + 3 * part.width]
        }
        return Picture(height: part.height, width: part.width, rgb: cut)
    }

    private func bordered(_ size: InputSize, _ place: Box) -> Picture {
        if height == size.height && width == size.width { return self }
        var whole = [UInt8](repeating: Picture.border, count: 3 * size.height * size.width)
        for y in 0..<height {
            let start = 3 * (size.width * (place.top + y) + place.left)
            for i in 0..<3 * width { whole[start + i] = rgb[3 * width * y + i] }
        }
        return Picture(height: size.height, width: size.width, rgb: whole)
    }

    /// Grey of a letterbox's borders.
    private static let border: UInt8 = 114

    /// `low + (high - low) * byte / 255` in planes red, green, blue: [1, 3, height, width].
    public func tensor(low: Double, high: Double) -> Tensor {
        let scale = (0..<256).map { Float(low + (high - low) * Double($0) / 255) }
        let plane = height * width
        var data = [Float](repeating: 0, count: 3 * plane)
        for i in 0..<plane {
            for c in 0..<3 { data[c * plane + i] = scale[Int(rgb[3 * i + c])] }
        }
        return Tensor(shape: [1, 3, height, width], floats: data)
    }
}

/// The weights of the source pixels from `first` on, for one new pixel.
private struct Weights {
    let first: Int
    let values: [Double]

    static func all(size: Int, wanted: Int) -> [Weights] {
        let scale = Double(size) / Double(wanted)
        let reach = max(scale, 1)
        return (0..<wanted).map { place in
            let centre = (Double(place) + 0.5) * scale
            let first = max(0, Int((centre - reach).rounded(.down)))
            let last = min(size - 1, Int((centre + reach).rounded(.down)))
            let raw = (first...last).map { max(0, 1 - abs(Double($0) + 0.5 - centre) / reach) }
            let sum = raw.reduce(0, +)
            return Weights(first: first, values: raw.map { $0 / sum })
        }
    }
}
