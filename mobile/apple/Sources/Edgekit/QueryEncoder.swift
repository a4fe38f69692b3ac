import Foundation

/// An encoded query: its vector and its words.
public struct Query: Sendable {
    public let vector: [Float]
    public let known: [String]
}

/// A query's vector is the mean of its words' rows in the embedding table.
///
/// `vocabulary.json` is {"dim": 768, "scale": ..., "offset": ..., "words": [...], "rows": [...]}: the row of each word in
/// `embeddings.bin`, which has int8 values; each is scale * byte + offset. Words that mean the same share a row. A text is
/// converted to lower case and split at every character that is neither a letter nor a digit.
public struct QueryEncoder: Sendable {
    public let words: [String]
    public let dim: Int
    private let table: [Float]
    private let rows: [String: Int]

    private struct Vocabulary: Decodable {
        let dim: Int
        let scale: Float
        let offset: Float
        let words: [String]
        let rows: [Int]
    }

    /// Parse the two files; throws an EdgekitError if they do not match.
    public init(vocabulary: Data, embeddings: Data) throws {
        let listed: Vocabulary = try decode(vocabulary, name: "vocabulary.json")
        // Swift ends an app whose product overflows, or that reads outside of an array.
        let possible = 0...embeddings.count
        guard listed.rows.count == listed.words.count, listed.rows.allSatisfy({ possible.contains($0) }),
            possible.contains(listed.dim),
            embeddings.count == listed.dim * ((listed.rows.max() ?? -1) + 1)
        else {
            throw EdgekitError(
                "embeddings.bin has \(embeddings.count) bytes, which are not the rows of \(listed.words.count) words with "
                    + "\(listed.dim) values each: export the assets again"
            )
        }
        words = listed.words
        dim = listed.dim
        table = embeddings.map { listed.scale * Float(Int8(bitPattern: $0)) + listed.offset }
        rows = Dictionary(zip(listed.words, listed.rows), uniquingKeysWith: { first, _ in first })
    }

    /// Encode a text; throws an EdgekitError if it has no word, or an unknown one: "not red" is not "red".
    public func encode(_ text: String) throws -> Query {
        let found = text.lowercased().split { !($0.isLetter || $0.isNumber) }.map(String.init)
        let unknown = found.filter { rows[$0] == nil }
        guard !found.isEmpty, unknown.isEmpty else {
            let named = unknown.map { "'\($0)'" }.joined(separator: ", ")
            let what = found.isEmpty ? "the query holds no word" : "the model does not know \(named)"
            throw EdgekitError("\(what): try for example \(words.prefix(3).map { "'\($0)'" }.joined(separator: ", "))")
        }
        var sum = [Double](repeating: 0, count: dim)
        for word in found {
            let start = rows[word, default: 0] * dim
            for i in 0..<dim { sum[i] += Double(table[start + i]) }
        }
        return Query(vector: sum.map { Float($0 / Double(found.count)) }, known: found)
    }
}

/// Bytes as float32, little endian, whatever their alignment.
func littleEndianFloats(_ data: Data) -> [Float] {
    littleEndianIntegers(data).map { Float(bitPattern: UInt32(bitPattern: $0)) }
}

/// Bytes as int32, little endian, whatever their alignment.
func littleEndianIntegers(_ data: Data) -> [Int32] {
    data.withUnsafeBytes { bytes in
        (0..<bytes.count / 4).map { Int32(littleEndian: bytes.loadUnaligned(fromByteOffset: 4 * $0, as: Int32.self)) }
    }
}
