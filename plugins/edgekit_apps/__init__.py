"""What mobile apps take of a build, and the phone on the cable."""

from __future__ import annotations

from edgekit.doors import Command, PlaceRuntime

ASSETS = Command(
    name="assets",
    panel="Ship",
    summary="Write what a mobile app's build consumes: artifacts, golden vectors, typed constants.",
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
