import Foundation

/// An output of the reference: the shape of the whole, and of a large one every `step`-th value.
public struct ExpectedOutput: Sendable {
    public let shape: [Int]
    public let step: Int
    public let numbers: Tensor.Numbers
}

/// The golden vectors of a model without scores; `limits` are by target, output and metric.
///
/// An output passes where it has its shape and all its errors are within its limits: of floats the largest and the root mean
/// square difference, of integers the share of values that differ.
public struct NamedGolden: Sendable {
    public static let format = 2

    public let cases: [NamedCase]
    public let limits: [String: [String: [String: Double]]]

    private struct File: Decodable {
        struct Part: Decodable {
            let offset: Int
            let shape: [Int]
            let dtype: String
            let step: Int
        }

        struct Case: Decodable {
            let name: String
            let image: Part?
            let inputs: [String: Part]
            let expected: [String: Part]
        }

        let limits: [String: [String: [String: Double]]]
        let cases: [Case]
    }

    /// Parse the two files.
    public static func parse(json: Data, binary: Data) throws -> NamedGolden {
        let file: File = try decode(json, name: "golden.json")
        let cases = try file.cases.map { one in
            var picture: Picture?
            if let image = one.image {
                guard image.shape.count == 3, image.shape[2] == 3 else {
                    throw invalid("the image of '\(one.name)' does not have three channels")
                }
                let rgb = [UInt8](try bytes(image, count(image.shape), of: binary))
                picture = Picture(height: image.shape[0], width: image.shape[1], rgb: rgb)
            }
            return NamedCase(
                name: one.name,
                picture: picture,
                inputs: try one.inputs.mapValues { part in
                    switch try numbers(part, count(part.shape), of: binary) {
                    case .floats(let values): return Tensor(shape: part.shape, floats: values)
                    case .integers(let values): return Tensor(shape: part.shape, integers: values)
                    }
                },
                expected: try one.expected.mapValues { part in
                    guard part.step > 0 else { throw invalid("an array has the step \(part.step)") }
                    let kept = (count(part.shape) + part.step - 1) / part.step
                    return ExpectedOutput(shape: part.shape, step: part.step, numbers: try numbers(part, kept, of: binary))
                }
            )
        }
        return NamedGolden(cases: cases, limits: file.limits)
    }

    private static func count(_ shape: [Int]) -> Int { shape.reduce(1, *) }

    private static func numbers(_ part: File.Part, _ count: Int, of binary: Data) throws -> Tensor.Numbers {
        let data = try bytes(part, count, of: binary)
        switch part.dtype {
        case "float32": return .floats(littleEndianFloats(data))
        case "int32": return .integers(littleEndianIntegers(data).map(Int64.init))
        case "int8": return .integers(data.map { Int64(Int8(bitPattern: $0)) })
        case "uint8", "bool": return .integers(data.map(Int64.init))
        default:
            return .integers(
                data.withUnsafeBytes { all in
                    (0..<count).map { Int64(littleEndian: all.loadUnaligned(fromByteOffset: 8 * $0, as: Int64.self)) }
                })
        }
    }

    private static func bytes(_ part: File.Part, _ count: Int, of binary: Data) throws -> Data {
        let sizes = ["float32": 4, "int64": 8, "int32": 4, "int8": 1, "uint8": 1, "bool": 1]
        guard let size = sizes[part.dtype] else { throw invalid("an array has the dtype \(part.dtype)") }
        guard part.offset >= 0, count >= 0, part.offset + size * count <= binary.count else {
            throw invalid("an array extends past the end of golden.bin")
        }
        return binary.subdata(in: part.offset..<part.offset + size * count)
    }

    private static func invalid(_ what: String) -> EdgekitError {
        EdgekitError("golden.json is invalid (\(what)): export the assets again")
    }
}

/// One row of the evaluation set with the outputs of the recorded reference, of a model without scores.
public struct NamedCase: Sendable {
    public let name: String
    /// The picture, before preprocessing; nil where no input is one.
    public let picture: Picture?
    /// The other inputs, as the model takes them.
    public let inputs: [String: Tensor]
    public let expected: [String: ExpectedOutput]

    /// Compare a model's outputs with those of the reference; the report has the error that is nearest its limit.
    public func evaluate(_ outputs: [String: Tensor], limits: [String: [String: Double]]) -> CaseReport {
        var report = CaseReport(name: name, maxAbs: 0, limit: 0, budgetOff: 0, lostMass: 0, reason: "")
        var nearest = -1.0
        for (output, wanted) in expected {
            for (metric, error) in errors(wanted, outputs[output]) {
                let limit = limits[output]?[metric] ?? 0  // without a limit nothing is allowed
                let near = error <= limit ? error / (limit > 0 ? limit : 1) : .infinity
                if near <= nearest { continue }
                nearest = near
                let reason = near.isFinite ? "" : failure(output, metric, error, limit)
                report = CaseReport(
                    name: name, maxAbs: error, limit: limit, budgetOff: 0, lostMass: 0, reason: reason, output: output,
                    metric: ["max_abs": "max abs", "wrong": "unequal"][metric] ?? metric)
            }
        }
        return report
    }

    private func failure(_ output: String, _ metric: String, _ error: Double, _ limit: Double) -> String {
        guard error.isFinite else { return "the output '\(output)' is missing, has another shape or is not finite" }
        let words = ["max_abs": "largest error", "rms": "root mean square error", "wrong": "share of wrong values"]
        let what = words[metric] ?? metric
        return "the \(what) of the output '\(output)' is " + String(format: "%.2g (limit %.2g)", error, limit)
    }

    /// How far an output is off, by metric; infinite where it is missing, of another shape, or not finite.
    private func errors(_ wanted: ExpectedOutput, _ found: Tensor?) -> [String: Double] {
        switch wanted.numbers {
        case .floats(let values):
            guard let found, found.shape == wanted.shape else { return ["max_abs": .infinity] }
            let answers = found.floats
            var (largest, squares) = (0.0, 0.0)
            for (i, value) in values.enumerated() {
                let off = abs(Double(value) - Double(answers[i * wanted.step]))
                if !(off <= largest) { largest = off.isNaN ? .infinity : off }
                squares += off * off
            }
            let rms = largest.isFinite ? (squares / Double(max(values.count, 1))).squareRoot() : .infinity
            return ["max_abs": largest, "rms": rms]
        case .integers(let values):
            guard let found, found.shape == wanted.shape else { return ["wrong": .infinity] }
            let answers = found.integers
            let wrong = values.enumerated().filter { answers[$0.offset * wanted.step] != $0.element }.count
            return ["wrong": Double(wrong) / Double(max(values.count, 1))]
        }
    }
}
