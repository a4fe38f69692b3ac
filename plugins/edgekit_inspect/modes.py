"""The modes in which a model can run: PyTorch eager, compiled and as a CUDA graph, and the artifacts of a build."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit import registry
from edgekit.artifact.store import read_artifact
from edgekit.errors import EdgekitError
from edgekit.model.adapter import to_tensors
from edgekit.model.spec import Array, ModelSpec
from edgekit.records import FP32
from edgekit.runtime.cuda_graph import captured
from edgekit.runtime.ort import OrtRuntime
from edgekit.runtime.processor import threads
from edgekit.runtime.protocol import Runtime, SelfTimed, SeveralWays
from edgekit.target import Place, Target

if TYPE_CHECKING:
    import torch

CPU, CUDA = "cpu", "cuda"
EAGER = "eager"
COMPILED = "compiled"
"""What the names of the modes of `torch.compile` start with."""
COMPILER_MODES = ("default", "reduce-overhead", "max-autotune")
FOR_GPUS = "reduce-overhead"


@dataclass(frozen=True)
class Mode:
    """One mode: its name, and what opens it for one batch of inputs; opening does all but the first run."""

    name: str
    open: Callable[[Mapping[str, Array]], Runtime]


def torch_modes(spec: ModelSpec, device: str) -> Iterator[Mode]:
    """PyTorch's own modes of a model's module, eager first; each on a copy of the module."""
    import torch

    yield Mode(EAGER, _opener(spec, device, lambda module: module))
    if device == CUDA:
        yield Mode("eager, TF32", _opener(spec, device, lambda module: module, tf32=True))
        yield Mode("CUDA graph", lambda inputs: GraphMode(spec, device, inputs, lambda module: module))
    for mode in COMPILER_MODES:
        if device == CUDA or mode != FOR_GPUS:
            name = COMPILED if mode == "default" else f"{COMPILED}, {mode}"
            yield Mode(name, _opener(spec, device, partial(torch.compile, mode=mode, dynamic=False)))


def _opener(
    spec: ModelSpec, device: str, make: Callable[[Any], Callable[..., Any]], tf32: bool = False
) -> Callable[[Mapping[str, Array]], Runtime]:
    return lambda inputs: TorchMode(spec, device, inputs, make, tf32)


def artifact_modes(build: Path, device: str, trusted: bool) -> tuple[list[Mode], list[str]]:
    """The verified artifacts of a build that can be timed in this process on a device, and why others are left out."""
    modes, left = [], []
    for folder in sorted(path for path in build.iterdir() if (path / "manifest.json").is_file()):
        try:
            manifest = read_artifact(folder)
            target = registry.find(manifest.target)
            registry.require(manifest.target, target)
            runtime = _runtime(target, folder, manifest.entry, device)
            if runtime is None or manifest.bundle.variants:
                continue
            statuses = {verdict.place: verdict.status for verdict in manifest.verdicts}
            if (status := statuses.get(_place(target, device).name, "not judged")) != "verified":
                left.append(f"{manifest.target}: {status}")
                continue
            registry.require_trust(manifest.target, target, trusted)
            modes.append(Mode(*runtime))
        except EdgekitError as error:
            left.append(f"{folder.name}: {error}")
    return modes, left


def _place(target: Target, device: str) -> Place:
    """The place of a target whose verdict counts on a device: on a GPU its own there, else its first."""
    return target.place_on(device) or target.places[0]


def _runtime(
    target: Target, folder: Path, entry: str, device: str
) -> tuple[str, Callable[[Mapping[str, Array]], Runtime]] | None:
    """How an artifact is shown and opened; None where it does not run on the device in this process."""
    place = _place(target, device)
    if device == CUDA:
        if place.settings.get("device") == CUDA:
            return folder.name, lambda inputs: BoundMode(target.load(folder, place), inputs)
        if entry.endswith(".onnx"):
            settings = FP32.settings
            return f"{folder.name}, ONNX Runtime", lambda inputs: BoundMode(
                OrtRuntime(folder / entry, settings), inputs
            )
        return None
    if not target.places[0].timed or target.places[0].settings.get("device") == CUDA:
        return None

    def opened(inputs: Mapping[str, Array]) -> Runtime:
        runtime = target.load(folder, target.places[0])
        if isinstance(runtime, SelfTimed):
            runtime.close()
            raise EdgekitError("it measures itself elsewhere")
        return runtime

    return folder.name, opened


class TorchMode:
    """A module on a device with its inputs there: a run answers them and waits."""

    def __init__(
        self,
        spec: ModelSpec,
        device: str,
        inputs: Mapping[str, Array],
        make: Callable[[torch.nn.Module], Callable[..., Any]],
        tf32: bool = False,
    ) -> None:
        import torch

        torch.set_num_threads(threads())
        self._spec, self._place, self._tf32 = spec, device, tf32
        module, self._tensors = placed(spec, device, inputs)
        self._call = make(module)
        self._answer: Any = ()

    @property
    def device(self) -> str:
        """Library, version and device, in words."""
        import torch

        where = torch.cuda.get_device_name() if self._place == CUDA else f"CPU, {threads()} threads"
        return f"PyTorch {torch.__version__}, {where}"

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Answer the inputs that are there."""
        import torch

        if self._place == CUDA:
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = self._tf32
        with torch.inference_mode():
            self._answer = self._call(*self._tensors)
        if self._place == CUDA:
            torch.cuda.synchronize()
        return {}

    def way_answer(self) -> dict[str, Array]:
        """The last answer, on the CPU."""
        values = self._answer if isinstance(self._answer, tuple | list) else (self._answer,)
        return {o.name: v.detach().cpu().numpy() for o, v in zip(self._spec.outputs, values, strict=True)}

    def close(self) -> None:
        """Free the module's copy."""
        del self._call, self._tensors, self._answer


