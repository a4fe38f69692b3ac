import Foundation

/// An output of the reference: the shape of the whole, of a large one every `step`-th value, and what a ranking is of.
public struct ExpectedOutput: Sendable {
    public let shape: [Int]
    public let step: Int
    public let numbers: Tensor.Numbers
    public let of: String
}

/// The result of one golden case: the output and the metric that are nearest their limit. `reason` is empty where it passed.
public struct CaseReport: Sendable {
    public let name: String
    public let output: String
    public let metric: String
    public let error: Double
    public let limit: Double
    public let reason: String

    public var passed: Bool { reason.isEmpty }
}

/// One row of the evaluation set with the outputs of the recorded reference.
public struct GoldenCase: Sendable {
    public let name: String
    /// The picture, before preprocessing; nil where no input is one.
    public let picture: Picture?
    /// The other inputs, as the model takes them.
    public let inputs: [String: Tensor]
    public let expected: [String: ExpectedOutput]
    /// The models that bring the picture to the size that the reference was asked at; empty: all of the bundle.
    public let targets: [String]
}

/// Golden vectors: rows with the outputs of the reference by name, to test this device with. `limits` are by target, output
/// and metric. An output passes where it has its shape and each of its errors is within its limit.
///
/// The web bundle has the same format (`golden.json`, `golden.bin`; web/README.md describes it).
public struct Golden: Sendable {
    public static let format = 3
    /// Golden vectors without cases, of a bundle that has none.
    public static let none = Golden(cases: [], limits: [:])

    public let cases: [GoldenCase]
    public let limits: [String: [String: [String: Double]]]

    private struct Format: Decodable {
        let format: Int
    }

    private struct File: Decodable {
        struct Part: Decodable {
            let offset: Int
            let shape: [Int]
            let dtype: String
            let step: Int
            let of: String?
        }

        struct Case: Decodable {
            let name: String
            let image: Part?
            let inputs: [String: Part]
            let expected: [String: Part]
            let targets: [String]?
        }

        let limits: [String: [String: [String: Double]]]
        let cases: [Case]
    }

    /// Parse the two files.
    public static func parse(json: Data, binary: Data) throws -> Golden {
        let version: Format = try decode(json, name: "golden.json")
        guard version.format == format else { throw invalid("format \(version.format) is not supported, only \(format)") }
        let file: File = try decode(json, name: "golden.json")
        return Golden(cases: try file.cases.map { try parsed($0, binary) }, limits: file.limits)
    }

    private static func parsed(_ one: File.Case, _ binary: Data) throws -> GoldenCase {
        var picture: Picture?
        if let image = one.image {
            guard image.shape.count == 3, image.shape[2] == 3, try count(image.shape) > 0 else {
                throw invalid("the image of '\(one.name)' does not have three channels")
            }
            let rgb = [UInt8](try bytes(image, try count(image.shape), of: binary))
            picture = Picture(height: image.shape[0], width: image.shape[1], rgb: rgb)
        }
        let inputs = try one.inputs.mapValues { part in
            switch try numbers(part, try count(part.shape), of: binary) {
            case .floats(let values): return Tensor(shape: part.shape, floats: values)
            case .integers(let values): return Tensor(shape: part.shape, integers: values)
            }
        }
        let expected = try one.expected.mapValues { part in
            guard part.step > 0 else { throw invalid("an array has the step \(part.step)") }
            let whole = try count(part.shape)
            let kept = whole / part.step + (whole % part.step == 0 ? 0 : 1)
            let values = try numbers(part, kept, of: binary)
            return ExpectedOutput(shape: part.shape, step: part.step, numbers: values, of: part.of ?? "")
        }
        if let lost = expected.values.first(where: { !$0.of.isEmpty && expected[$0.of] == nil }) {
            throw invalid("a ranking is of '\(lost.of)', which is not there")
        }
        return GoldenCase(
            name: one.name, picture: picture, inputs: inputs, expected: expected, targets: one.targets ?? [])
    }

