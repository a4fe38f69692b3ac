import CryptoKit
import Foundation

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
