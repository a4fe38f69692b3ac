"""An AOTInductor package in this process, by PyTorch's own loader."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgekit.artifact.store import read_artifact
from edgekit.errors import ArtifactError, NotVerifiedHere, reason
from edgekit.model.spec import Array
from edgekit.runtime.input_shapes import arguments
from edgekit.runtime.processor import threads

NAME = "model"  # of the one model in a package
CAPABILITY = {"AVX2": ("AVX2", "AVX512"), "AVX512": ("AVX512",)}
"""The first word of the vectors that a package was compiled for -> what PyTorch says of a processor that has them."""


class AotiRuntime:
    """A `.pt2` file: the entry of an artifact whose manifest names inputs and outputs in their order.

    Raises:
        NotVerifiedHere: If it was compiled for another kind of processor, or is INT8 and sums saturate on this one.
        ArtifactError: If the loader refuses the file.
    """

    def __init__(self, folder: Path, entry: str) -> None:
        import torch
        import torch._inductor  # its loader is made by it

        self._manifest = read_artifact(folder)
        torch.set_num_threads(threads())
        if self._manifest.precision == "int8":
            require_exact_sums()
        loader: Any = torch._C._aoti.AOTIModelPackageLoader  # its stubs lack a method
        try:
            _require_processor(loader.load_metadata_from_package(str(folder / entry), NAME))
            self._loader = loader(str(folder / entry), NAME, False, 1, -1)  # one runner, on the CPU
        except RuntimeError as error:
            raise ArtifactError(f"PyTorch refuses '{folder / entry}': {reason(error)}") from error

    @property
    def device(self) -> str:
        """Library, version and threads, in words."""
        import torch

        return f"PyTorch {torch.__version__} AOTInductor loader, CPU, {threads()} threads"

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Answer one batch; inputs are copied, since a module may change them in place."""
        import torch

        feed = [torch.from_numpy(array.copy()) for array in arguments(self._manifest, inputs).values()]
        with torch.inference_mode():
            values = self._loader.run(feed)
        return {o.name: v.numpy() for o, v in zip(self._manifest.outputs, values, strict=True)}

    def close(self) -> None:
        """Free the library."""
        del self._loader


def _require_processor(metadata: Mapping[str, str]) -> None:
    """See that this processor has what the package was compiled for: a missing instruction would end the process."""
    import torch

    here = (platform.machine(), torch.backends.cpu.get_cpu_capability())
    machine, vectors = metadata["AOTI_MACHINE"], metadata["AOTI_CPU_ISA"].partition(" ")[0]
    if machine != here[0] or here[1] not in CAPABILITY.get(vectors, here[1:]):
        raise NotVerifiedHere(
            f"it is machine code for {machine} with {vectors}, and this host has {' with '.join(here)}"
        )


def require_exact_sums() -> None:
    """See that PyTorch adds products of integers exactly here: on x86 without VNNI pairs of them saturate at 32,767."""
    import torch

    largest = torch.full((32, 32), 127, dtype=torch.int8)
    if int(torch._int_mm(largest, largest)[0, 0]) != 32 * 127 * 127:
        raise NotVerifiedHere("it multiplies in INT8, and PyTorch's sums saturate on this processor, which has no VNNI")
