/// The outputs for one picture, and where its patches lie. `budgets` and `indices` are empty for a model without them.
public struct Answer: Sendable {
    public let relevance: [Float]
    public let budgets: [Int64]
    public let indices: [Int64]
    public let grid: Grid

    public init(relevance: [Float], budgets: [Int64], indices: [Int64], grid: Grid) {
        self.relevance = relevance
        self.budgets = budgets
        self.indices = indices
        self.grid = grid
    }

    /// Whether anything in the picture answers the query, by the bundle's presence threshold; nil without one.
    public func isPresent(_ threshold: Float?) -> Bool? {
        threshold.map { limit in relevance.contains { $0 >= limit } }
    }
}

/// One model in one runtime. A runner is an actor: tasks take turns, and none runs on the main actor.
public protocol Runner: Actor {
    nonisolated var model: Model { get }

    /// A description of the runtime and its compute units.
    nonisolated var device: String { get }

    /// Run one batch: inputs and outputs by name. Outputs that the model does not compute are absent.
    func run(_ inputs: [String: Tensor]) async throws -> [String: Tensor]
}

extension Model {
    /// The model's inputs for one picture and query. The picture gets the size, as its input's `fit` says: by default, of
    /// the sizes that the model takes, the one that keeps its shape best.
    public func inputs(_ picture: Picture, query: [Float], size: InputSize? = nil) throws -> [String: Tensor] {
        var tensors: [String: Tensor] = [:]
        for input in manifest.inputs {
            switch input.kind {
            case "image":
                tensors[input.name] = try tensor(input, picture, size)
            case "query":
                let shape = try manifest.shape(input, sizes: ["batch": 1])
                guard query.count == valueCount(shape) else {
                    throw EdgekitError("the query has \(query.count) values, but the model expects the shape \(shape)")
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
        guard let picture = one.picture else { return one.inputs }
        let input = try manifest.pictureInput()
        return try one.inputs.merging([input.name: tensor(input, picture, nil)]) { _, new in new }
    }

    private func tensor(_ input: Manifest.TensorInfo, _ picture: Picture, _ given: InputSize?) throws -> Tensor {
        let size = try given ?? manifest.fittingSize(picture.size)
        try manifest.check(size)
        let scaled = try picture.fitted(height: size.height, width: size.width, fit: input.fit ?? "stretch")
        return scaled.tensor(low: input.low, high: input.high)
    }
}

extension Runner {
    /// Run the model on one picture and query. Token budgets and top-K that the model does not compute are computed here (the
    /// Neural Engine does not run top-K). `size` is that of the model's input: by default the one that keeps the picture's
    /// shape best.
    ///
    /// Throws an EdgekitError where the outputs are not those of the manifest for this size.
    public nonisolated func answer(_ picture: Picture, query: [Float], k: Int, size: InputSize? = nil) async throws -> Answer {
        let manifest = model.manifest
        guard let scores = manifest.output("scores") else {
            throw EdgekitError("the model '\(manifest.name)' has no scores output: use Runner.run")
        }
        let used = try size ?? manifest.fittingSize(picture.size)
        let computed = try await run(model.inputs(picture, query: query, size: used))
        guard let relevance = computed[scores.name]?.floats, relevance.allSatisfy(\.isFinite) else { throw wrong(scores) }
        let patches = try manifest.patches(scores, used, found: relevance.count)
        let isUsual = try used == manifest.defaultSize() && manifest.declares(scores)
        let usual = try isUsual ? manifest.count(scores) : relevance.count
        let expected = patches.map { $0.rows * $0.columns } ?? usual
        guard relevance.count == expected else {
            throw EdgekitError(
                "the model '\(manifest.name)' answered with \(relevance.count) scores instead of \(expected) for a picture "
                    + "of \(used.height) x \(used.width): export the assets again"
            )
        }
        let ranked = manifest.output("ranking").map { computed[$0.name] != nil } ?? false
        guard ranked || (0...expected).contains(k) else { throw EdgekitError("k is \(k), but there are \(expected) scores") }
        let outputs = completed(computed, k: k)
        func integers(_ role: String) -> [Int64]? { manifest.output(role).flatMap { outputs[$0.name]?.integers } }
        let budgets = integers("counts") ?? []
        if let counts = manifest.output("counts"), budgets.count != expected { throw wrong(counts) }
        let indices = integers("ranking") ?? topK(relevance, k).map(Int64.init)
        if let ranking = manifest.output("ranking"), !indices.allSatisfy({ 0 <= $0 && $0 < Int64(expected) }) { throw wrong(ranking) }
        let placement = try Placement(
            picture: picture.size, size: used, fit: manifest.pictureInput().fit ?? "stretch")
        let grid = Grid(rows: patches?.rows ?? 0, columns: patches?.columns ?? 0, size: used, placement: placement)
        return Answer(relevance: relevance, budgets: budgets, indices: indices, grid: grid)
    }

    private nonisolated func wrong(_ output: Manifest.TensorInfo) -> EdgekitError {
        EdgekitError(
            "the output '\(output.name)' of the model '\(model.manifest.name)' is missing, not finite or not what its "
                + "manifest says: export the assets again"
        )
    }

    /// Run every golden case on this device.
    public nonisolated func selfTest(_ bundle: ModelBundle) async throws -> [CaseReport] {
        var reports: [CaseReport] = []
        let golden = try bundle.golden()
        let ranking = model.manifest.output("ranking")?.name ?? ""
        for one in golden.cases(of: model.manifest.target) {
            let k = one.expected[ranking]?.shape.last ?? 0
            let outputs = completed(try await run(model.inputs(one)), k: k)
            reports.append(golden.evaluate(one, outputs, target: model.manifest.target))
        }
        return reports
    }

    /// A model's outputs with the token budgets and the top-K of its scores, where it does not compute them itself.
    nonisolated func completed(_ outputs: [String: Tensor], k: Int) -> [String: Tensor] {
        guard let scores = model.manifest.output("scores"), let relevance = outputs[scores.name]?.floats else { return outputs }
        var all = outputs
        if let counts = model.manifest.output("counts"), all[counts.name] == nil {
            let budgets = relevance.map { score in
                wholeNumber((counts.low + (counts.high - counts.low) * Double(score) + 0.5).rounded(.down))
            }
            all[counts.name] = Tensor(shape: [1, budgets.count], integers: budgets)
        }
        if let ranking = model.manifest.output("ranking"), all[ranking.name] == nil {
            let most = min(k, relevance.count)
            all[ranking.name] = Tensor(shape: [1, most], integers: topK(relevance, most).map(Int64.init))
        }
        return all
    }
}
