#!/bin/sh
# Runs the sample's check on an iPhone or iPad, and takes its results into a build's report. NOT RUN HERE: neither Xcode
# nor a device is where edgekit's tests run.
#
#     ./check_on_device.sh DEVICE BUILD        DEVICE as `xcrun devicectl list devices` names it
#
# Before: `edgekit assets ios BUILD --into mobile/apple/Sample`, and a team chosen for signing in Xcode (Xcode 16 or later).
set -eu
cd "$(dirname "$0")"
device=$1 build=$2
app=org.edgekit.sample
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

xcodebuild -project Sample/EdgekitSample.xcodeproj -scheme EdgekitSample -configuration Release \
    -destination "id=$device" -derivedDataPath "$out" -allowProvisioningUpdates -quiet build
xcrun devicectl device install app --device "$device" "$out/Build/Products/Release-iphoneos/EdgekitSample.app"
# The app runs every model's golden vectors and the bench, writes tmp/TARGET/result.json, and ends.
xcrun devicectl device process launch --device "$device" --console --terminate-existing "$app" --check
xcrun devicectl device copy from --device "$device" --domain-type appDataContainer --domain-identifier "$app" \
    --source tmp --destination "$out/results"
for result in "$out"/results/*/result.json; do
    edgekit import "$result" "$build" --name "$device-$(basename "$(dirname "$result")")"
done
