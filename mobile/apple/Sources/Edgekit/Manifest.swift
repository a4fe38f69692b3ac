import Foundation

/// The description of one artifact that `edgekit export` writes.
///
/// edgekit's `manifest.schema.json` describes all fields; only those that an app uses are here.
public struct Manifest: Decodable, Sendable {
    /// One size of a tensor: a number, or the name of an axis.
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
        public let fit: String?
    }

    /// An axis: dynamic within minimum and maximum in steps of multipleOf, or fixed at its default.
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

        public func accepts(_ size: Int) -> Bool {
            // Neither a range whose ends are swapped nor steps of 0 may stop the app.
            dynamic
                ? minimum <= size && size <= maximum && multipleOf > 0 && size % multipleOf == 0
                : size == `default`
        }
    }

    /// A file by its path in the bundle, its size in bytes and its sha256.
    public struct File: Decodable, Sendable {
        public let path: String
        public let size: Int
        public let sha256: String
    }

    /// The verdict of one place: "verified", "rejected" or "not verified here".
    public struct Verdict: Decodable, Sendable {
        public let place: String
        public let status: String
    }

    public static let schemaVersion = 2

    public let schemaVersion: Int
    public let name: String
    public let target: String
    public let precision: String
    public let entry: String
    public let inputs: [TensorInfo]
    public let outputs: [TensorInfo]
    public let axes: [String: Axis]
    /// The only sizes of the axes beside the batch that the artifact takes together; nil or empty: all within `axes`.
    public let sizes: [[String: Int]]?
    public let files: [File]
    public let verdicts: [Verdict]
    public let notes: [String]

    enum CodingKeys: String, CodingKey {
        case name, target, precision, entry, inputs, outputs, axes, sizes, files, verdicts, notes
        case schemaVersion = "schema_version"
    }

    /// Parse a manifest.json; `name` is its name in error messages.
    public static func parse(_ data: Data, name: String = "manifest.json") throws -> Manifest {
        let manifest: Manifest = try decode(data, name: name)
        guard manifest.schemaVersion == schemaVersion else {
            throw EdgekitError(
                "\(name) has schema version \(manifest.schemaVersion), but this app supports version \(schemaVersion): "
                    + "export the assets again"
            )
        }
        let tensors = manifest.inputs + manifest.outputs
        let symbols = tensors.flatMap(\.shape).compactMap { size -> String? in
            if case .axis(let axisName) = size { return axisName }
            return nil
        }
        let names = [manifest.name, manifest.target, manifest.precision] + tensors.map(\.name) + symbols
        for word in names + manifest.axes.keys + manifest.verdicts.map(\.place) where !isName(word) {
            throw EdgekitError(
                "\(name) is invalid: '\(word)' is not a name: letters, digits, dots, dashes and underscores are possible"
            )
        }
        var edges = manifest.axes.values.flatMap { [$0.default, $0.minimum, $0.maximum, $0.multipleOf] }
        edges += (manifest.sizes ?? []).flatMap(\.values)
        edges += tensors.flatMap(\.shape).compactMap { size -> Int? in
            if case .fixed(let number) = size { return number }
            return nil
        }
        // Swift ends an app whose products overflow.
        if let edge = edges.first(where: { $0 < 0 || $0 > Int(Int32.max) }) {
            throw EdgekitError("\(name) is invalid: it has a size of \(edge): export the assets again")
        }
        return manifest
    }

    /// Whether a word is of letters, digits, dots, dashes and underscores.
    private static func isName(_ word: String) -> Bool {
        word.range(of: "^[A-Za-z0-9_][A-Za-z0-9_.-]*$", options: .regularExpression)?.upperBound == word.endIndex
    }

    /// The input of a kind ("image", "query"), if any.
    public func input(_ kind: String) -> TensorInfo? { inputs.first { $0.kind == kind } }

    /// The output of a role ("scores", "counts", "ranking", "features"), if any.
    public func output(_ role: String) -> TensorInfo? { outputs.first { $0.role == role } }

    /// The shape of a tensor; an axis that is not in `sizes` has its default size.
    public func shape(_ tensor: TensorInfo, sizes: [String: Int] = [:]) throws -> [Int] {
        try tensor.shape.map { size in
            switch size {
            case .fixed(let size): return size
            case .axis(let name): return try sizes[name] ?? axis(name).default
            }
        }
    }

    /// Refuse inputs whose shape the artifact does not accept: a runtime may run them and return wrong results.
    public func check(_ given: [String: Tensor]) throws {
        for declared in inputs {
            guard let tensor = given[declared.name] else {
                throw EdgekitError("the input '\(declared.name)' of the model '\(name)' is missing")
            }
            var fits = tensor.shape.count == declared.shape.count
            for (size, wanted) in zip(tensor.shape, declared.shape) {
                switch wanted {
                case .fixed(let number): fits = fits && size == number
                case .axis(let axisName): fits = try fits && axis(axisName).accepts(size)
                }
            }
            if !fits {
                let accepted = try declared.shape.map(describe).joined(separator: ", ")
                throw EdgekitError(
                    "the input '\(declared.name)' of the model '\(name)' has the shape \(tensor.shape), "
                        + "but the model accepts [\(accepted)]"
                )
            }
        }
        _ = try enumeratedSize(given)
    }

    /// Which of the sizes that the artifact enumerates all inputs have; nil where it enumerates none.
    public func enumeratedSize(_ given: [String: Tensor]) throws -> [String: Int]? {
        guard let sizes, !sizes.isEmpty else { return nil }
        let found = sizes.first { one in
            inputs.allSatisfy { input in
                zip(input.shape, given[input.name]?.shape ?? []).allSatisfy { wanted, size in
                    guard case .axis(let axisName) = wanted, let taken = one[axisName] else { return true }
                    return taken == size
                }
            }
        }
        if let found { return found }
        let shapes = inputs.map { "'\($0.name)' \(given[$0.name]?.shape ?? [])" }.joined(separator: ", ")
        throw notListed(shapes)
    }

    func notListed(_ shown: String) -> EdgekitError {
        let known = (sizes ?? []).map(sizeText).joined(separator: ", ")
        return EdgekitError("the model '\(name)' (\(target)) takes the sizes \(known), not \(shown)")
    }

    /// Sizes in the order in which the inputs' shapes name their axes: height 320 and width 256 are "320x256".
    public func sizeText(_ sizes: [String: Int]) -> String {
        var order: [String] = []
        for case .axis(let axisName) in inputs.flatMap(\.shape) where sizes[axisName] != nil && !order.contains(axisName) {
            order.append(axisName)
        }
        return order.compactMap { sizes[$0].map(String.init) }.joined(separator: "x")
    }

    func describe(_ size: Size) throws -> String {
        switch size {
        case .fixed(let number): return "\(number)"
        case .axis(let axisName):
            let found = try axis(axisName)
            return found.dynamic ? "\(found.minimum) to \(found.maximum) in steps of \(found.multipleOf)" : "\(found.default)"
        }
    }

    func axis(_ axisName: String) throws -> Axis {
        guard let axis = axes[axisName] else {
            throw EdgekitError("the manifest of '\(name)' has no axis '\(axisName)'")
        }
        return axis
    }
}

/// Decode a JSON file; the error names the invalid field.
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
        throw EdgekitError("\(name) is invalid\(field.isEmpty ? "" : " in the field '\(field)'"): export the assets again")
    } catch {
        throw EdgekitError("\(name) is invalid: export the assets again")
    }
}
