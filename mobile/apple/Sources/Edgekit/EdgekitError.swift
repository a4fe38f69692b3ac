import Foundation

/// Something that is wrong with the bundle, the query or the device, in a sentence for the user of the app.
public struct EdgekitError: Error, LocalizedError, Equatable, Sendable {
    public let message: String

    public init(_ message: String) {
        self.message = message
    }

    public var errorDescription: String? { message }
}
