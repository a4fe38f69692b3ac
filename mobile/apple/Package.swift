// swift-tools-version: 5.9
import PackageDescription

let package = Package(
    name: "Edgekit",
    platforms: [.iOS(.v17), .macOS(.v14)],
    products: [
        .library(name: "Edgekit", targets: ["Edgekit"]),
        .library(name: "EdgekitCoreML", targets: ["EdgekitCoreML"]),
        .library(name: "EdgekitCoreAI", targets: ["EdgekitCoreAI"]),
    ],
    targets: [
        // No device SDK: manifest, bundle, query encoder, preprocessing, golden vectors, timing.
        .target(name: "Edgekit"),
        .target(
            name: "EdgekitCoreML",
            dependencies: ["Edgekit"],
            resources: [.copy("PrivacyInfo.xcprivacy")]
        ),
        // For iOS 27 and macOS 27 on; empty where the SDK has no Core AI.
        .target(
            name: "EdgekitCoreAI",
            dependencies: ["Edgekit"],
            resources: [.copy("PrivacyInfo.xcprivacy")]
        ),
        // EDGEKIT_GOLDEN names tests/golden of edgekit's repository; unset, it is found beside this package.
        .testTarget(name: "EdgekitTests", dependencies: ["Edgekit"]),
    ]
)
