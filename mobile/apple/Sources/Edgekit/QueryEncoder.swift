import Foundation

/// An encoded query: its vector, the words that made it, and those that the vocabulary lacks.
public struct Query: Sendable {
    public let vector: [Float]
    public let known: [String]
    public let unknown: [String]
}

/// Words to rows of the embedding table to their mean.
///
/// `vocabulary.json` is {"dim": 768, "words": [...]}; `embeddings.bin` holds one row a word, float32, little endian. A text
/// is lower-cased and cut at everything that is neither letter nor digit.
public struct QueryEncoder: Sendable {
    public let words: [String]
    public let dim: Int
    private let table: [Float]
    private let rows: [String: Int]

    private struct Vocabulary: Decodable {
        let dim: Int
        let words: [String]
    }

    /// Read the two files; throws where they do not fit each other.
    public init(vocabulary: Data, embeddings: Data) throws {
        let listed: Vocabulary = try decode(vocabulary, name: "vocabulary.json")
        guard embeddings.count == 4 * listed.dim * listed.words.count else {
            throw EdgekitError(
                "embeddings.bin has \(embeddings.count) bytes, and \(listed.words.count) words of \(listed.dim) numbers "
                    + "need \(4 * listed.dim * listed.words.count): export the assets again"
            )
        }
        words = listed.words
        dim = listed.dim
        table = littleEndianFloats(embeddings)
        rows = Dictionary(zip(listed.words, listed.words.indices), uniquingKeysWith: { first, _ in first })
    }

    /// Encode a text; throws where no word of it is known.
    public func encode(_ text: String) throws -> Query {
        let found = text.lowercased().split { !($0.isLetter || $0.isNumber) }.map(String.init)
        let known = found.filter { rows[$0] != nil }
        let unknown = found.filter { rows[$0] == nil }
        guard !known.isEmpty else {
            let named = unknown.map { "'\($0)'" }.joined(separator: ", ")
            let what = found.isEmpty ? "the query is empty" : "the model does not know \(named)"
            throw EdgekitError("\(what): try \(words.prefix(3).map { "'\($0)'" }.joined(separator: ", "))")
        }
        var sum = [Double](repeating: 0, count: dim)
        for word in known {
            let start = rows[word, default: 0] * dim
            for i in 0..<dim { sum[i] += Double(table[start + i]) }
        }
        return Query(vector: sum.map { Float($0 / Double(known.count)) }, known: known, unknown: unknown)
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