class GraphMode(TorchMode):
    """A module that was captured as a CUDA graph."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._module = self._call  # its weights must outlive the graph
        graph, answer = captured(self._call, self._tensors)

        def replay(*_: torch.Tensor) -> Any:
            graph()
            return answer

        self._call = replay


class BoundMode:
    """An artifact on a GPU, with its inputs and outputs in the GPU's memory."""

    def __init__(self, runtime: Runtime, inputs: Mapping[str, Array]) -> None:
        self._runtime = runtime
        self.device = runtime.device
        ways = dict(runtime.ways(inputs)) if isinstance(runtime, SeveralWays) else {}
        self._bound: Runtime | None = None
        for way in reversed(ways.values()):  # the last is the quickest: a CUDA graph where there is one
            try:
                self._bound = way()
                break
            except Exception:  # noqa: S112 - the next way is tried: not every graph can be captured
                continue
        if self._bound is None:
            raise EdgekitError("it cannot keep its inputs on the GPU")

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Answer the inputs that are there, and wait."""
        return self._bound.run(inputs) if self._bound is not None else {}

    def way_answer(self) -> dict[str, Array]:
        """The last answer, on the CPU."""
        return self._runtime.way_answer() if isinstance(self._runtime, SeveralWays) else {}

    def close(self) -> None:
        """Free the artifact."""
        self._runtime.close()


def placed(
    spec: ModelSpec, device: str, inputs: Mapping[str, Array]
) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """A model's module (on a GPU a copy of it) and its inputs, on a device."""
    module = spec.module if device == CPU else copy.deepcopy(spec.module).to(device)
    return module, tuple(tensor.to(device) for tensor in to_tensors(spec, inputs))


def furthest(answer: Mapping[str, Array], right: Mapping[str, Array], outputs: Sequence[str]) -> float | None:
    """Largest absolute difference of the floating outputs that both have; None where there is none."""
    pairs = [(answer[name], right[name]) for name in outputs if name in answer and name in right]
    floats = [(a, b) for a, b in pairs if a.shape == b.shape and b.dtype.kind == "f" and b.size]
    return max((float(np.abs(a.astype(np.float64) - b).max()) for a, b in floats), default=None)
