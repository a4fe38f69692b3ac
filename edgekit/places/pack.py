"""A pack: questions, artifacts and the runner in one folder, for a host that has nothing of edgekit.

`pack.json` names everything with its hash; its `id` is the hash of all that, and a result says of which pack it is.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from edgekit.artifact.manifest import Manifest
from edgekit.artifact.store import read_artifact
from edgekit.errors import UsageError
from edgekit.places import runner
from edgekit.places.catalogue import RUNTIMES, Elsewhere
from edgekit.reference.batches import Batch, applicable_batches
from edgekit.reference.store import Reference
from edgekit.storage.files import digest_file, dump_json

PACK, RUNNER = "pack.json", "runner"
SUFFIX = ".onnx"
"""What the runtimes of places open."""
REPEATED = 8
"""Rows of each batch that are asked twice."""


def packable(made: Manifest) -> bool:
    """Whether the runtimes of places open an artifact."""
    return made.entry.endswith(SUFFIX) and not made.variants


def write_pack(
    folder: Path,
    recorded: Reference,
    artifacts: Mapping[str, Path],
    places: Sequence[Elsewhere],
    images: int | None,
    seconds: float,
) -> str:
    """Write a pack into an empty folder; returns its id.

    Args:
        folder: Where to write.
        recorded: The reference: what is asked.
        artifacts: Artifact folders by target.
        places: Where it will run; of hosts nothing is said in a pack.
        images: How many evaluation inputs are asked, and of other kinds as few as where a place is slow; None for all.
        seconds: How long each kind of run is timed, at least; 0 for no timing.

    Raises:
        EdgekitError: If an artifact is damaged.
        UsageError: If the artifacts take inputs of different sizes.
    """
    manifests = {target: read_artifact(path) for target, path in artifacts.items()}
    axes = {repr((made.axes, made.sizes)) for made in manifests.values()}
    if len(axes) > 1:
        raise UsageError("the artifacts take inputs of different sizes: pack them one by one with -t")
    batches = applicable_batches(recorded.batches, next(iter(manifests.values())), images)
    (folder / "questions").mkdir(parents=True)
    for batch in batches:
        np.savez(folder / "questions" / f"{batch.name}.npz", **batch.inputs)  # type: ignore[arg-type]  # names
    for target, path in artifacts.items():
        for file in manifests[target].files:
            copy = folder / "artifacts" / target / file.path
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path / file.path, copy)
    shutil.copytree(Path(runner.__file__).parent, folder / RUNNER, ignore=shutil.ignore_patterns("__pycache__"))
    whole = {
        "schema_version": 1,
        "reference_sha256": recorded.sha256,
        "images": images,
        "seconds": seconds,
        "repeated": REPEATED,
        "row_axes": dict(recorded.info.row_axes),
        "sizes": {name: axis.default for name, axis in next(iter(manifests.values())).axes.items()},
        "artifacts": {target: _artifact(made) for target, made in manifests.items()},
        "places": {place.runtime: _place(place, seconds) for place in places},
        "batches": [_batch(folder, batch) for batch in batches],
    }
    identity = hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()
    (folder / PACK).write_text(dump_json({**whole, "id": identity}))
    return identity


def archive(folder: Path, path: Path) -> None:
    """Write a pack's folder as a zip file, whole or not at all."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as packed:
            for file in sorted(p for p in folder.rglob("*") if p.is_file()):
                packed.write(file, file.relative_to(folder).as_posix())
        temporary.replace(path)
    except OSError as error:
        raise UsageError(f"cannot write '{path}' ({error.strerror}): choose another file with -o") from error
    finally:
        temporary.unlink(missing_ok=True)


def _artifact(made: Manifest) -> dict[str, object]:
    return {"sha256": made.sha256, "entry": made.entry, "files": {file.path: file.sha256 for file in made.files}}


def _place(place: Elsewhere, seconds: float) -> dict[str, object]:
    return {
        "runtime": RUNTIMES[place.runtime].kind,
        "settings": dict(place.settings),
        "timed": seconds > 0 and not place.emulated,
    }


def _batch(folder: Path, batch: Batch) -> dict[str, object]:
    """What the runner must know of a batch."""
    digest = digest_file(folder / "questions" / f"{batch.name}.npz")
    told = {"name": batch.name, "rows": len(batch.names), "single": batch.single, "sha256": digest}
    if not batch.shapes:
        return told
    return {**told, "sizes": dict(batch.sizes), "shapes": {name: list(shape) for name, shape in batch.shapes.items()}}
