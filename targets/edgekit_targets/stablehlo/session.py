"""A StableHLO artifact in JAX, on the device that JAX selects.

It needs numpy, JAX and safetensors, and travels in packs.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.errors import ArtifactError, RuntimeMissingError, reason
from edgekit.runtime.processor import gpu_facts, processor

if TYPE_CHECKING:
    from edgekit.model.spec import Array

WEIGHTS, DTYPES = "model.safetensors", "output_dtypes"
"""The file of weights beside the program, and the key of its metadata with the outputs' dtypes as JSON."""


class JaxSession:
    """A program that `jax.export` wrote: `call(weights, inputs)` with dictionaries of arrays.

    Each combination of sizes is compiled on its first use.

    Args:
        model: Path of the `.jax` file; its weights lie beside it.
        settings: Not used.

    Attributes:
        inputs: The inputs' names.
        outputs: The outputs' dtypes by name.

    Raises:
        NotVerifiedHere: If JAX is not installed.
        ArtifactError: If JAX refuses the file.
    """

    def __init__(self, model: Path, settings: Mapping[str, str] | None = None) -> None:
        # Its log names every device that it does not find.
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        try:
            import jax
            import jax.export
            from safetensors import safe_open
        except ImportError as error:
            raise RuntimeMissingError(f"JAX is not installed ({error})") from error
        try:
            program = jax.export.deserialize(bytearray(model.read_bytes()))
            (weights, inputs), _ = jax.tree_util.tree_unflatten(program.in_tree, program.in_avals)
            with safe_open(model.with_name(WEIGHTS), framework="flax") as file:
                self._weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
                self.outputs: dict[str, str] = json.loads((file.metadata() or {})[DTYPES])
        except Exception as error:
            raise ArtifactError(f"JAX refuses '{model.name}': {reason(error)}") from error
        if weights.keys() != self._weights.keys():
            raise ArtifactError(f"'{WEIGHTS}' does not hold the weights of '{model.name}'. Export it again")
        self._dtypes = {name: value.dtype for name, value in inputs.items()}
        self.inputs = tuple(self._dtypes)
        self._call: Any = jax.jit(program.call)
        self._jax = jax

    @property
    def device(self) -> str:
        """Library, version and device, in words."""
        kind = self._jax.devices()[0]
        return f"JAX {self._jax.__version__}, {'CPU' if kind.platform == 'cpu' else kind.device_kind}"

    @property
    def hardware(self) -> str:
        """The GPU's driver, or the processor."""
        if self._jax.devices()[0].platform != "gpu":
            return processor()
        return " ".join(["driver", *driver]) if (driver := gpu_facts("driver_version")) else "unknown driver"

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Compute the outputs of one batch."""
        try:
            with warnings.catch_warnings(action="ignore"):
                feed = {name: np.asarray(inputs[name], dtype) for name, dtype in self._dtypes.items()}
                answer = self._call(self._weights, feed)
                return {name: np.asarray(answer[name]).astype(dtype) for name, dtype in self.outputs.items()}
        except Exception as error:
            raise ArtifactError(f"JAX failed: {reason(error)}") from error

    def close(self) -> None:
        """Free the weights and the compiled programs."""
        self._weights = {}
        self._call = None
