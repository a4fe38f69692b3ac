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

    /// The inputs of a golden case of a model without scores; its picture is preprocessed as any other.
    public func inputs(_ one: NamedCase) throws -> [String: Tensor] {
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
        let outputs = try await run(model.inputs(picture, query: query))
        guard let scores = model.manifest.output("scores"), let relevance = outputs[scores.name]?.floats else {
            throw EdgekitError("the model '\(model.manifest.name)' has no scores output: use Runner.run")
        }
        let ranking = model.manifest.output("ranking").flatMap { outputs[$0.name]?.integers }
        var budgets: [Int64] = []
        if let counts = model.manifest.output("counts") {
            budgets = outputs[counts.name]?.integers ?? relevance.map { score in
                Int64((counts.low + (counts.high - counts.low) * Double(score) + 0.5).rounded(.down))
            }
        }
        return Answer(
            relevance: relevance, budgets: budgets, indices: ranking ?? topK(relevance, k).map(Int64.init))
    }

    /// Run every golden case on this device.
    public func selfTest(_ bundle: ModelBundle) async throws -> [CaseReport] {
        var reports: [CaseReport] = []
        for one in try bundle.golden() {
            let answered = try await answer(one.picture, query: one.query, k: one.expected.indices.count)
            reports.append(one.evaluate(answered, limit: model.maxAbs))
        }
        let named = try bundle.goldenOutputs()
        for one in named.cases {
            let outputs = try await run(model.inputs(one))
            reports.append(one.evaluate(outputs, limits: named.limits[model.manifest.target] ?? [:]))
        }
        return reports
    }
}
