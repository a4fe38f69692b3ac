"""An artifact that was opened in this process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from edgekit import registry
from edgekit.artifact.manifest import Manifest
from edgekit.artifact.store import read_artifact
from edgekit.errors import UsageError
from edgekit.model.spec import Array
from edgekit.runtime.protocol import Runtime


def load(artifact: str | Path, *, place: str = "") -> LoadedArtifact:
    """Open an artifact in this process, after its files were checked.

    Args:
        artifact: The artifact's folder, for example `build/arr-coc-tiny/onnx`.
        place: One of its target's places; the first where none is named.

    Raises:
        ArtifactError: If it is missing or damaged.
        NotVerifiedHere: If this host cannot run it.
    """
    folder = Path(artifact)
    manifest = read_artifact(folder)
    target = registry.find(manifest.target)
    registry.require(manifest.target, target)
    places = {one.name: one for one in target.places}
    if place and place not in places:
        raise UsageError(f"'{manifest.target}' has no place '{place}': possible are {', '.join(places)}")
    return LoadedArtifact(manifest, target.load(folder, places.get(place, target.places[0])))


class LoadedArtifact:
    """An artifact that answers; a context manager that frees it at its end."""

    def __init__(self, manifest: Manifest, runtime: Runtime) -> None:
        self.manifest = manifest
        self._runtime = runtime

    @property
    def device(self) -> str:
        """What runs it, in words."""
        return self._runtime.device

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Answer one batch: arrays by input name in, arrays by output name out.

        Raises:
            UsageError: If an input is missing or unknown.
        """
        declared = [tensor.name for tensor in self.manifest.inputs]
        if wrong := sorted({*declared} ^ {*inputs}):
            word = "lacks the" if wrong[0] in declared else "has no"
            names = ", ".join(declared)
            raise UsageError(f"'{self.manifest.name}' {word} input '{wrong[0]}': it takes {names}")
        return self._runtime.run(inputs)

    def close(self) -> None:
        """Free everything."""
        self._runtime.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
