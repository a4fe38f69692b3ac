import Foundation
import XCTest

@testable import Edgekit

final class ManifestTests: XCTestCase {
    private let text = """
        {"schema_version": 1, "name": "toy", "target": "coreml", "precision": "fp16", "entry": "Toy.mlpackage",
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

    func testNamesTheFieldThatIsWrong() {
        let wrong = text.replacingOccurrences(of: "\"entry\": \"Toy.mlpackage\"", with: "\"entry\": 3")
        XCTAssertThrowsError(try Manifest.parse(Data(wrong.utf8))) { error in
            XCTAssertEqual(error as? EdgekitError, EdgekitError("manifest.json is invalid in the field 'entry': export the assets again"))
        }
        let newer = text.replacingOccurrences(of: "\"schema_version\": 1", with: "\"schema_version\": 2")
        XCTAssertThrowsError(try Manifest.parse(Data(newer.utf8)))
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
