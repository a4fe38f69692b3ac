"""Assets of a mobile app's build: verified artifacts, golden vectors, the vocabulary, and typed constants.

bundle.py       the artifacts of a build for an app, the files of their bundle, and names for generated code
android.py      an Android app module: assets, a Kotlin file, noCompress rules, operator lists for reduced builds
apple.py        an Xcode or SwiftPM app: resources and a Swift file
sync.py         writes the files of a bundle into an app, and removes outdated ones of earlier runs

Only planned files are changed in the app. The same build gives the same bytes, so that a second run writes
nothing and `check_assets` can detect a stale app.
"""

from __future__ import annotations

from pathlib import Path

from edgekit.errors import UsageError
from edgekit.storage.host_errors import as_sentences
from edgekit_apps import android, apple, sync
from edgekit_apps.bundle import Content, Platform, plan
from edgekit_apps.sync import Outcome

__all__ = ["PLATFORMS", "Outcome", "check_assets", "write_assets"]

PLATFORMS = ("android", "ios")


@as_sentences()
def write_assets(
    platform: str,
    build: Path,
    app: Path,
    targets: tuple[str, ...] = (),
    trust_build: bool = False,
    key: Path | None = None,
    deployment_target: int | None = None,
) -> Outcome:
    """Write a build's verified artifacts into an app.

    Args:
        platform: "android" or "ios".
        build: The build folder of a model, `build/<model>`.
        app: The app: an Android app module, or the folder of an Xcode project or Swift package.
        targets: The artifacts; empty means all verified ones that the platform's library can run.
        trust_build: True to run code that the build names or contains.
        key: Public key of the build's required signer; None requires no signature.
        deployment_target: Oldest version of iOS that the app runs on; None means the Swift package's minimum.

    Raises:
        UsageError: If the platform is unknown, the folder is not an app, its oldest system does not run the artifacts,
            or another file exists in the place of one of edgekit's.
        ArtifactError: If an artifact is missing, damaged, rejected or was never judged.
    """
    name, files, notes = _plan(_kind(platform, deployment_target), build, app, targets, trust_build, key)
    return sync.sync(app, name, files, notes)


@as_sentences()
def check_assets(
    platform: str,
    build: Path,
    app: Path,
    targets: tuple[str, ...] = (),
    trust_build: bool = False,
    key: Path | None = None,
    deployment_target: int | None = None,
) -> tuple[str, ...]:
    """Return the changes that `write_assets` would make, one sentence per file; empty if the app is up to date.

    Raises:
        UsageError: As for `write_assets`.
        ArtifactError: As for `write_assets`.
    """
    name, files, _ = _plan(_kind(platform, deployment_target), build, app, targets, trust_build, key)
    return sync.differences(app, name, files)


def _plan(
    kind: Platform, build: Path, app: Path, targets: tuple[str, ...], trust_build: bool, key: Path | None
) -> tuple[str, dict[str, Content], tuple[str, ...]]:
    kind.require_app(app)
    bundle = plan(build, kind, targets, trust_build, key)
    return bundle.name, kind.files(bundle), bundle.notes


def _kind(platform: str, deployment_target: int | None) -> Platform:
    if platform not in PLATFORMS:
        raise UsageError(f"no platform '{platform}'. Possible: {', '.join(PLATFORMS)}")
    if platform == "ios":
        return apple.platform(apple.OLDEST if deployment_target is None else deployment_target)
    if deployment_target is not None:
        raise UsageError("a deployment target is a version of iOS. Leave --deployment-target out for android")
    return android.PLATFORM
