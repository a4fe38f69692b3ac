import Foundation

/// One model of a bundle: the artifact's manifest, and its file or package.
public struct Model: Sendable {
    public let manifest: Manifest
    public let path: String
    public let artifactSHA256: String
}

/// The files that `edgekit assets ios` wrote: `bundle.json`, and the files that it lists.
///
/// Every file is verified by its hash before use: a damaged model file can load and give other results.
public struct ModelBundle: Sendable {
    private struct Index: Decodable {
        struct Reference: Decodable {
            let sha256: String
            let device: String
        }

        struct Entry: Decodable {
            let manifest: String
            let file: String
            let artifactSHA256: String

            enum CodingKeys: String, CodingKey {
                case manifest, file
                case artifactSHA256 = "artifact_sha256"
            }
        }

        let name: String
        let reference: Reference
        let models: [Entry]
        let files: [Manifest.File]
    }

    public let folder: URL
    public let name: String
    public let referenceSHA256: String
    public let referenceDevice: String
    public let files: [Manifest.File]
    /// The best choice first.
    public let models: [Model]

    /// Open the bundle in a folder, for example of the app's resources.
    public init(folder: URL) throws {
        let name = "bundle.json"
        guard let data = try? Data(contentsOf: folder.appendingPathComponent(name)) else {
            throw EdgekitError("'\(folder.lastPathComponent)' has no \(name): run edgekit assets ios")
        }
        let index: Index = try decode(data, name: name)
        let files = index.files
        self.folder = folder
        self.name = index.name
        self.files = files
        referenceSHA256 = index.reference.sha256
        referenceDevice = index.reference.device
        models = try index.models.map { entry in
            let manifest = try Manifest.parse(
                ModelBundle.verifiedData(entry.manifest, in: folder, files: files), name: entry.manifest)
            return Model(
                manifest: manifest, path: entry.file, artifactSHA256: entry.artifactSHA256)
        }
    }

    /// The model of a target.
    public func model(_ target: String) throws -> Model {
        guard let found = models.first(where: { $0.manifest.target == target }) else {
            let known = models.map(\.manifest.target).joined(separator: ", ")
            throw EdgekitError("the bundle has no model '\(target)': possible are \(known)")
        }
        return found
    }

    /// Read one file and verify its size and hash.
    public func data(_ path: String) throws -> Data {
        try ModelBundle.verifiedData(path, in: folder, files: files)
    }

    /// The URL of a file or package, after the size and hash of each of its files were verified.
    public func url(_ path: String) throws -> URL {
        let own = files.filter { $0.path == path || $0.path.hasPrefix("\(path)/") }
        guard !own.isEmpty else {
            throw EdgekitError("bundle.json does not list the file '\(path)': export the assets again")
        }
        for file in own { try ModelBundle.verify(file, in: folder) }
        return folder.appendingPathComponent(path)
    }

    /// The query encoder, or nil for a model without queries.
    public func encoder() throws -> QueryEncoder? {
        guard files.contains(where: { $0.path == "vocabulary.json" }) else { return nil }
        return try QueryEncoder(vocabulary: data("vocabulary.json"), embeddings: data("embeddings.bin"))
    }

    private struct Presence: Decodable {
        let output: String
        let statistic: String
        let threshold: Float
    }

    /// The highest relevance from which something in a picture answers the query; nil for a model without.
    public func presenceThreshold() throws -> Float? {
        guard files.contains(where: { $0.path == "presence.json" }) else { return nil }
        let read: Presence = try decode(data("presence.json"), name: "presence.json")
        guard read.output == "relevance", read.statistic == "max", read.threshold > 0, read.threshold < 1 else {
            throw EdgekitError("presence.json has no threshold between 0 and 1 for the highest relevance")
        }
        return read.threshold
    }

    /// The golden vectors; without cases for a bundle that has none.
    public func golden() throws -> Golden {
        guard files.contains(where: { $0.path == "golden.json" }) else { return .none }
        return try Golden.parse(json: data("golden.json"), binary: data("golden.bin"))
    }

    /// Verify the size and hash of every file; for the first start of an app version.
    public func verify() throws {
        for file in files { try ModelBundle.verify(file, in: folder) }
    }

    private static func verifiedData(_ path: String, in folder: URL, files: [Manifest.File]) throws -> Data {
        guard let file = files.first(where: { $0.path == path }) else {
            throw EdgekitError("bundle.json does not list the file '\(path)': export the assets again")
        }
        try verify(file, in: folder)
        return try Data(contentsOf: folder.appendingPathComponent(path))
    }

    private static func verify(_ file: Manifest.File, in folder: URL) throws {
        let inside = !file.path.hasPrefix("/") && !file.path.split(separator: "/").contains("..")
        guard inside else { throw EdgekitError("bundle.json is invalid: '\(file.path)' is not a relative path inside the bundle") }
        let url = folder.appendingPathComponent(file.path)
        let size = try? url.resourceValues(forKeys: [.fileSizeKey]).fileSize
        guard size == file.size, let found = try? sha256(of: url), found == file.sha256 else {
            throw EdgekitError("'\(file.path)' is damaged: install the app again")
        }
    }
}
