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

    private struct Fitting: Decodable {
        struct Case: Decodable {
            let picture: [Int]
            let size: [Int]
        }

        struct Listed: Decodable {
            let sizes: [[Int]]
            let cases: [Case]
        }

        struct Patches: Decodable {
            let picture: [Int]
            let size: [Int]
            let fit: String
            let rows: Int
            let columns: Int
            let part: [Int]
            let place: [Int]
            let patches: [[Int?]]
        }

        let cases: [Case]
        let listed: Listed
        let grids: [Patches]
    }

    func testPicturesGetTheSizeThatTheyGetEverywhere() throws {
        let top: Fitting = try decode(read("fitting.json"), name: "fitting.json")
        XCTAssertFalse(top.cases.isEmpty || top.listed.cases.isEmpty)
        for one in top.cases {
            XCTAssertEqual(try openManifest([]).fittingSize(size(one.picture)), size(one.size), "\(one.picture)")
        }
        for one in top.listed.cases {
            XCTAssertEqual(try openManifest(top.listed.sizes).fittingSize(size(one.picture)), size(one.size), "\(one.picture)")
        }
        XCTAssertThrowsError(try openManifest([]).check(InputSize(height: 100, width: 224)))
        XCTAssertThrowsError(try openManifest(top.listed.sizes).check(InputSize(height: 224, width: 240)))
    }

    func testPixelsLieInThePatchesInWhichTheyLieEverywhere() throws {
        let top: Fitting = try decode(read("fitting.json"), name: "fitting.json")
        XCTAssertFalse(top.grids.isEmpty)
        for one in top.grids {
            let placement = try Placement(picture: size(one.picture), size: size(one.size), fit: one.fit)
            XCTAssertEqual([placement.part, placement.place].map { [$0.top, $0.left, $0.height, $0.width] }, [one.part, one.place])
            let grid = Grid(rows: one.rows, columns: one.columns, size: size(one.size), placement: placement)
            for pixel in one.patches { XCTAssertEqual(grid.patch(y: pixel[0]!, x: pixel[1]!), pixel[2], "\(one.picture)") }
        }
    }

    private func size(_ edges: [Int]) -> InputSize { InputSize(height: edges[0], width: edges[1]) }

    private func openManifest(_ sizes: [[Int]]) throws -> Manifest {
        let axis = "{\"default\": 224, \"minimum\": 96, \"maximum\": 512, \"multiple_of\": 16, \"dynamic\": true}"
        let listed = sizes.map { "{\"height\": \($0[0]), \"width\": \($0[1])}" }.joined(separator: ", ")
        let text = """
            {"schema_version": 2, "name": "toy", "target": "coreai", "precision": "fp32", "entry": "model.aimodel",
             "inputs": [{"name": "images", "dtype": "float32", "shape": [1, 3, "height", "width"], "role": "tensor",
                         "kind": "image", "of": "", "low": 0.0, "high": 1.0}],
             "outputs": [], "axes": {"height": \(axis), "width": \(axis)}, "sizes": [\(listed)],
             "files": [], "verdicts": [], "notes": []}
            """
        return try Manifest.parse(Data(text.utf8))
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
