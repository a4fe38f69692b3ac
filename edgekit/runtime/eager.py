"""The PyTorch module itself as a runtime: it records references, and is the baseline of timings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from edgekit.model.adapter import named_outputs, to_tensors, without_fast_path
from edgekit.model.spec import Array, ModelSpec
from edgekit.runtime.processor import threads

if TYPE_CHECKING:
    import torch


class EagerRuntime:
    """A model's module in eager PyTorch on "cpu" or "cuda", in float64 if `double`; the module stays there."""

    def __init__(self, spec: ModelSpec, device: str = "cpu", double: bool = False) -> None:
        import torch

        torch.set_num_threads(threads())
        self._spec = spec
        self._floats, self._complex = (torch.float64, torch.complex128) if double else (torch.float32, torch.complex64)
        self._device = device
        # Module.to would drop the imaginary parts of complex weights.
        self._module = spec.module._apply(self._to_device)  # type: ignore[no-untyped-call]

    @property
    def device(self) -> str:
        """Library, version, device and threads, in words."""
        import torch

        if self._device == "cpu":
            return f"PyTorch {torch.__version__} eager, CPU, {threads()} threads"
        return f"PyTorch {torch.__version__} eager, {torch.cuda.get_device_name()}"

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run one batch; floating-point inputs are cast to the runtime's dtype."""
        import torch

        arguments = map(self._to_device, to_tensors(self._spec, inputs))
        with torch.inference_mode(), without_fast_path():
            return named_outputs(self._spec, self._module(*arguments))

    def _to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor on the device, with floats and complex numbers in the runtime's width."""
        dtype = self._floats if tensor.is_floating_point() else self._complex if tensor.is_complex() else None
        return tensor.to(self._device, dtype)

    def close(self) -> None:
        """Free the module."""
        del self._module
