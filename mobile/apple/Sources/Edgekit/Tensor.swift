/// Numbers with a shape, row-major.
public struct Tensor: Sendable {
    public enum Numbers: Sendable {
        case floats([Float])
        case integers([Int64])
    }

    public let shape: [Int]
    public let numbers: Numbers

    public init(shape: [Int], floats: [Float]) {
        precondition(floats.count == shape.reduce(1, *), "\(floats.count) values do not match the shape \(shape)")
        self.shape = shape
        numbers = .floats(floats)
    }

    public init(shape: [Int], integers: [Int64]) {
        precondition(integers.count == shape.reduce(1, *), "\(integers.count) values do not match the shape \(shape)")
        self.shape = shape
        numbers = .integers(integers)
    }

    /// The numbers as float32.
    public var floats: [Float] {
        switch numbers {
        case .floats(let values): return values
        case .integers(let values): return values.map(Float.init)
        }
    }

    /// The numbers as integers.
    public var integers: [Int64] {
        switch numbers {
        case .floats(let values): return values.map { wholeNumber(Double($0)) }
        case .integers(let values): return values
        }
    }
}

/// The number of values of a shape; nil where it is none of an array. Swift ends an app whose product overflows.
func valueCount(_ shape: [Int]) -> Int? {
    var count = 1
    for edge in shape {
        if edge < 0 || edge > Int(Int32.max) || count * edge > Int(Int32.max) { return nil }
        count *= edge
    }
    return count
}

/// The nearest integer; the least one for what is none. Swift ends an app that converts NaN or an infinity.
func wholeNumber(_ value: Double) -> Int64 {
    Int64(exactly: value.rounded()) ?? .min
}

/// The indices of the K largest scores, largest first; of equal scores the lower index comes first, as on every platform.
public func topK(_ scores: [Float], _ k: Int) -> [Int] {
    precondition((0...scores.count).contains(k), "k is \(k), but there are \(scores.count) scores")
    let places = scores.indices.sorted { scores[$0] != scores[$1] ? scores[$0] > scores[$1] : $0 < $1 }
    return Array(places.prefix(k))
}
