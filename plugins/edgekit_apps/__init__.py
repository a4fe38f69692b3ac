"""Assets of a build for mobile apps, and the connected phone."""

from __future__ import annotations

from edgekit.doors import Command, PlaceRuntime

ASSETS = Command(
    name="assets",
    panel="Ship",
    summary="Write the assets of a mobile app's build: artifacts, golden vectors, typed constants.",
    function="edgekit_apps.command:assets",
)
ADB = PlaceRuntime(
    summary="an Android phone that adb reaches, in edgekit's bench app, which no phone has run yet",
    library="",
    hint="./gradlew :bench:installDebug in mobile/android",
    opens=(".onnx", ".pte", ".tflite", ".mnn"),
    answer_pack="edgekit_apps.adb:answer_pack",
    status="edgekit_apps.adb:status",
)
