import Foundation

/// What `edgekit export` says of one artifact: the contract that every platform reads.
///
/// `manifest.schema.json` of edgekit describes the whole; only what an app needs is read here.
public struct Manifest: Decodable, Sendable {
    /// A size is fixed, or the name of an axis.
    public enum Size: Decodable, Equatable, Sendable {
        case fixed(Int)
        case axis(String)

        public init(from decoder: Decoder) throws {
            let value = try decoder.singleValueContainer()
            if let name = try? value.decode(String.self) {
                self = .axis(name)
            } else {
                self = .fixed(try value.decode(Int.self))
            }
        }
    }

    /// An input or output of a model.
    public struct TensorInfo: Decodable, Sendable {
        public let name: String
        public let dtype: String
        public let shape: [Size]
        public let role: String
        public let kind: String
        public let of: String
        public let low: Double
        public let high: Double
    }

    /// A dimension: dynamic within minimum and maximum in steps of multipleOf, or fixed at its default.
    public struct Axis: Decodable, Sendable {
        public let `default`: Int
        public let minimum: Int
        public let maximum: Int
        public let multipleOf: Int
        public let dynamic: Bool

        enum CodingKeys: String, CodingKey {
            case `default`, minimum, maximum, dynamic
            case multipleOf = "multiple_of"
        }

        public func takes(_ size: Int) -> Bool {
            dynamic ? (minimum...maximum).contains(size) && size % multipleOf == 0 : size == `default`
        }
    }

    /// A file by path, size in bytes and sha256.
    public struct File: Decodable, Sendable {
        public let path: String
        public let size: Int
        public let sha256: String
    }

    /// The verdict in one place.
    public struct Verdict: Decodable, Sendable {
        public let place: String
        public let status: String
    }

    public static let schemaVersion = 1

    public let schemaVersion: Int
    public let name: String
    public let target: String
    public let precision: String
    public let entry: String
    public let inputs: [TensorInfo]
    public let outputs: [TensorInfo]
    public let axes: [String: Axis]
    public let files: [File]
    public let verdicts: [Verdict]
    public let notes: [String]

    enum CodingKeys: String, CodingKey {
        case name, target, precision, entry, inputs, outputs, axes, files, verdicts, notes
        case schemaVersion = "schema_version"
    }

    /// Read a manifest.json; `name` is what errors call it.
    public static func parse(_ data: Data, name: String = "manifest.json") throws -> Manifest {
        let manifest: Manifest = try decode(data, name: name)
        guard manifest.schemaVersion == schemaVersion else {
            throw EdgekitError(
                "\(name) has schema version \(manifest.schemaVersion), and this app reads \(schemaVersion): "
                    + "export the assets again"
            )
        }
        return manifest
    }

    /// The input of a kind ("image", "query"), if any.
    public func input(_ kind: String) -> TensorInfo? { inputs.first { $0.kind == kind } }

    /// The output of a role ("scores", "counts", "ranking", "features"), if any.
    public func output(_ role: String) -> TensorInfo? { outputs.first { $0.role == role } }

    /// The sizes of a tensor, where `sizes` gives those of some axes and the others have their defaults.
    public func shape(_ tensor: TensorInfo, sizes: [String: Int] = [:]) throws -> [Int] {
        try tensor.shape.map { size in
            switch size {
            case .fixed(let size): return size
            case .axis(let name): return try sizes[name] ?? axis(name).default
            }
        }
    }

    /// Refuse inputs whose sizes the artifact does not take: a runtime may answer all the same, and wrongly.
    public func check(_ given: [String: Tensor]) throws {
        for declared in inputs {
            guard let tensor = given[declared.name] else {
                throw EdgekitError("the model '\(name)' needs the input '\(declared.name)'")
            }
            var fits = tensor.shape.count == declared.shape.count
            for (size, wanted) in zip(tensor.shape, declared.shape) {
                switch wanted {
                case .fixed(let number): fits = fits && size == number
                case .axis(let axisName): fits = try fits && axis(axisName).takes(size)
                }
            }
            if !fits {
                throw EdgekitError("'\(declared.name)' of the model '\(name)' does not take the sizes \(tensor.shape)")
            }
        }
    }

    private func axis(_ axisName: String) throws -> Axis {
        guard let axis = axes[axisName] else {
            throw EdgekitError("the manifest of '\(name)' lacks the axis '\(axisName)'")
        }
        return axis
    }
}

/// Decode JSON and say in a sentence which field is wrong.
func decode<T: Decodable>(_ data: Data, name: String) throws -> T {
    do {
        return try JSONDecoder().decode(T.self, from: data)
    } catch let error as DecodingError {
        let path: [CodingKey]
        switch error {
        case .keyNotFound(let key, let context): path = context.codingPath + [key]
        case .typeMismatch(_, let context), .valueNotFound(_, let context), .dataCorrupted(let context):
            path = context.codingPath
        @unknown default: path = []
        }
        let field = path.map(\.stringValue).joined(separator: ".")
        throw EdgekitError("\(name) is damaged\(field.isEmpty ? "" : " in '\(field)'"): export the assets again")
    }
}
