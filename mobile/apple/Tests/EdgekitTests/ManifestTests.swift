import Foundation
import XCTest

@testable import Edgekit

final class ManifestTests: XCTestCase {
    private let text = """
        {"schema_version": 2, "name": "toy", "target": "coreml", "precision": "fp16", "entry": "Toy.mlpackage",
         "inputs": [{"name": "images", "dtype": "float32", "shape": ["batch", 3, 2, 2], "role": "tensor",
                     "kind": "image", "of": "", "low": 0.0, "high": 1.0}],
         "outputs": [{"name": "relevance", "dtype": "float32", "shape": ["batch", 4], "role": "scores",
                      "kind": "tensor", "of": "", "low": 0.0, "high": 1.0}],
         "axes": {"batch": {"default": 1, "minimum": 1, "maximum": 8, "multiple_of": 1, "dynamic": false}},
         "files": [], "verdicts": [{"place": "interpreter", "status": "verified", "reason": ""}], "notes": []}
        """

    func testReadsWhatAnAppNeeds() throws {
        let manifest = try Manifest.parse(Data(text.utf8))
        XCTAssertEqual(manifest.input("image")?.name, "images")
        XCTAssertEqual(try manifest.shape(manifest.inputs[0]), [1, 3, 2, 2])
        try manifest.check(["images": Tensor(shape: [1, 3, 2, 2], floats: Array(repeating: 0, count: 12))])
        XCTAssertThrowsError(try manifest.check(["images": Tensor(shape: [2, 3, 2, 2], floats: Array(repeating: 0, count: 24))]))
        XCTAssertThrowsError(try manifest.check([:]))
    }

    func testTakesTheSizesThatItEnumeratesAndNoOthers() throws {
        let axis = "{\"default\": 2, \"minimum\": 2, \"maximum\": 4, \"multiple_of\": 1, \"dynamic\": true}"
        let several = text.replacingOccurrences(of: "3, 2, 2]", with: "3, \"height\", \"width\"]")
            .replacingOccurrences(of: "\"axes\": {", with: "\"axes\": {\"height\": \(axis), \"width\": \(axis), ")
            .replacingOccurrences(
                of: "\"files\"",
                with: "\"sizes\": [{\"width\": 2, \"height\": 2}, {\"width\": 3, \"height\": 2}], \"files\"")
        let manifest = try Manifest.parse(Data(several.utf8))
        let given = { (height: Int, width: Int) in
            ["images": Tensor(shape: [1, 3, height, width], floats: Array(repeating: 0, count: 3 * height * width))]
        }
        XCTAssertEqual(try manifest.enumeratedSize(given(2, 3)).map(manifest.sizeText), "2x3")
        XCTAssertThrowsError(try manifest.check(given(3, 2))) { error in
            XCTAssertEqual(
                error as? EdgekitError,
                EdgekitError("the model 'toy' (coreml) takes the sizes 2x2, 2x3, not 'images' [1, 3, 3, 2]"))
        }
    }

    func testNamesTheFieldThatIsWrong() {
        let wrong = text.replacingOccurrences(of: "\"entry\": \"Toy.mlpackage\"", with: "\"entry\": 3")
        XCTAssertThrowsError(try Manifest.parse(Data(wrong.utf8))) { error in
            XCTAssertEqual(error as? EdgekitError, EdgekitError("manifest.json is invalid in the field 'entry': export the assets again"))
        }
        for name in ["P{init{}};object/**/Q", "a b", "a/b", ""] {
            let hostile = text.replacingOccurrences(of: "\"name\": \"images\"", with: "\"name\": \"\(name)\"")
            XCTAssertThrowsError(try Manifest.parse(Data(hostile.utf8)))
        }
        let newer = text.replacingOccurrences(of: "\"schema_version\": 2", with: "\"schema_version\": 3")
        XCTAssertThrowsError(try Manifest.parse(Data(newer.utf8)))
    }

    func testRefusesWhatWouldEndTheApp() {
        let nested = String(repeating: "[", count: 100_000)
        for bad in [nested, text.replacingOccurrences(of: "\"notes\": []", with: "\"notes\": \(nested)")] {
            XCTAssertThrowsError(try Manifest.parse(Data(bad.utf8))) { XCTAssertTrue($0 is EdgekitError) }
        }
        let large = text.replacingOccurrences(of: "\"maximum\": 8", with: "\"maximum\": 4611686018427387904")
        XCTAssertThrowsError(try Manifest.parse(Data(large.utf8))) { XCTAssertTrue($0 is EdgekitError) }
        XCTAssertEqual(Tensor(shape: [2], floats: [.nan, .infinity]).integers, [.min, .min])
        XCTAssertNil(valueCount([1 << 40, 1 << 40]))
    }

    func testEqualScoresGoToTheLowerPlace() {
        XCTAssertEqual(topK([0.5, 0.9, 0.5, 0.9], 3), [1, 3, 0])
    }

    func testPercentilesAreNumPys() {
        let timing = Timing(device: "x", milliseconds: [8, 1, 4, 2])
        XCTAssertEqual(timing.p50, 3, accuracy: 1e-12)
        XCTAssertEqual(timing.p90, 6.8, accuracy: 1e-12)
        XCTAssertEqual(timing.std, 2.680951, accuracy: 1e-6)
    }
}
