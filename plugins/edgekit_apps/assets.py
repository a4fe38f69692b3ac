"""What a mobile app's build consumes: verified artifacts, golden vectors, the vocabulary, and typed constants for them.

    bundle.py       which artifacts of a build go into an app, and the files of their bundle
    records.py      the bundle, its models and the kinds of apps, as records
    android.py      an Android app module: assets, a Kotlin file, noCompress rules
    apple.py        an Xcode or SwiftPM app: resources and a Swift file
    identifiers.py  names for generated code
    operators.py    operator lists for reduced builds of ONNX Runtime
    sync.py         writes the files of a bundle into an app, and removes those of earlier runs that are not needed

Nothing but planned files is touched in the app. The same build gives the same bytes, so that a second run writes
nothing and `check` can tell whether an app is stale.
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
        targets: Which artifacts; empty means all verified ones that the platform's library can run.
        trust_build: Whether code that the build names or brings may run.
        key: Public key of whoever must have signed the build; None asks for no signature.
        deployment_target: Oldest version of iOS that the app runs on; None is what the Swift package needs.

    Raises:
        UsageError: An unknown platform, a folder that is no app, artifacts that its oldest system does not run, or a
            file in the way that edgekit did not write.
        ArtifactError: An artifact that is missing, damaged, rejected or was never judged.
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
    """What `write` would change, one sentence a file; empty where the app is up to date.

    Raises:
        UsageError: As for `write`.
        ArtifactError: Likewise.
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
        raise UsageError(f"no platform '{platform}': possible are {', '.join(PLATFORMS)}")
    if platform == "ios":
        return apple.platform(apple.OLDEST if deployment_target is None else deployment_target)
    if deployment_target is not None:
        raise UsageError("a deployment target is a version of iOS: leave --deployment-target out for android")
    return android.PLATFORM
