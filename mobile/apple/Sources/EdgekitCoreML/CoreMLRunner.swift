import CoreML
import Edgekit
import Foundation

/// A `.mlpackage` in Core ML.
///
/// The package is compiled once and stored in the caches folder under its hash: compiling a large one takes minutes. What was
/// compiled is hashed, and compiled again where the stored copy differs from that hash. Which
/// compute units are correct and fast depends on the device; `selfTest` and `Bench` measure it.
public actor CoreMLRunner: Runner {
    public nonisolated let model: Edgekit.Model
    private let loaded: MLModel
    private let units: MLComputeUnits

    public init(_ bundle: ModelBundle, _ target: String, units: MLComputeUnits = .all) async throws {
        model = try bundle.model(target)
        self.units = units
        let compiled = try await CoreMLRunner.compiled(try bundle.url(model.path), key: model.artifactSHA256)
        let configuration = MLModelConfiguration()
        configuration.computeUnits = units
        loaded = try await MLModel.load(contentsOf: compiled, configuration: configuration)
    }

    public nonisolated var device: String {
        let names: [MLComputeUnits: String] = [
            .all: "all units", .cpuOnly: "CPU", .cpuAndGPU: "CPU and GPU", .cpuAndNeuralEngine: "CPU and Neural Engine",
        ]
        return "Core ML, \(names[units] ?? "other units")"
    }

    public func run(_ inputs: [String: Tensor]) throws -> [String: Tensor] {
        try model.manifest.check(inputs)
        var values: [String: Any] = [:]
        for (name, tensor) in inputs {
            let description = loaded.modelDescription.inputDescriptionsByName[name]
            values[name] = description?.type == .image
                ? try pixelBuffer(tensor, low: model.manifest.input("image")?.low ?? 0, high: model.manifest.input("image")?.high ?? 1)
                : try multiArray(tensor)
        }
        let answer = try loaded.prediction(from: MLDictionaryFeatureProvider(dictionary: values))
        var outputs: [String: Tensor] = [:]
        for name in answer.featureNames {
            if let array = answer.featureValue(for: name)?.multiArrayValue { outputs[name] = tensor(array) }
        }
        return outputs
    }

    private static func compiled(_ package: URL, key: String) async throws -> URL {
        let files = FileManager.default
        let caches = try files.url(for: .cachesDirectory, in: .userDomainMask, appropriateFor: nil, create: true)
        let home = caches.appendingPathComponent("edgekit", isDirectory: true)
        try files.createDirectory(at: home, withIntermediateDirectories: true)
        let cached = home.appendingPathComponent("\(key.prefix(16)).mlmodelc", isDirectory: true)
        let seal = home.appendingPathComponent("\(key.prefix(16)).sha256")
        if let recorded = try? String(contentsOf: seal, encoding: .utf8), let found = try? sha256(ofFolder: cached),
            found == recorded
        {
            return cached
        }
        let temporary = try await MLModel.compileModel(at: package)
        _ = try? files.removeItem(at: cached)
        try files.moveItem(at: temporary, to: cached)
        try sha256(ofFolder: cached).write(to: seal, atomically: true, encoding: .utf8)
        return cached
    }
}

private func multiArray(_ tensor: Tensor) throws -> MLMultiArray {
    let values = tensor.floats
    let array = try MLMultiArray(shape: tensor.shape.map { NSNumber(value: $0) }, dataType: .float32)
    array.withUnsafeMutableBufferPointer(ofType: Float.self) { buffer, _ in
        for i in values.indices { buffer[i] = values[i] }
    }
    return array
}

private func tensor(_ array: MLMultiArray) -> Tensor {
    let shape = array.shape.map(\.intValue)
    // The rows of an output may be padded, so the elements are read by their strides.
    let strides = array.strides.map(\.intValue)
    let offsets = (0..<array.count).map { flat -> Int in
        var rest = flat
        var offset = 0
        for axis in shape.indices.reversed() {
            offset += rest % shape[axis] * strides[axis]
            rest /= shape[axis]
        }
        return offset
    }
    switch array.dataType {
    case .int32:
        return array.withUnsafeBufferPointer(ofType: Int32.self) { buffer in
            Tensor(shape: shape, integers: offsets.map { Int64(buffer[$0]) })
        }
    case .float16:
        return array.withUnsafeBytes { bytes in
            let halves = bytes.bindMemory(to: UInt16.self)
            return Tensor(shape: shape, floats: offsets.map { half(halves[$0]) })
        }
    case .double:
        return array.withUnsafeBufferPointer(ofType: Double.self) { buffer in
            Tensor(shape: shape, floats: offsets.map { Float(buffer[$0]) })
        }
    default:
        return array.withUnsafeBufferPointer(ofType: Float.self) { buffer in
            Tensor(shape: shape, floats: offsets.map { buffer[$0] })
        }
    }
}

/// IEEE 754 binary16 to binary32; `Float16` is missing on Intel Macs.
private func half(_ bits: UInt16) -> Float {
    let sign: Float = bits & 0x8000 == 0 ? 1 : -1
    let exponent = Int(bits >> 10 & 0x1f)
    let fraction = Float(bits & 0x3ff)
    switch exponent {
    case 0: return sign * fraction * 0x1p-24
    case 31: return fraction == 0 ? sign * .infinity : .nan
    default: return sign * (1 + fraction / 1024) * Float(sign: .plus, exponent: exponent - 15, significand: 1)
    }
}
