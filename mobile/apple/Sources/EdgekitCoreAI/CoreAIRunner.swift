#if canImport(CoreAI)
import CoreAI
import Edgekit
import Foundation

/// An `.aimodel` in Core AI, from iOS 27 and macOS 27 on.
///
/// The system specializes the model for this device when it is first loaded, and stores the result in a cache of its own:
/// the first start takes longer. Which compute unit is correct and fast depends on the device; `selfTest` and `Bench`
/// measure it. Core AI is absent from the iOS simulator.
@available(iOS 27.0, macOS 27.0, *)
public actor CoreAIRunner: Runner {
    /// The function that edgekit writes into an `.aimodel`; those of enumerated sizes are "main_s224x224" and so on.
    public static let function = "main"

    public nonisolated let model: Edgekit.Model
    private let asset: AIModel
    private var functions: [String: InferenceFunction] = [:]
    private let preferred: ComputeUnitKind?

    /// Load a model of a bundle; `preferred` is the compute unit to use where the model's operators allow it, and nil
    /// lets the system choose.
    public init(_ bundle: ModelBundle, _ target: String, preferred: ComputeUnitKind? = nil) async throws {
        model = try bundle.model(target)
        self.preferred = preferred
        let options = preferred.map { SpecializationOptions(preferredComputeUnitKind: $0) } ?? .default
        asset = try await AIModel(contentsOf: try bundle.url(model.path), options: options)
        _ = try function(functionName(model.manifest.sizes?.first))
    }

    public nonisolated var device: String {
        let name: String
        switch preferred {
        case .cpu: name = "CPU"
        case .gpu: name = "GPU preferred"
        case .neuralEngine: name = "Neural Engine preferred"
        default: name = "all units"
        }
        return "Core AI, \(name)"
    }

    public func run(_ inputs: [String: Tensor]) async throws -> [String: Tensor] {
        try model.manifest.check(inputs)
        let loaded = try function(functionName(model.manifest.enumeratedSize(inputs)))
        var arrays: [String: NDArray] = [:]
        for (name, tensor) in inputs { arrays[name] = try array(tensor, as: scalarType(of: name, in: loaded)) }
        var answer = try await loaded.run(inputs: arrays)
        var outputs: [String: Tensor] = [:]
        for name in loaded.descriptor.outputNames {
            if let found = answer.remove(name)?.ndArray { outputs[name] = try tensor(found) }
        }
        return outputs
    }

    /// A function is loaded when its size is first asked for.
    private func function(_ name: String) throws -> InferenceFunction {
        if let known = functions[name] { return known }
        guard let loaded = try asset.loadFunction(named: name) else {
            throw EdgekitError("'\(model.path)' has no function '\(name)': export the assets again")
        }
        functions[name] = loaded
        return loaded
    }

    private func functionName(_ sizes: [String: Int]?) -> String {
        guard let sizes else { return CoreAIRunner.function }
        return "\(CoreAIRunner.function)_s\(model.manifest.sizeText(sizes))"
    }

    private func scalarType(of name: String, in loaded: InferenceFunction) throws -> NDArray.ScalarType {
        guard case .ndArray(let described) = loaded.descriptor.inputDescriptor(of: name) else {
            throw EdgekitError("the input '\(name)' of the model '\(model.manifest.name)' is no array in '\(model.path)'")
        }
        return described.scalarType
    }
}

/// Core AI has no int64: the package's integers are int32.
@available(iOS 27.0, macOS 27.0, *)
private func array(_ tensor: Tensor, as type: NDArray.ScalarType) throws -> NDArray {
    switch type {
    case .float32: return NDArray(scalars: tensor.floats, shape: tensor.shape)
    case .int32: return NDArray(scalars: try tensor.integers.map(narrow), shape: tensor.shape)
    default: throw EdgekitError("an input has the type \(type), but edgekit writes float32 and int32")
    }
}

private func narrow(_ value: Int64) throws -> Int32 {
    guard let narrowed = Int32(exactly: value) else {
        throw EdgekitError("an input has the value \(value), but Core AI takes integers of 32 bits")
    }
    return narrowed
}

@available(iOS 27.0, macOS 27.0, *)
private func tensor(_ array: NDArray) throws -> Tensor {
    switch array.scalarType {
    case .float32: return Tensor(shape: array.shape, floats: try elements(array, as: Float.self))
    case .int32: return Tensor(shape: array.shape, integers: try elements(array, as: Int32.self).map(Int64.init))
    default: throw EdgekitError("an output has the type \(array.scalarType), but edgekit writes float32 and int32")
    }
}

/// The elements in row-major order; the rows of an output may be padded, so they are read by their strides.
@available(iOS 27.0, macOS 27.0, *)
private func elements<Element: BitwiseCopyable>(_ array: NDArray, as type: Element.Type) throws -> [Element] {
    let view = array.view(as: type)
    guard view.interleaveLayout == nil else {
        throw EdgekitError("an output has interleaved elements, which edgekit does not read: prefer another compute unit")
    }
    return view.withUnsafePointer { first, shape, strides in
        let count = shape.indices.reduce(1) { $0 * shape[$1] }
        return (0..<count).map { flat in
            var rest = flat
            var offset = 0
            for axis in shape.indices.reversed() {
                offset += rest % shape[axis] * strides[axis]
                rest /= shape[axis]
            }
            return first[offset]
        }
    }
}
#endif
