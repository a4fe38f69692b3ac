import Foundation

/// The outputs for one picture. `budgets` and `indices` are empty for a model without them.
public struct Answer: Sendable {
    public let relevance: [Float]
    public let budgets: [Int64]
    public let indices: [Int64]

    public init(relevance: [Float], budgets: [Int64], indices: [Int64]) {
        self.relevance = relevance
        self.budgets = budgets
        self.indices = indices
    }

    /// Whether anything in the picture answers the query, by the bundle's presence threshold; nil without one.
    public func isPresent(_ threshold: Float?) -> Bool? {
        threshold.map { limit in relevance.contains { $0 >= limit } }
    }
}

/// The result of one golden case; `reason` is empty where it passed.
public struct CaseReport: Sendable {
    public let name: String
    public let maxAbs: Double
    public let limit: Double
    public let budgetOff: Double
    public let lostMass: Double
    public let reason: String
    /// Of a model without scores, the output and the metric that `maxAbs` is of: those that are nearest their limit.
    public var output = ""
    public var metric = "max abs"

    public var passed: Bool { reason.isEmpty }
}

/// One picture and query with the outputs of the recorded reference, to test this device with.
///
/// The web bundle has the same format (`golden.json`, `golden.bin`).
public struct GoldenCase: Sendable {
    /// Limit of the share of relevance that the selected patches lose: twice the limit of an artifact's verdict.
    public static let maxLostMass = 0.02
    public static let format = 1

    public let name: String
    public let picture: Picture
    public let query: [Float]
    public let expected: Answer

    private struct Part: Decodable {
        let offset: Int
        let shape: [Int]

        func bytes(of binary: Data, size: Int) throws -> Data {
            let length = size * shape.reduce(1, *)
            guard offset >= 0, length >= 0, offset + length <= binary.count else {
                throw EdgekitError("golden.json is invalid (an array extends past the end of golden.bin): export the assets again")
            }
            return binary.subdata(in: offset..<offset + length)
        }
    }

    private struct File: Decodable {
        struct Case: Decodable {
            struct Expected: Decodable {
                let relevance: Part
                let budgets: Part
                let indices: Part
            }

            let name: String
            let image: Part
            let query: Part
            let expected: Expected
        }

        let cases: [Case]
    }

    private struct Format: Decodable {
        let format: Int
    }

    /// Whether the file is of a model without scores: `NamedGolden` reads it.
    static func isNamed(_ json: Data) throws -> Bool {
        let file: Format = try decode(json, name: "golden.json")
        guard [format, NamedGolden.format].contains(file.format) else {
            throw EdgekitError(
                "golden.json is invalid (format \(file.format) is not supported, only \(format) and \(NamedGolden.format)): "
                    + "export the assets again")
        }
        return file.format == NamedGolden.format
    }

    /// Parse the two files.
    public static func parse(json: Data, binary: Data) throws -> [GoldenCase] {
        let file: File = try decode(json, name: "golden.json")
        return try file.cases.map { one in
            guard one.image.shape.count == 3, one.image.shape[2] == 3 else {
                throw EdgekitError(
                    "golden.json is invalid (the image of '\(one.name)' does not have three channels): export the assets again")
            }
            let rgb = [UInt8](try one.image.bytes(of: binary, size: 1))
            func integers(_ part: Part) throws -> [Int64] {
                littleEndianIntegers(try part.bytes(of: binary, size: 4)).map(Int64.init)
            }
            return GoldenCase(
                name: one.name,
                picture: Picture(height: one.image.shape[0], width: one.image.shape[1], rgb: rgb),
                query: littleEndianFloats(try one.query.bytes(of: binary, size: 4)),
                expected: Answer(
                    relevance: littleEndianFloats(try one.expected.relevance.bytes(of: binary, size: 4)),
                    budgets: try integers(one.expected.budgets),
                    indices: try integers(one.expected.indices)
                )
            )
        }
    }

    /// Compare one answer with the reference; `limit` is the largest allowed error of a score.
    public func evaluate(_ answer: Answer, limit: Double) -> CaseReport {
        let maxAbs = maxAbsDifference(answer.relevance.map(Double.init), expected.relevance.map(Double.init))
        let budgetOff = maxAbsDifference(answer.budgets.map(Double.init), expected.budgets.map(Double.init))
        let lost = lostMass(answer.indices)
        // A budget is its score times the range of tokens, rounded: one token more than the error of the score.
        let budgetLimit = 1 + limit * tokensPerScore
        var reason = ""
        if !maxAbs.isFinite {
            reason = "a score is not a finite number, or the number of scores is wrong"
        } else if maxAbs > limit {
            reason = String(format: "the largest score error is %.2g (limit %.2g)", maxAbs, limit)
        } else if answer.indices.count != expected.indices.count {
            reason = "the number of selected patches is \(answer.indices.count) instead of \(expected.indices.count)"
        } else if lost > GoldenCase.maxLostMass {
            let percent = (100 * lost, 100 * GoldenCase.maxLostMass)
            reason = String(format: "the selected patches lose %.1f %% of the relevance (limit %.1f %%)", percent.0, percent.1)
        } else if budgetOff > budgetLimit {
            reason = String(format: "the largest token budget error is %.0f (limit %.1f)", budgetOff, budgetLimit)
        }
        return CaseReport(
            name: name, maxAbs: maxAbs, limit: limit, budgetOff: budgetOff, lostMass: lost, reason: reason)
    }

    private func lostMass(_ selected: [Int64]) -> Double {
        func mass(_ places: [Int64]) -> Double {
            Set(places).reduce(0) { sum, place in
                let index = Int(place)
                return sum + (expected.relevance.indices.contains(index) ? Double(expected.relevance[index]) : 0)
            }
        }
        let possible = mass(expected.indices)
        return possible > 0 ? max(0, 1 - mass(selected) / possible) : 0
    }

    /// Tokens per unit of score, computed from the expected values.
    private var tokensPerScore: Double {
        let scores = expected.relevance
        guard !expected.budgets.isEmpty,
            let low = scores.indices.min(by: { scores[$0] < scores[$1] }),
            let high = scores.indices.max(by: { scores[$0] < scores[$1] })
        else { return 0 }
        let range = Double(scores[high] - scores[low])
        return range > 1e-3 ? Double(expected.budgets[high] - expected.budgets[low]) / range : 400
    }
}

/// Largest absolute difference; infinite where the lengths differ or a value is not finite.
private func maxAbsDifference(_ a: [Double], _ b: [Double]) -> Double {
    guard a.count == b.count else { return .infinity }
    return zip(a, b).reduce(0) { largest, pair in
        let error = abs(pair.0 - pair.1)
        return error.isNaN ? .infinity : max(largest, error)
    }
}
