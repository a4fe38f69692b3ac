import CryptoKit
import Foundation

/// sha256 over the names and contents of all files in a folder, in hex.
public func sha256(ofFolder folder: URL) throws -> String {
    let names = try FileManager.default.subpathsOfDirectory(atPath: folder.path).sorted()
    var hasher = SHA256()
    for name in names {
        let file = folder.appendingPathComponent(name)
        guard try file.resourceValues(forKeys: [.isRegularFileKey]).isRegularFile == true else { continue }
        hasher.update(data: Data("\(name) \(try sha256(of: file))\n".utf8))
    }
    return hasher.finalize().map { String(format: "%02x", $0) }.joined()
}

/// sha256 of a file, in hex, without reading it into memory whole.
func sha256(of file: URL) throws -> String {
    let handle = try FileHandle(forReadingFrom: file)
    defer { try? handle.close() }
    var hasher = SHA256()
    while let part = try handle.read(upToCount: 1 << 20), !part.isEmpty {
        hasher.update(data: part)
    }
    return hasher.finalize().map { String(format: "%02x", $0) }.joined()
}
