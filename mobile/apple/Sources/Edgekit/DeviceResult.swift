import Foundation

/// The `result.json` that `edgekit report` reads: what was measured on this device, with the fields of edgekit's Result.
///
/// Put it at `build/<model>/imported/<device>-<target>/result.json`; the report shows it beside the other places.
public struct DeviceResult: Encodable, Sendable {
    public struct Measure: Encodable, Sendable {
        let batch = "golden"
        let output: String
        let metric: String
        let value: Double?
        let limit: Double
        let passed: Bool
        let row: String

        enum CodingKeys: String, CodingKey {
            case batch, output, metric, value, limit, passed, row
        }

        public func encode(to encoder: Encoder) throws {
            var row = encoder.container(keyedBy: CodingKeys.self)
            try row.encode(batch, forKey: .batch)
            try row.encode(output, forKey: .output)
            try row.encode(metric, forKey: .metric)
            try row.encode(value, forKey: .value)  // null where it is not finite; synthesized code would omit it
            try row.encode(limit, forKey: .limit)
            try row.encode(passed, forKey: .passed)
            try row.encode(self.row, forKey: .row)
        }
    }

    public struct Place: Encodable, Sendable {
        let place: String
        let device: String
        let status: String
        let reasons: [String]
        let notes: [String]
        let measures: [Measure]
        let timings: [String: Timing]
    }

    enum CodingKeys: String, CodingKey {
        case name, target, precision, size, host, places
        case schemaVersion = "schema_version"
        case artifactSHA256 = "artifact_sha256"
        case referenceSHA256 = "reference_sha256"
        case referenceDevice = "reference_device"
    }

    let schemaVersion = 1
    let name: String
    let target: String
    let precision: String
    let artifactSHA256: String
    let referenceSHA256: String
    let referenceDevice: String
    let size: Int
    let host: [String: String]
    let places: [Place]

    public init(
        bundle: ModelBundle, runner: any Runner, cases: [CaseReport], timing: Timing?, place: String, host: [String: String]
    ) {
        let model = runner.model
        let failed = cases.filter { !$0.passed }
        name = model.manifest.name
        target = model.manifest.target
        precision = model.manifest.precision
        artifactSHA256 = model.artifactSHA256
        referenceSHA256 = bundle.referenceSHA256
        referenceDevice = bundle.referenceDevice
        let own = bundle.files.filter { $0.path == model.path || $0.path.hasPrefix(model.path + "/") }
        size = own.reduce(0) { $0 + $1.size }
        self.host = host
        places = [
            Place(
                place: place,
                device: runner.device,
                status: cases.isEmpty ? "not verified here" : failed.isEmpty ? "verified" : "rejected",
                reasons: cases.isEmpty ? ["the bundle has no golden vectors"] : failed.map { "\($0.name): \($0.reason)" },
                notes: ["compared on \(cases.count) golden vectors"],
                measures: DeviceResult.measures(cases),
                timings: timing.map { ["candidate": $0] } ?? [:]
            )
        ]
    }

    /// The file's bytes.
    public func json() throws -> Data {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
        return try encoder.encode(self)
    }

    private static func measures(_ cases: [CaseReport]) -> [Measure] {
        let share = { (one: CaseReport) in one.passed ? one.error / max(one.limit, .leastNormalMagnitude) : .infinity }
        guard let nearest = cases.max(by: { share($0) < share($1) }) else { return [] }
        let names = ["max_abs": "max abs", "wrong": "unequal", "lost_mass": "lost mass"]
        return [
            Measure(
                output: nearest.output, metric: names[nearest.metric] ?? nearest.metric,
                value: nearest.error.isFinite ? nearest.error : nil, limit: nearest.limit, passed: nearest.passed,
                row: nearest.name)
        ]
    }
}

/// The identifier of this device's model, such as "iPhone16,2"; `UIDevice.model` says "iPhone" of all of them.
public func deviceModel() -> String {
    if let simulated = ProcessInfo.processInfo.environment["SIMULATOR_MODEL_IDENTIFIER"] { return "simulated \(simulated)" }
    var names = utsname()
    uname(&names)
    return withUnsafeBytes(of: names.machine) { bytes in String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self) }
}
