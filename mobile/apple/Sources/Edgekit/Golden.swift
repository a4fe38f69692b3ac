import Foundation

/// What the model says of one picture. `budgets` and `indices` are empty for a model without them.
public struct Answer: Sendable {
    public let relevance: [Float]
    public let budgets: [Int64]
    public let indices: [Int64]

    public init(relevance: [Float], budgets: [Int64], indices: [Int64]) {
        self.relevance = relevance
        self.budgets = budgets
        self.indices = indices
    }
}

/// How one golden case came out; `reason` is empty where it passed.
public struct CaseReport: Sendable {
    public let name: String
    public let maxAbs: Double
    public let limit: Double
    public let budgetOff: Double
    public let lostMass: Double
    public let reason: String

    public var passed: Bool { reason.isEmpty }
}

/// One picture and query with the answer that the reference gave, to check this very device with.
///
/// The format (`golden.json`, `golden.bin`) is the one that the web bundle has.
public struct GoldenCase: Sendable {
    /// Largest share of relevance that the chosen patches may miss: twice what an artifact's verdict allows.
    public static let lostMassLimit = 0.02
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
                throw EdgekitError("golden.json names bytes behind the end of golden.bin: export the assets again")
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

        let format: Int
        let cases: [Case]
    }

    /// Read the two files.
    public static func parse(json: Data, binary: Data) throws -> [GoldenCase] {
        let file: File = try decode(json, name: "golden.json")
        guard file.format == format else { throw EdgekitError("golden.json has format \(file.format), not \(format)") }
        return try file.cases.map { one in
            guard one.image.shape.count == 3, one.image.shape[2] == 3 else {
                throw EdgekitError("a picture of golden.json has not three channels: export the assets again")
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

    /// Judge one answer; `limit` is the largest allowed difference of a score.
    public func judge(_ answer: Answer, limit: Double) -> CaseReport {
        let maxAbs = largest(answer.relevance.map(Double.init), expected.relevance.map(Double.init))
        let budgetOff = largest(answer.budgets.map(Double.init), expected.budgets.map(Double.init))
        let lost = lostMass(answer.indices)
        var reason = ""
        if !maxAbs.isFinite {
            reason = "a score is not a number, or there are more or fewer of them"
        } else if maxAbs > limit {
            reason = String(format: "a score is off by %.2g, and %.2g is allowed", maxAbs, limit)
        } else if answer.indices.count != expected.indices.count {
            reason = "another number of patches was chosen"
        } else if lost > GoldenCase.lostMassLimit {
            reason = String(format: "the chosen patches miss %.1f %% of the relevance", 100 * lost)
        } else if budgetOff > 1 + limit * spread {
            // A budget follows from its score over a range of tokens, and rounds once more.
            reason = "a budget is off by \(budgetOff) tokens"
        }
        return CaseReport(
            name: name, maxAbs: maxAbs, limit: limit, budgetOff: budgetOff, lostMass: lost, reason: reason)
    }

    private func lostMass(_ chosen: [Int64]) -> Double {
        func mass(_ places: [Int64]) -> Double {
            Set(places).reduce(0) { sum, place in
                let index = Int(place)
                return sum + (expected.relevance.indices.contains(index) ? Double(expected.relevance[index]) : 0)
            }
        }
        let possible = mass(expected.indices)
        return possible > 0 ? max(0, 1 - mass(chosen) / possible) : 0
    }

    /// Tokens per unit of score, from the expected values themselves.
    private var spread: Double {
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
private func largest(_ a: [Double], _ b: [Double]) -> Double {
    guard a.count == b.count else { return .infinity }
    return zip(a, b).reduce(0) { most, pair in
        let off = abs(pair.0 - pair.1)
        return off.isNaN ? .infinity : max(most, off)
    }
}
