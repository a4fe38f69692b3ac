import CoreGraphics
import Edgekit
import EdgekitCoreAI
import EdgekitCoreML
import Foundation
import UIKit

/// The state of the screen; the only user of the runner.
@MainActor
final class Search: ObservableObject {
    @Published var target = ArrCocTiny.Models.allCases[0]
    @Published var words = "red circle"
    @Published private(set) var shown: CGImage?
    @Published private(set) var status = "Verifying the files …"
    @Published private(set) var result: URL?

    private var bundle: ModelBundle?
    private var encoder: QueryEncoder?
    private var runner: (any Runner)?
    private var picture: Picture?

    /// Open the bundle and the chosen model; the first start of an app version verifies every hash.
    func open() async {
        await trying {
            if bundle == nil { (bundle, encoder) = try await Search.verified() }
            guard let bundle else { return }
            let runner = try await opened(bundle)
            self.runner = runner
            status = "\(target.rawValue) is ready on \(runner.device)"
        }
        await scorePicture()
    }

    func take(_ photograph: Data) async {
        await trying { (shown, picture) = try await Search.decoded(photograph) }
        await scorePicture()
    }

    // What takes long is not isolated to the main actor, so that the screen goes on.

    private nonisolated static func verified() async throws -> (ModelBundle, QueryEncoder?) {
        let bundle = try ArrCocTiny.open()
        try bundle.verify()
        return (bundle, try bundle.encoder())
    }

    private nonisolated static func decoded(_ photograph: Data) async throws -> (CGImage, Picture) {
        let image = try uprightImage(photograph)
        return (image, try Picture(image))
    }

    func scorePicture() async {
        guard let bundle, let runner, let picture else { return }
        await trying {
            guard let query = try encoder?.encode(words) else { throw EdgekitError("the bundle has no vocabulary for queries") }
            let start = ContinuousClock.now
            let answer = try await runner.answer(picture, query: query.vector, k: 1)
            let spent = ContinuousClock.now - start
            shown = try await Search.heat(picture, answer)
            let best = Int(answer.indices[0])
            let grid = answer.grid
            let present = try answer.isPresent(bundle.presenceThreshold()) ?? true
            let what = present ? "Most relevant" : "Nothing like this here; the highest relevance is in"
            let place = "row \(best / grid.columns + 1), column \(best % grid.columns + 1) of \(grid.rows) x \(grid.columns)"
            status = "\(spent). \(what): \(place) (score \(answer.relevance[best]))."
        }
    }

    /// Run the golden vectors and the bench, and write the result.json that `edgekit report` reads.
    func check() async {
        guard let bundle, let runner else { return }
        await trying {
            let cases = try await runner.selfTest(bundle)
            guard let first = try bundle.golden().cases.first else { throw EdgekitError("the bundle has no golden vectors") }
            let timing = try await Bench().time(runner, runner.model.inputs(first))
            let system = UIDevice.current
            let found = DeviceResult(
                bundle: bundle, runner: runner, cases: cases, timing: timing, place: "ios",
                host: ["device": deviceModel(), "system": "\(system.systemName) \(system.systemVersion)"])
            let folder = FileManager.default.temporaryDirectory.appendingPathComponent(target.rawValue, isDirectory: true)
            try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
            let file = folder.appendingPathComponent("result.json")
            try found.json().write(to: file, options: .atomic)
            result = file
            status = "\(cases.first { !$0.passed }?.reason ?? "verified"). Median \(timing.p50) ms."
        }
    }

    /// Check every model, say what was found, and end: what `check_on_device.sh` starts.
    func checkAll() async -> Never {
        var written = 0
        for target in ArrCocTiny.Models.allCases {
            self.target = target
            result = nil
            await open()
            await check()
            print("\(target.rawValue): \(status)")
            if result != nil { written += 1 }
        }
        exit(written == ArrCocTiny.Models.allCases.count ? 0 : 1)
    }

    /// The chosen model in the runtime that its target needs.
    private func opened(_ bundle: ModelBundle) async throws -> any Runner {
        guard target.rawValue.hasPrefix("coreai") else { return try await CoreMLRunner(bundle, target.rawValue) }
        #if canImport(CoreAI)
        if #available(iOS 27.0, *) { return try await CoreAIRunner(bundle, target.rawValue) }
        #endif
        throw EdgekitError("'\(target.rawValue)' needs Core AI, which begins with iOS 27: choose a Core ML model")
    }

    private func trying(_ work: () async throws -> Void) async {
        do {
            try await work()
        } catch {
            status = error.localizedDescription
        }
    }

    /// The picture with edges of at most 1024 pixels, brighter where its patches are relevant.
    private nonisolated static func heat(_ picture: Picture, _ answer: Answer) async throws -> CGImage {
        let scale = min(1, 1024 / Double(max(picture.height, picture.width)))
        let edge = { (pixels: Int) in max(1, Int(scale * Double(pixels))) }
        let small = picture.resized(height: edge(picture.height), width: edge(picture.width))
        var rgba = [UInt8](repeating: 255, count: 4 * small.height * small.width)
        for y in 0..<small.height {
            for x in 0..<small.width {
                let patch = answer.grid.patch(y: y * picture.height / small.height, x: x * picture.width / small.width)
                let light = 0.25 + 0.75 * (patch.map { answer.relevance[$0] } ?? 0)
                for c in 0..<3 {
                    let i = y * small.width + x
                    rgba[4 * i + c] = UInt8(min(255, max(0, Float(small.rgb[3 * i + c]) * light)))
                }
            }
        }
        guard let provider = CGDataProvider(data: Data(rgba) as CFData),
            let image = CGImage(
                width: small.width, height: small.height, bitsPerComponent: 8, bitsPerPixel: 32,
                bytesPerRow: 4 * small.width, space: CGColorSpaceCreateDeviceRGB(),
                bitmapInfo: CGBitmapInfo(rawValue: CGImageAlphaInfo.noneSkipLast.rawValue), provider: provider,
                decode: nil, shouldInterpolate: false, intent: .defaultIntent)
        else { throw EdgekitError("the picture cannot be shown") }
        return image
    }
}
