/// The outputs for one picture. `budgets` and `indices` are empty for a model without them.
public struct Answer: Sendable {
    public let relevance: [Float]
    public let budgets: [Int64]
    public let indices: [Int64]

    public init(relevance: [Float], budgets: [Int64], indices: [Int64]) {
        self.relevance = relevance
        self.budgets = budgets
        self.indices = indices
    }

    /// Whether anything in the picture answers the query, by the bundle's presence threshold; nil without one.
    public func isPresent(_ threshold: Float?) -> Bool? {
        threshold.map { limit in relevance.contains { $0 >= limit } }
    }
}

/// One model in one runtime, for one task at a time.
public protocol Runner {
    var model: Model { get }

    /// A description of the runtime and its compute units.
    var device: String { get }

    /// Run one batch: inputs and outputs by name. Outputs that the model does not compute are absent.
    func run(_ inputs: [String: Tensor]) async throws -> [String: Tensor]
}

extension Model {
    /// The model's inputs for one picture and query; the picture gets the model's size as its input says.
    public func inputs(_ picture: Picture, query: [Float]) throws -> [String: Tensor] {
        var tensors: [String: Tensor] = [:]
        for input in manifest.inputs {
            let shape = try manifest.shape(input, sizes: ["batch": 1])
            switch input.kind {
            case "image":
                let scaled = try picture.fitted(height: shape[2], width: shape[3], fit: input.fit ?? "stretch")
                tensors[input.name] = scaled.tensor(low: input.low, high: input.high)
            case "query":
                guard query.count == shape[1] else {
                    throw EdgekitError("the query has \(query.count) values, but the model expects \(shape[1])")
                }
                tensors[input.name] = Tensor(shape: shape, floats: query)
            default:
                throw EdgekitError("the input '\(input.name)' is neither an image nor a query: use Runner.run")
            }
        }
        return tensors
    }

    /// The inputs of a golden case; its picture is preprocessed as any other.
    public func inputs(_ one: GoldenCase) throws -> [String: Tensor] {
        guard let picture = one.picture, let input = manifest.inputs.first(where: { $0.kind == "image" }) else {
            return one.inputs
        }
        let shape = try manifest.shape(input, sizes: ["batch": 1])
        let scaled = try picture.fitted(height: shape[2], width: shape[3], fit: input.fit ?? "stretch")
        return one.inputs.merging([input.name: scaled.tensor(low: input.low, high: input.high)]) { _, new in new }
    }
}

extension Runner {
    /// Run the model on one picture and query. Token budgets and top-K that the model does not compute are computed here (the
    /// Neural Engine does not run top-K).
    public func answer(_ picture: Picture, query: [Float], k: Int) async throws -> Answer {
        let outputs = completed(try await run(model.inputs(picture, query: query)), k: k)
        guard let scores = model.manifest.output("scores"), let relevance = outputs[scores.name]?.floats else {
            throw EdgekitError("the model '\(model.manifest.name)' has no scores output: use Runner.run")
        }
        func integers(_ role: String) -> [Int64]? { model.manifest.output(role).flatMap { outputs[$0.name]?.integers } }
        let indices = integers("ranking") ?? topK(relevance, k).map(Int64.init)
        return Answer(relevance: relevance, budgets: integers("counts") ?? [], indices: indices)
    }

    /// Run every golden case on this device.
    public func selfTest(_ bundle: ModelBundle) async throws -> [CaseReport] {
        var reports: [CaseReport] = []
        let golden = try bundle.golden()
        let ranking = model.manifest.output("ranking")?.name ?? ""
        for one in golden.cases {
            let k = one.expected[ranking]?.shape.last ?? 0
            let outputs = completed(try await run(model.inputs(one)), k: k)
            reports.append(golden.evaluate(one, outputs, target: model.manifest.target))
        }
        return reports
    }

    /// A model's outputs with the token budgets and the top-K of its scores, where it does not compute them itself.
    func completed(_ outputs: [String: Tensor], k: Int) -> [String: Tensor] {
        guard let scores = model.manifest.output("scores"), let relevance = outputs[scores.name]?.floats else { return outputs }
        var all = outputs
        if let counts = model.manifest.output("counts"), all[counts.name] == nil {
            let budgets = relevance.map { score in
                Int64((counts.low + (counts.high - counts.low) * Double(score) + 0.5).rounded(.down))
            }
            all[counts.name] = Tensor(shape: [1, budgets.count], integers: budgets)
        }
        if let ranking = model.manifest.output("ranking"), all[ranking.name] == nil {
            all[ranking.name] = Tensor(shape: [1, k], integers: topK(relevance, k).map(Int64.init))
        }
        return all
    }
}
