"""What to run after a build: the commands that show or ship what is recommended, and that explain what was rejected."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from edgekit import registry
from edgekit.report.recommendation import ANDROID, BROWSER, IOS, Recommendation
from edgekit.report.study import Study

PLATFORMS = {ANDROID: "android", IOS: "ios"}
SIGNATURE = "signature"  # a signed build's folder
EXPLAINED = ("fp16", "int8", "int4")
"""Precisions whose errors `edgekit explain` attributes to modules."""


def next_commands(folder: Path, study: Study, advice: Sequence[Recommendation]) -> tuple[str, ...]:
    """The commands, one a purpose; where none applies to what was verified, the one that judges again elsewhere.

    A signed build is not to be judged again in its place: its results would be others than were signed.
    """
    commands = (*_shipped(folder, advice), *_explained(folder, study))
    proved = {row.target for row in study.rows if row.status == "verified"}
    if commands or not proved or (folder / SIGNATURE).is_dir():
        return commands
    targets, _ = registry.loadable()
    code = any(targets[name].runs_code for name in proved & targets.keys())
    trust = " --trust-build" if code else ""
    return (f"edgekit verify {shlex.quote(str(folder))}{trust}  # on the host that will run it",)


def _shipped(folder: Path, advice: Sequence[Recommendation]) -> Iterator[str]:
    for one in advice:
        if one.best is None:
            continue
        bundle = folder / one.best.row.target
        if one.audience == BROWSER and (bundle / "index.html").is_file():
            yield f"edgekit demo {shlex.quote(str(bundle))}"
        if one.audience in PLATFORMS:
            yield f"edgekit assets {PLATFORMS[one.audience]} {shlex.quote(str(folder))} --into APP"


def _explained(folder: Path, study: Study) -> Iterator[str]:
    rejected = [row for row in study.rows if row.status == "rejected" and not row.origin and row.precision in EXPLAINED]
    for target in dict.fromkeys(row.target for row in rejected):
        manifest = next(each.manifest for each in study.artifacts if each.target == target)
        if manifest is not None and manifest.entry.endswith(".onnx"):
            yield f"edgekit explain {shlex.quote(str(folder / target))}"
            return
