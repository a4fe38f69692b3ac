require "json"

package = JSON.parse(File.read(File.join(__dir__, "package.json")))

# edgekit's Swift package: in this package native/apple, in edgekit's repository mobile/apple.
packed = File.join(__dir__, "native", "apple")
swift_package = File.directory?(packed) ? packed : File.join(__dir__, "..", "apple")

Pod::Spec.new do |s|
  s.name = "edgekit-react-native"
  s.module_name = "EdgekitReactNative"
  s.version = package["version"]
  s.summary = package["description"]
  s.license = package["license"]
  s.homepage = "https://reactnative.dev" # CocoaPods wants one
  s.author = "edgekit"
  s.source = { :git => "" } # a path of node_modules is its source
  s.platforms = { :ios => "17.0" }
  s.swift_version = "5.9"
  s.source_files = "ios/**/*.{h,mm,swift}"
  s.pod_target_xcconfig = { "DEFINES_MODULE" => "YES" }

  install_modules_dependencies(s)
  spm_dependency(s, url: swift_package, requirement: nil, products: ["Edgekit", "EdgekitCoreML", "EdgekitCoreAI"])
end
