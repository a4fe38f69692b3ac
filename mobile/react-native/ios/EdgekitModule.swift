import Edgekit
import EdgekitCoreAI
import EdgekitCoreML
import Foundation

/// edgekit's Swift library for JavaScript: opens runners, names them by numbers, and settles promises.
@objc(EdgekitModule)
public final class EdgekitModule: NSObject {
    public typealias Resolve = (Any?) -> Void
    public typealias Reject = (String?, String?, Error?) -> Void

    private let runners = OpenRunners()

    @objc(load:target:selfTest:resolve:reject:)
    public func load(
        _ source: String, target: String?, selfTest: Bool, resolve: @escaping Resolve, reject: @escaping Reject
    ) {
        settle(resolve, reject) { [runners] in
            let bundle = try openBundle(source)
            try coded("HASH_MISMATCH") { try bundle.verify() }
            let own = try await coded("BACKEND") {
                OpenRunner(
                    bundle: bundle, runner: try await openRunner(bundle, target), encoder: try bundle.encoder(),
                    threshold: try bundle.presenceThreshold())
            }
            let cases = selfTest ? try await coded("BACKEND") { try await own.runner.selfTest(bundle) } : []
            if let failed = cases.first(where: { !$0.passed }) {
                throw CodedError("SELF_TEST", "this device differs from the reference in '\(failed.name)': \(failed.reason)")
            }
            return info(await runners.add(own), own, cases)
        }
    }

    @objc(run:image:pixels:query:vector:k:size:resolve:reject:)
    public func run(
        _ runner: Double, image: String, pixels: [NSNumber], query: String?, vector: [NSNumber], k: Double,
        size: [NSNumber], resolve: @escaping Resolve, reject: @escaping Reject
    ) {
        settle(resolve, reject) { [runners] in
            let own = try await runners.find(Int(runner))
            let start = ContinuousClock.now
            let picture = try coded("IMAGE") {
                pixels.isEmpty ? try decode(image) : try unpack(image, pixels[0].intValue, pixels[1].intValue)
            }
            let encoded: Query? = try coded("QUERY") {
                guard let query else { return nil }
                guard let encoder = own.encoder else {
                    throw EdgekitError("the bundle has no vocabulary: pass the query as a Float32Array")
                }
                return try encoder.encode(query)
            }
            let values = encoded?.vector ?? vector.map(\.floatValue)
            let inputSize = size.isEmpty ? nil : InputSize(height: size[0].intValue, width: size[1].intValue)
            let answer = try await coded("BACKEND") {
                try await own.runner.answer(picture, query: values, k: Int(k), size: inputSize)
            }
            return result(answer, encoded?.known ?? [], answer.isPresent(own.threshold), ContinuousClock.now - start)
        }
    }

    @objc(selfTest:resolve:reject:)
    public func selfTest(_ runner: Double, resolve: @escaping Resolve, reject: @escaping Reject) {
        settle(resolve, reject) { [runners] in
            let own = try await runners.find(Int(runner))
            return try await coded("BACKEND") { try await own.runner.selfTest(own.bundle) }.map(record)
        }
    }

    @objc(dispose:resolve:reject:)
    public func dispose(_ runner: Double, resolve: @escaping Resolve, reject: @escaping Reject) {
        settle(resolve, reject) { [runners] in
            await runners.remove(Int(runner))
            return nil
        }
    }

    /// Work off JavaScript's thread, and tell the promise how it ended.
    private func settle(
        _ resolve: @escaping Resolve, _ reject: @escaping Reject, _ work: @escaping () async throws -> Any?
    ) {
        Task.detached {
            do {
                resolve(try await work())
            } catch {
                reject((error as? CodedError)?.code ?? "BACKEND", error.localizedDescription, error)
            }
        }
    }
}

private struct OpenRunner: Sendable {
    let bundle: ModelBundle
    let runner: any Runner
    let encoder: QueryEncoder?
    let threshold: Float?
}

/// The runners by the numbers that JavaScript knows.
private actor OpenRunners {
    private var opened: [Int: OpenRunner] = [:]
    private var last = 0

    func add(_ runner: OpenRunner) -> Int {
        last += 1
        opened[last] = runner
        return last
    }

    func find(_ number: Int) throws -> OpenRunner {
        guard let own = opened[number] else { throw CodedError("USAGE", "the runner was disposed: load the bundle again") }
        return own
    }

    func remove(_ number: Int) {
        opened[number] = nil
    }
}

