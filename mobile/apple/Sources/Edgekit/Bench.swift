import Foundation

/// Latencies in milliseconds; percentiles, mean and standard deviation as in edgekit's reports.
public struct Timing: Encodable, Sendable {
    public let device: String
    public let runs: Int
    public let p50: Double
    public let p90: Double
    public let p95: Double
    public let p99: Double
    public let mean: Double
    public let std: Double

    public init(device: String, milliseconds: [Double]) {
        let sorted = milliseconds.sorted()
        let average = sorted.reduce(0, +) / Double(sorted.count)
        self.device = device
        runs = sorted.count
        p50 = Timing.percentile(sorted, 50)
        p90 = Timing.percentile(sorted, 90)
        p95 = Timing.percentile(sorted, 95)
        p99 = Timing.percentile(sorted, 99)
        mean = average
        std = (sorted.reduce(0) { $0 + ($1 - average) * ($1 - average) } / Double(sorted.count)).squareRoot()
    }

    /// A percentile of sorted numbers, with linear interpolation as in NumPy; `percent` is 50 for the median.
    public static func percentile(_ sorted: [Double], _ percent: Double) -> Double {
        let at = percent / 100 * Double(sorted.count - 1)
        let low = sorted[Int(at.rounded(.down))]
        return low + (sorted[Int(at.rounded(.up))] - low) * (at - at.rounded(.down))
    }
}

/// Inference latency on this device, by the protocol of edgekit's reports: warm-up runs, then timed runs until both `runs`
/// and `seconds` are reached.
public struct Bench: Sendable {
    public var warmUps = 10
    public var runs = 100
    public var seconds = 2.0
    /// The longest duration: a slow device stops earlier.
    public var maxSeconds = 60.0

    public init() {}

    /// Measure a runner, without preprocessing.
    public func time(_ runner: any Runner, _ inputs: [String: Tensor]) async throws -> Timing {
        let clock = ContinuousClock()
        let started = clock.now
        for _ in 0..<warmUps where elapsed(clock, started) < maxSeconds / 4 { _ = try await runner.run(inputs) }
        var times: [Double] = []
        let timed = clock.now
        while times.count < runs || elapsed(clock, timed) < seconds {
            if elapsed(clock, started) > maxSeconds && times.count >= 3 { break }
            let start = clock.now
            _ = try await runner.run(inputs)
            times.append(1000 * elapsed(clock, start))
        }
        return Timing(device: runner.device, milliseconds: times)
    }

    private func elapsed(_ clock: ContinuousClock, _ since: ContinuousClock.Instant) -> Double {
        let (whole, parts) = since.duration(to: clock.now).components
        return Double(whole) + Double(parts) / 1e18
    }
}
