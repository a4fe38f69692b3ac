"""Packs: inputs, artifacts and the engine in one folder, for a host without edgekit.

`pack.json` names everything with its hash; its `id` is the hash of all that, and a result contains its pack's id.
"""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Mapping, Sequence
from importlib import util
from pathlib import Path

import numpy as np

from edgekit import doors
from edgekit.artifact.store import MANIFEST, manifest_text, read_artifact
from edgekit.errors import DISTRIBUTION, UsageError
from edgekit.evaluate.__main__ import PACK
from edgekit.hosts.catalogue import FurtherPlace
from edgekit.reference.batches import Batch, applicable_batches, repeats
from edgekit.reference.store import Reference
from edgekit.storage.files import digest_file, dump_json
from edgekit.storage.verified_io import seal_of

CARRIED = (
    "edgekit", "edgekit.errors", "edgekit.evaluate", "edgekit.evaluate.__main__", "edgekit.evaluate.engine",
    "edgekit.evaluate.rows", "edgekit.evaluate.timing", "edgekit.runtime", "edgekit.runtime.ort_session",
    "edgekit.runtime.processor", "edgekit.runtime.protocol",
)  # fmt: skip
"""Modules in every pack: they need Python 3.10, numpy and a runtime. A place's record may add others."""


def write_pack(
    folder: Path,
    reference: Reference,
    artifacts: Mapping[str, Path],
    places: Sequence[FurtherPlace],
    images: int | None,
    seconds: float,
) -> str:
    """Write a pack into an empty folder and return its id.

    Args:
        folder: Destination.
        reference: The reference with the inputs.
        artifacts: Artifact folders by target.
        places: Where it will run; a pack does not name hosts.
        images: Number of evaluation inputs, with other batches reduced in proportion; None for all.
        seconds: Minimum timing of each kind of run; 0 for no timing.

    Raises:
        EdgekitError: If an artifact is damaged.
        UsageError: If the artifacts take inputs of different sizes.
    """
    manifests = {target: read_artifact(path) for target, path in artifacts.items()}
    manifests_there = [place.manifest_at(manifest) for place in places for manifest in manifests.values()]
    if len({repr((manifest.axes, manifest.sizes)) for manifest in manifests_there}) > 1:
        raise UsageError("the artifacts, or the places, take inputs of different sizes. Pack them one by one")
    batches = applicable_batches(reference.batches, manifests_there[0], images)
    (folder / "questions").mkdir(parents=True)
    for target, path in artifacts.items():
        copies = folder / "artifacts" / target
        for file in manifests[target].files:
            (copies / file.path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path / file.path, copies / file.path)
        (copies / MANIFEST).write_text(manifest_text(manifests[target].model_copy(update={"results": ()})))
    runtimes = {place.runtime: doors.places.find(place.runtime) for place in places}
    for module in dict.fromkeys((*CARRIED, *(name for runtime in runtimes.values() for name in runtime.carried))):
        _carry(module, folder)
    timed = seconds > 0 and all(place.has_timings for place in places)
    whole = {
        "schema_version": 3,
        "reference_sha256": reference.sha256,
        "images": images,
        "seconds": seconds,
        "row_axes": dict(reference.info.row_axes),
        "artifacts": {
            target: {
                "sha256": manifest.sha256,
                "entry": manifest.entry,
                "files": {file.path: file.sha256 for file in manifest.files}
                | {MANIFEST: digest_file(folder / "artifacts" / target / MANIFEST)},
            }
            for target, manifest in manifests.items()
        },
        "places": {
            place.runtime: {
                "opener": runtimes[place.runtime].opener,
                "settings": dict(place.settings),
                "timed": timed,
                "install": runtimes[place.runtime].hint
                or f"pip install '{DISTRIBUTION}[{runtimes[place.runtime].extra}]'",
            }
            for place in places
        },
        "batches": [_batch(folder, batch, repeats(batch, timed, images)) for batch in batches],
    }
    identity = seal_of(whole, "id")
    (folder / PACK).write_text(dump_json({**whole, "id": identity}))
    return identity


def _carry(module: str, folder: Path) -> None:
    """Copy a module into a pack, in packages without their other modules."""
    spec = util.find_spec(module)
    if spec is None or spec.origin is None:
        raise UsageError(f"cannot import '{module}', which a place needs in its packs")
    path = Path(spec.origin)
    home = folder.joinpath(*module.split("."))
    copy = home / path.name if path.name == "__init__.py" else home.with_name(path.name)
    copy.parent.mkdir(parents=True, exist_ok=True)
    for package in copy.relative_to(folder).parents:
        if package.name and not (folder / package / "__init__.py").exists():
            (folder / package / "__init__.py").touch()
    shutil.copyfile(path, copy)


def archive(folder: Path, path: Path) -> None:
    """Write a pack's folder as a zip file, complete or not at all."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as packed:
            for file in sorted(p for p in folder.rglob("*") if p.is_file()):
                packed.write(file, file.relative_to(folder).as_posix())
        temporary.replace(path)
    except OSError as error:
        raise UsageError(f"cannot write '{path}' ({error.strerror}). Choose another file with -o") from error
    finally:
        temporary.unlink(missing_ok=True)


def _batch(folder: Path, batch: Batch, repeated: int) -> dict[str, object]:
    """Write the inputs of each run to a file, by `<run>/<input>`; return its entry for the engine."""
    path = folder / "questions" / f"{batch.name}.npz"
    runs = {
        # C's order is the only one that a phone reads.
        f"{number}/{name}": np.asarray(array, order="C")
        for number, inputs in enumerate(batch.rows())
        for name, array in inputs.items()
    }
    np.savez(path, **runs)  # type: ignore[arg-type]  # numpy's stubs take no names from a dictionary
    return {
        "name": batch.name,
        "inputs": list(batch.inputs),
        "runs": len(batch.names) if batch.single else 1,
        "rows_a_run": batch.rows_a_run,
        "repeated": repeated,
        "sha256": digest_file(path),
    }
