/// Height and width of a picture in pixels.
public struct InputSize: Equatable, Sendable {
    public let height: Int
    public let width: Int

    public init(height: Int, width: Int) {
        self.height = height
        self.width = width
    }
}

extension Manifest {
    /// Of the sizes that the model takes, the one that keeps a picture's shape best, with about as many pixels as the
    /// default; the default where the model takes one size only.
    ///
    /// The same in Python, TypeScript and Kotlin: edgekit's tests/golden/README.md defines it.
    public func fittingSize(_ picture: InputSize) throws -> InputSize {
        let input = try pictureInput()
        let usual = try defaultSize()
        guard case .axis(let rows) = input.shape[2], case .axis(let columns) = input.shape[3], rows != columns,
            picture.height > 0, picture.width > 0
        else { return usual }
        let down = try axis(rows)
        let across = try axis(columns)
        var possible: [InputSize] = []
        if let sizes, !sizes.isEmpty {
            possible = sizes.map { InputSize(height: $0[rows] ?? usual.height, width: $0[columns] ?? usual.width) }
        } else if down.dynamic && across.dynamic && down.multipleOf > 0 && across.multipleOf > 0 {
            possible = sizesNear(down, across, picture)
        }
        return bestSize(possible, usual, picture)
    }

    /// The default size of the model's picture.
    func defaultSize() throws -> InputSize {
        let usual = try shape(pictureInput(), sizes: ["batch": 1])
        return InputSize(height: usual[2], width: usual[3])
    }

    /// Refuse a size that the model does not take, before a picture is brought to it.
    func check(_ size: InputSize) throws {
        let sides = try pictureInput().shape
        var named: [String: Int] = [:]
        var fits = size.height > 0 && size.width > 0
        for (side, edge) in [(sides[2], size.height), (sides[3], size.width)] {
            switch side {
            case .fixed(let number): fits = fits && edge == number
            case .axis(let axisName):
                fits = try fits && axis(axisName).accepts(edge)
                named[axisName] = edge
            }
        }
        if !fits {
            let accepted = try [describe(sides[2]), describe(sides[3])].joined(separator: ", ")
            throw EdgekitError(
                "the model '\(name)' does not accept pictures of \(size.height) x \(size.width): it accepts [\(accepted)]")
        }
        let listed = sizes ?? []
        let known = listed.contains { one in named.allSatisfy { (one[$0.key] ?? $0.value) == $0.value } }
        if !listed.isEmpty && !known { throw notListed("\(size.height) x \(size.width)") }
    }

    func pictureInput() throws -> TensorInfo {
        guard let input = input("image") else {
            throw EdgekitError("the model '\(name)' takes no picture: use Runner.run")
        }
        guard input.shape.count == 4 else {
            throw EdgekitError(
                "the manifest of '\(name)' is invalid: a picture has \(input.shape.count) dimensions, not 4")
        }
        return input
    }
}

/// The size that suits a picture best; of equals the first, and the usual one where there is no other.
private func bestSize(_ possible: [InputSize], _ usual: InputSize, _ picture: InputSize) -> InputSize {
    var best = usual
    var least = Double.infinity
    for size in possible {
        let cost = misfit(size, usual, picture)
        if cost < least {
            best = size
            least = cost
        }
    }
    return best
}

/// How badly a size suits a picture, from 1: shape to the fourth power, times pixels, each a quotient of at least 1. A
/// picture squeezed by 5 % is as bad as 22 % more or fewer pixels.
private func misfit(_ size: InputSize, _ usual: InputSize, _ picture: InputSize) -> Double {
    let shape = quotient(size.height * picture.width, size.width * picture.height)
    let square = shape * shape
    return square * square * quotient(size.height * size.width, usual.height * usual.width)
}

private func quotient(_ one: Int, _ other: Int) -> Double {
    return Double(max(one, other)) / Double(min(one, other))
}

/// For each height the widths on both sides of the one that keeps the picture's shape: no other suits it better.
private func sizesNear(_ rows: Manifest.Axis, _ columns: Manifest.Axis, _ picture: InputSize) -> [InputSize] {
    let least = (columns.minimum + columns.multipleOf - 1) / columns.multipleOf
    let most = columns.maximum / columns.multipleOf
    let first = (rows.minimum + rows.multipleOf - 1) / rows.multipleOf
    var possible: [InputSize] = []
    for height in stride(from: first * rows.multipleOf, through: rows.maximum, by: rows.multipleOf) {
        let below = height * picture.width / (picture.height * columns.multipleOf)
        for count in [below, below + 1] {
            possible.append(InputSize(height: height, width: min(max(count, least), most) * columns.multipleOf))
        }
    }
    return possible
}
