"""An IREE module that is an artifact: it takes what its manifest names, at the sizes that are fixed there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from edgekit.artifact.store import read_artifact
from edgekit.model.spec import Array
from edgekit.runtime.input_shapes import arguments, require_names
from edgekit_targets.iree.session import IreeSession


class IreeRuntime(IreeSession):
    """A `.vmfb` file: the entry of an artifact.

    Raises:
        NotVerifiedHere: If IREE is not installed, or the code is for another processor.
        ArtifactError: If IREE refuses the file, or its inputs and outputs are not those of the manifest.
    """

    def __init__(self, folder: Path, entry: str) -> None:
        self._manifest = read_artifact(folder)
        super().__init__(folder / entry)
        try:
            require_names(self._manifest, entry, self.inputs, self.outputs)
        except BaseException:
            self.close()
            raise

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Answer one batch."""
        return super().run(arguments(self._manifest, inputs))
