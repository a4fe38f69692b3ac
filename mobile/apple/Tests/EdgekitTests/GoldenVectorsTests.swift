import Foundation
import XCTest

@testable import Edgekit

/// The golden vectors that all platforms share: the folder tests/golden of edgekit's repository.
final class GoldenVectorsTests: XCTestCase {
    private struct Part: Decodable {
        let offset: Int
        let shape: [Int]
    }

    private struct Queries: Decodable {
        struct Case: Decodable {
            let text: String
            let known: [String]
            let unknown: [String]
            let vector: Part?
        }

        let vocabulary: String
        let embeddings: String
        let binary: String
        let tolerance: Double
        let cases: [Case]
    }

    private struct Pictures: Decodable {
        struct Case: Decodable {
            let name: String
            let pixels: Part
            let size: [Int]
            let low: Double
            let high: Double
            let fit: String
            let rgb: Part
            let tensor: Part
        }

        let binary: String
        let tolerance: Double
        let cases: [Case]
    }

    func testQueriesAreEncodedAsEverywhere() throws {
        let top: Queries = try decode(read("query_encoding.json"), name: "query_encoding.json")
        let encoder = try QueryEncoder(vocabulary: read(top.vocabulary), embeddings: read(top.embeddings))
        let binary = try read(top.binary)
        for one in top.cases {
            guard let vector = one.vector else {
                XCTAssertThrowsError(try encoder.encode(one.text), one.text) { refusal in
                    for word in one.unknown { XCTAssertTrue("\(refusal)".contains("'\(word)'"), "\(refusal)") }
                }
                continue
            }
            let query = try encoder.encode(one.text)
            XCTAssertEqual(query.known, one.known)
            XCTAssertEqual(one.unknown, [])
            assertClose(littleEndianFloats(part(binary, vector, 4)), query.vector, top.tolerance, one.text)
        }
    }

    func testPicturesBecomeTensorsAsEverywhere() throws {
        let top: Pictures = try decode(read("preprocessing.json"), name: "preprocessing.json")
        let binary = try read(top.binary)
        for one in top.cases {
            let rgba = [UInt8](part(binary, one.pixels, 1))
            let whole = Picture(height: one.pixels.shape[0], width: one.pixels.shape[1], rgba: rgba)
            let scaled = try whole.fitted(height: one.size[0], width: one.size[1], fit: one.fit)
            let wanted = [UInt8](part(binary, one.rgb, 1))
            for (a, b) in zip(wanted, scaled.rgb) { XCTAssertLessThanOrEqual(abs(Int(a) - Int(b)), 1, one.name) }
            let exact = Picture(height: one.size[0], width: one.size[1], rgb: wanted)
            let tensor = exact.tensor(low: one.low, high: one.high)
            assertClose(littleEndianFloats(part(binary, one.tensor, 4)), tensor.floats, top.tolerance, one.name)
        }
    }

    private func read(_ name: String) throws -> Data {
        let named = ProcessInfo.processInfo.environment["EDGEKIT_GOLDEN"].map { URL(fileURLWithPath: $0) }
        let beside = URL(fileURLWithPath: #filePath)
            .deletingLastPathComponent().appendingPathComponent("../../../../tests/golden")
        return try Data(contentsOf: (named ?? beside).appendingPathComponent(name))
    }

    private func part(_ binary: Data, _ part: Part, _ size: Int) -> Data {
        binary.subdata(in: part.offset..<part.offset + size * part.shape.reduce(1, *))
    }

    private func assertClose(_ wanted: [Float], _ got: [Float], _ tolerance: Double, _ name: String) {
        XCTAssertEqual(wanted.count, got.count, name)
        for (a, b) in zip(wanted, got) { XCTAssertLessThanOrEqual(abs(Double(a) - Double(b)), tolerance, name) }
    }
}
