import Foundation

/// An error of the bundle, the query or the device, with a sentence for the user of the app.
public struct EdgekitError: Error, LocalizedError, Equatable, Sendable {
    public let message: String

    public init(_ message: String) {
        self.message = message
    }

    public var errorDescription: String? { message }
}
