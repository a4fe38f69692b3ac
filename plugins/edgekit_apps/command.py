"""`edgekit assets`: the assets of a mobile app's build."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from edgekit.cli.arguments import (
    CLEAN,
    REJECTED,
    BuildFolder,
    Json,
    Key,
    RequireSignature,
    TrustBuild,
    print_answer,
    print_json,
    required_key,
)
from edgekit.cli.build_commands import progress_style
from edgekit.cli.completion import among, target_names
from edgekit.cli.help import epilog


@epilog(
    "Examples:\n\n`edgekit assets android build/arr-coc-tiny --into mobile/android/sample`\n\n"
    "`edgekit assets ios build/arr-coc-tiny --into MyApp --check`\n\n"
    "`edgekit assets ios build/arr-coc-tiny --into MyApp --deployment-target 27`\n\n"
    "`edgekit assets ios build/arr-coc-tiny --into MyApp --key release.pub --require-signature`\n\n"
    "`edgekit assets ios s3://bucket/arr-coc-tiny@0123456789abcdef --into MyApp --key release.pub`"
)
def assets(
    platform: Annotated[str, typer.Argument(help="android or ios.", autocompletion=among("android", "ios"))],
    build: BuildFolder,
    into: Annotated[Path, typer.Option("--into", help="The app: a Gradle app module, or an Xcode or SwiftPM folder.")],
    target: Annotated[
        list[str] | None,
        typer.Option("-t", "--target", help="Artifacts to write; default: all that fit.", autocompletion=target_names),
    ] = None,
    deployment_target: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="VERSION", help="Oldest iOS that the app runs on; default: 17. From 27 on it gets Core AI."
        ),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit 3 if the app is stale.")] = False,
    trust_build: TrustBuild = False,
    key: Key = None,
    require_signature: RequireSignature = False,
    as_json: Json = False,
) -> None:
    """Write the assets of a mobile app's build: artifacts, golden vectors, typed constants."""
    from edgekit.api import local
    from edgekit_apps import assets as apps

    key = required_key(key, require_signature)
    folder = local(build, progress=progress_style(as_json))
    request = (platform, folder, into, tuple(target or ()), trust_build, key, deployment_target)
    if check:
        stale = apps.check_assets(*request)
        print_answer(as_json, {"stale": list(stale)}, stale or ["up to date"])
        sys.exit(REJECTED if stale else CLEAN)
    result = apps.write_assets(*request)
    if as_json:
        print_json({"written": result.written, "removed": result.removed, "kept": result.kept, "notes": result.notes})
        return
    print(
        f"{len(result.written)} written, {len(result.removed)} removed, {len(result.kept)} unchanged, "
        f"{result.size} bytes"
    )
    for note in result.notes:
        print(note)