/// A failure with a code of `@edgekit/web/types`.
private struct CodedError: LocalizedError {
    let code: String
    let message: String

    init(_ code: String, _ message: String) {
        self.code = code
        self.message = message
    }

    var errorDescription: String? { message }
}

/// Give what a step throws the step's code.
private func coded<T>(_ code: String, _ step: () throws -> T) throws -> T {
    do { return try step() } catch let error as CodedError { throw error } catch {
        throw CodedError(code, error.localizedDescription)
    }
}

private func coded<T>(_ code: String, _ step: () async throws -> T) async throws -> T {
    do { return try await step() } catch let error as CodedError { throw error } catch {
        throw CodedError(code, error.localizedDescription)
    }
}

private func openBundle(_ source: String) throws -> ModelBundle {
    let address = source.hasPrefix("file:") ? URL(string: source) : Bundle.main.resourceURL?.appendingPathComponent("edgekit/\(source)")
    guard let folder = address, FileManager.default.fileExists(atPath: folder.appendingPathComponent("bundle.json").path) else {
        throw CodedError("ASSET_MISSING", "there is no bundle '\(source)': run edgekit assets ios")
    }
    return try coded("MANIFEST") { try ModelBundle(folder: folder) }
}

private func openRunner(_ bundle: ModelBundle, _ target: String?) async throws -> any Runner {
    guard let name = target ?? bundle.models.first?.manifest.target else {
        throw EdgekitError("the bundle '\(bundle.name)' has no model: export the assets again")
    }
    guard name.hasPrefix("coreai") else { return try await CoreMLRunner(bundle, name) }
    #if canImport(CoreAI)
    if #available(iOS 27.0, macOS 27.0, *) { return try await CoreAIRunner(bundle, name) }
    #endif
    throw EdgekitError("'\(name)' needs Core AI, which begins with iOS 27: choose a Core ML model")
}

private func decode(_ address: String) throws -> Picture {
    guard let url = URL(string: address), url.isFileURL else {
        throw EdgekitError("'\(address)' is not the file:// address of a picture")
    }
    return try Picture(uprightImage(Data(contentsOf: url)))
}

/// RGB or RGBA bytes in Base64 as a picture.
private func unpack(_ base64: String, _ height: Int, _ width: Int) throws -> Picture {
    let bytes = [UInt8](Data(base64Encoded: base64) ?? Data())
    guard height > 0, width > 0, [3, 4].contains(where: { $0 * height * width == bytes.count }) else {
        throw EdgekitError("\(bytes.count) bytes are not the RGB or RGBA pixels of \(height) x \(width)")
    }
    let isOpaque = bytes.count == 3 * height * width
    return isOpaque ? Picture(height: height, width: width, rgb: bytes) : Picture(height: height, width: width, rgba: bytes)
}

private func info(_ number: Int, _ own: OpenRunner, _ cases: [CaseReport]) -> [String: Any] {
    let manifest = own.runner.model.manifest
    return [
        "runner": number,
        "name": own.bundle.name,
        "target": manifest.target,
        "targets": own.bundle.models.map(\.manifest.target),
        "precision": manifest.precision,
        "device": own.runner.device,
        "reference": own.bundle.referenceDevice,
        "verdicts": manifest.verdicts.map { ["place": $0.place, "status": $0.status] },
        "words": own.encoder?.words ?? [],
        "threshold": own.threshold.map { Double($0) as Any } ?? NSNull(),
        "cases": cases.map(record),
    ]
}

private func result(_ answer: Answer, _ known: [String], _ isPresent: Bool?, _ spent: Duration) -> [String: Any] {
    let grid = answer.grid
    let (seconds, attoseconds) = spent.components
    return [
        "relevance": answer.relevance.map(Double.init),
        "budgets": answer.budgets,
        "indices": answer.indices,
        "rows": grid.rows,
        "columns": grid.columns,
        "size": [grid.size.height, grid.size.width],
        "part": numbers(grid.placement.part),
        "place": numbers(grid.placement.place),
        "known": known,
        "present": isPresent.map { $0 as Any } ?? NSNull(),
        "ms": 1e3 * Double(seconds) + Double(attoseconds) / 1e15,
    ]
}

private func record(_ report: CaseReport) -> [String: Any] {
    [
        "name": report.name,
        "pass": report.passed,
        "output": report.output,
        "metric": report.metric,
        "error": report.error,
        "limit": report.limit,
        "reason": report.reason,
    ]
}

private func numbers(_ box: Box) -> [Int] {
    [box.top, box.left, box.height, box.width]
}