    /// The cases that a model is tested with.
    public func cases(of target: String) -> [GoldenCase] {
        cases.filter { $0.targets.isEmpty || $0.targets.contains(target) }
    }

    /// Compare a model's outputs with those of the reference.
    public func evaluate(_ one: GoldenCase, _ outputs: [String: Tensor], target: String) -> CaseReport {
        var report = CaseReport(name: one.name, output: "", metric: "", error: 0, limit: 0, reason: "")
        var nearest = -1.0
        for (output, expected) in one.expected {
            let own = limits[target]?[output] ?? ["max_abs": 0]  // without a limit nothing is allowed
            for (metric, limit) in own {
                let error = difference(metric, one, expected, outputs[output])
                let near = error <= limit ? error / (limit > 0 ? limit : 1) : .infinity
                if near <= nearest { continue }
                nearest = near
                let reason = near.isFinite ? "" : failure(output, metric, error, limit)
                report = CaseReport(
                    name: one.name, output: output, metric: metric, error: error, limit: limit, reason: reason)
            }
        }
        return report
    }

    private func failure(_ output: String, _ metric: String, _ error: Double, _ limit: Double) -> String {
        guard error.isFinite else { return "the output '\(output)' is missing, has another shape or is not finite" }
        let words = [
            "max_abs": "largest error", "rms": "root mean square error", "wrong": "share of wrong values",
            "lost_mass": "lost share of the scores",
        ]
        let what = words[metric] ?? metric
        return "the \(what) of the output '\(output)' is " + String(format: "%.2g (limit %.2g)", error, limit)
    }

    /// How far an output is off; infinite where it is missing, of another shape, or not finite.
    private func difference(_ metric: String, _ one: GoldenCase, _ expected: ExpectedOutput, _ found: Tensor?) -> Double {
        guard let found, found.shape == expected.shape else { return .infinity }
        let (wanted, values) = (doubles(expected.numbers), doubles(found.numbers))
        if metric == "lost_mass", let scores = one.expected[expected.of] {
            return lostMass(doubles(scores.numbers), wanted, values)
        }
        let pairs = wanted.enumerated().map { ($0.element, values[$0.offset * expected.step]) }
        let count = Double(max(wanted.count, 1))
        if metric == "wrong" { return Double(pairs.filter { $0.0 != $0.1 }.count) / count }
        let largest = pairs.reduce(0.0) { most, pair in
            let off = abs(pair.0 - pair.1)
            return off.isNaN ? .infinity : max(most, off)
        }
        guard metric == "rms", largest.isFinite else { return largest }
        return (pairs.reduce(0.0) { $0 + ($1.0 - $1.1) * ($1.0 - $1.1) } / count).squareRoot()
    }

    private func lostMass(_ scores: [Double], _ best: [Double], _ chosen: [Double]) -> Double {
        func mass(_ places: [Double]) -> Double {
            Set(places.map { Int(wholeNumber($0)) }).reduce(0) { $0 + (scores.indices.contains($1) ? scores[$1] : 0) }
        }
        let possible = mass(best)
        return possible > 0 ? max(0, 1 - mass(chosen) / possible) : 0
    }

    private func doubles(_ numbers: Tensor.Numbers) -> [Double] {
        switch numbers {
        case .floats(let values): return values.map(Double.init)
        case .integers(let values): return values.map(Double.init)
        }
    }

    private static func count(_ shape: [Int]) throws -> Int {
        guard let values = valueCount(shape) else { throw invalid("an array has the shape \(shape)") }
        return values
    }

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
        guard (0...binary.count).contains(part.offset), size * count <= binary.count - part.offset else {
            throw invalid("an array extends past the end of golden.bin")
        }
        return binary.subdata(in: part.offset..<part.offset + size * count)
    }

    private static func invalid(_ what: String) -> EdgekitError {
        EdgekitError("golden.json is invalid (\(what)): export the assets again")
    }
}
