/// A rectangle of pixels.
public struct Box: Equatable, Sendable {
    public let top: Int
    public let left: Int
    public let height: Int
    public let width: Int

    public init(top: Int, left: Int, height: Int, width: Int) {
        self.top = top
        self.left = left
        self.height = height
        self.width = width
    }
}

/// Which `part` of a picture fills which `place` of a model's size, as the manifest's `fit` of its input says.
public struct Placement: Equatable, Sendable {
    public let part: Box
    public let place: Box

    /// The rule of "stretch", "crop" and "letterbox", on every platform alike.
    public init(picture: InputSize, size: InputSize, fit: String) throws {
        let wider = picture.width * size.height > picture.height * size.width
        var part = picture
        var place = size
        switch fit {
        case "stretch":
            break
        case "crop" where wider:
            part = InputSize(height: picture.height, width: share(picture.height, size.width, size.height))
        case "crop":
            part = InputSize(height: share(picture.width, size.height, size.width), width: picture.width)
        case "letterbox" where wider:
            place = InputSize(height: share(size.width, picture.height, picture.width), width: size.width)
        case "letterbox":
            place = InputSize(height: size.height, width: share(size.height, picture.width, picture.height))
        default:
            throw EdgekitError("the fit '\(fit)' of a picture is not known: update the library")
        }
        self.part = middle(picture, part)
        self.place = middle(size, place)
    }
}

private func middle(_ whole: InputSize, _ part: InputSize) -> Box {
    return Box(
        top: (whole.height - part.height) / 2, left: (whole.width - part.width) / 2, height: part.height, width: part.width)
}

/// An edge in the proportion of two others, rounded half up, at least one pixel.
private func share(_ edge: Int, _ part: Int, _ of: Int) -> Int {
    return max(1, (2 * edge * part + of) / (2 * of))
}

/// Where the patches of an answer lie: patch `row * columns + column` of `rows` x `columns` equal ones on the model's input.
///
/// Without a grid, where the scores are not those of square patches, both are 0.
public struct Grid: Sendable {
    public let rows: Int
    public let columns: Int
    /// The size of the model's input that was used.
    public let size: InputSize
    /// Which part of the picture lies where on the model's input: all of it but for "crop" and "letterbox".
    public let placement: Placement

    public init(rows: Int, columns: Int, size: InputSize, placement: Placement) {
        self.rows = rows
        self.columns = columns
        self.size = size
        self.placement = placement
    }

    /// The patch in which a pixel of the picture lies; nil where the pixel was cropped away, and without a grid.
    public func patch(y: Int, x: Int) -> Int? {
        let part = placement.part
        let place = placement.place
        let down = y - part.top
        let across = x - part.left
        if rows == 0 || down < 0 || down >= part.height || across < 0 || across >= part.width {
            return nil
        }
        let row = cell(down, part.height, place.top, place.height, rows, size.height)
        let column = cell(across, part.width, place.left, place.width, columns, size.width)
        return row * columns + column
    }
}

/// In which of `count` equal cells of an edge the centre of a pixel lies, which fills a share of `length` from `start` on.
private func cell(_ pixel: Int, _ pixels: Int, _ start: Int, _ length: Int, _ count: Int, _ edge: Int) -> Int {
    return ((2 * pixel + 1) * length + 2 * pixels * start) * count / (2 * pixels * edge)
}

extension Manifest {
    /// The number of scores at the default size.
    func count(_ scores: TensorInfo) throws -> Int {
        let declared = try shape(scores, sizes: ["batch": 1])
        guard let values = valueCount(declared) else {
            throw EdgekitError("the manifest of '\(name)' is invalid: an output has the shape \(declared)")
        }
        return values
    }

    /// Whether the size of each axis of an output is known before a run. That of patches that follow from a picture is not.
    func declares(_ output: TensorInfo) -> Bool {
        output.shape.allSatisfy { size in
            guard case .axis(let name) = size else { return true }
            return axes[name] != nil
        }
    }

    /// Rows and columns of the patches at a size, by the number of scores at the default size, or of those in an answer
    /// (`found`) if that is not known; nil where they are not those of square patches.
    func patches(_ scores: TensorInfo, _ size: InputSize, found: Int) throws -> (rows: Int, columns: Int)? {
        let number = try declares(scores) ? count(scores) : found
        let usual = try declares(scores) ? defaultSize() : size
        let area = usual.height * usual.width
        guard number > 0, area > 0, area % number == 0 else { return nil }
        let edge = Int(Double(area / number).squareRoot().rounded())
        let edges = [usual.height, usual.width, size.height, size.width]
        guard edge * edge * number == area, edges.allSatisfy({ $0 % edge == 0 }) else { return nil }
        return (size.height / edge, size.width / edge)
    }
}
