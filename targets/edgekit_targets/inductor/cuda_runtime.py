"""A captured program on an NVIDIA GPU: compiled by Inductor, and replayed as one CUDA graph a shape.

It needs numpy and PyTorch, and travels in packs. A CUDA graph is a recorded list of kernels on fixed buffers: replaying
it costs one launch instead of hundreds
(https://docs.pytorch.org/docs/2.13/notes/cuda.html#cuda-graphs). It trusts the file: loading one unpickles.
"""

from __future__ import annotations

import json
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.errors import ArtifactError, NotVerifiedHere, RuntimeMissingError, UsageError, reason
from edgekit.runtime.cuda_graph import captured
from edgekit.runtime.processor import processor, threads
from edgekit_targets.inductor.linear_gelu import join_gelu
from edgekit_targets.inductor.patches import multiply_patches

if TYPE_CHECKING:
    import torch

    from edgekit.model.spec import Array

CPU, CUDA = "cpu", "cuda"
DECLARED = "declared.json"
"""In the file: `inputs` and `outputs` in their order; of each input its name, and shape and dtype at the start."""
GRAPHS = 64
"""Shapes whose graphs are kept; the one that was asked longest ago goes first."""


class TorchCudaRuntime:
    """A program in PyTorch, which is compiled when it is opened.

    Args:
        file: Path of the `.pt2` file.
        settings: `device`: "cuda", or "cpu" for the same program uncompiled.

    Raises:
        NotVerifiedHere: If there is no PyTorch or no NVIDIA GPU.
        ArtifactError: If PyTorch refuses the file.
    """

    def __init__(self, file: Path, settings: Mapping[str, str] | None = None) -> None:
        try:
            import torch
        except ImportError as error:
            raise RuntimeMissingError(f"PyTorch is not installed ({error})") from error
        self._device = (settings or {}).get("device", CUDA)
        if self._device == CUDA and not torch.cuda.is_available():
            raise NotVerifiedHere(f"PyTorch {torch.__version__} sees no NVIDIA GPU on this host")
        torch.set_num_threads(threads() if self._device == CPU else 1)  # beside a GPU it only copies: others would spin
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        self._module, declared = _opened(file, self._device)
        self._inputs, self._outputs = declared["inputs"], declared["outputs"]
        self._compiled: Callable[..., Any] = self._module
        self._graphs: OrderedDict[tuple[Any, ...], _Graph] = OrderedDict()
        self._latest: _Graph | None = None
        self._facts: dict[str, str] = {}
        if self._device == CUDA:
            self._start()

    @property
    def device(self) -> str:
        """Library, version, how it runs, and the device, in words."""
        import torch

        if self._device == CPU:
            return f"PyTorch {torch.__version__}, CPU, {threads()} threads"
        how = ", ".join(self._facts) or "compiled, one CUDA graph a shape"
        return f"PyTorch {torch.__version__}, {how}, {torch.cuda.get_device_name()}"

    @property
    def hardware(self) -> str:
        """The GPU, or the processor."""
        import torch

        return torch.cuda.get_device_name() if self._device == CUDA else processor()

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Answer one batch of arrays.

        Raises:
            UsageError: If an input is missing, or has a size that the program does not take.
        """
        import torch

        if missing := [one["name"] for one in self._inputs if one["name"] not in inputs]:
            raise UsageError(f"the input '{missing[0]}' is missing")
        feed = [torch.from_numpy(np.array(inputs[one["name"]], one["dtype"], order="C")) for one in self._inputs]
        with torch.inference_mode():
            try:
                if self._device == CPU:
                    values = [value.numpy() for value in _tensors(self._module(*feed))]
                else:
                    values = self._replayed([tensor.pin_memory() for tensor in feed]).fetched()
            except AssertionError as error:  # of the program's guards on its inputs
                raise UsageError(f"the program does not take these sizes: {reason(error)}") from error
        return dict(zip(self._outputs, values, strict=True))

    def close(self) -> None:
        """Free the program, its graphs and their memory."""
        self._graphs.clear()
        self._latest = None
        del self._module, self._compiled

    def facts(self) -> dict[str, str]:
        """What could not be done on this host, by name."""
        return self._facts

    def ways(self, inputs: Mapping[str, Array]) -> Iterator[tuple[str, Callable[[], _Bound]]]:
        """On a GPU: with inputs and outputs that stay in its memory."""
        if self._device == CUDA:
            yield "bound buffers", lambda: self._bound(inputs)

    def way_answer(self) -> dict[str, Array]:
        """What the last run left in the GPU's memory."""
        if self._latest is None:
            return {}
        return dict(zip(self._outputs, self._latest.fetched(), strict=True))

    def _start(self) -> None:
        """Compile for the declared sizes and capture them; where the host cannot compile, the program runs as it is."""
        import torch

        example = [torch.zeros(one["shape"], dtype=getattr(torch, one["dtype"])) for one in self._inputs]
        with torch.inference_mode(), warnings.catch_warnings(action="ignore"):  # advice to turn TF32 on
            self._compiled = torch.compile(self._module)
            try:
                self._compiled(*(tensor.cuda() for tensor in example))
            except Exception as error:  # whatever Inductor and its compilers raise
                self._compiled = self._module
                self._facts["not compiled"] = reason(error)
            self._replayed(example)

    def _replayed(self, tensors: list[torch.Tensor]) -> _Graph:
        """Answer tensors in the order of the inputs; the next run of this shape overwrites the answer."""
        key = tuple((*tensor.shape,) for tensor in tensors)
        graph = self._graphs.get(key)
        if graph is None:
            graph = self._graphs[key] = self._captured(tensors)
            if len(self._graphs) > GRAPHS:
                self._graphs.popitem(last=False)
        self._graphs.move_to_end(key)
        self._latest = graph
        for buffer, tensor in zip(graph.inputs, tensors, strict=True):
            buffer.copy_(tensor, non_blocking=True)
        graph.replay()
        return graph

    def _captured(self, tensors: list[torch.Tensor]) -> _Graph:
        """A graph of these shapes; where PyTorch cannot capture the program, a call of it in the graph's place."""
        import torch

        buffers = [tensor.to(CUDA, copy=True) for tensor in tensors]
        if "no CUDA graph" in self._facts:
            return _Called(buffers, self._compiled)
        try:
            self._compiled(*buffers)
        except AssertionError:  # of the program's guards on its inputs
            raise
        except Exception as error:  # whatever Inductor raises for a shape of another kind
            self._compiled = self._module
            self._facts["not compiled"] = reason(error)
        try:
            replay, outputs = captured(self._compiled, buffers)
        except RuntimeError as error:
            torch.cuda.synchronize()
            self._facts["no CUDA graph"] = reason(error)
            return _Called(buffers, self._compiled)
        return _Graph(buffers, _tensors(outputs), replay)

    def _bound(self, inputs: Mapping[str, Array]) -> _Bound:
        self.run(inputs)
        if self._latest is None:
            raise ArtifactError("nothing ran on the GPU")
        return _Bound(self.device, self._latest)


@dataclass
class _Graph:
    """A captured run: its buffers, and what replays it."""

    inputs: list[torch.Tensor]
    outputs: tuple[torch.Tensor, ...]
    replay: Callable[[], None]

    def fetched(self) -> list[Array]:
        """Copies of the outputs in the host's memory; all are on their way before the first is waited for."""
        import torch

        hosts = [torch.empty(one.shape, dtype=one.dtype, pin_memory=True) for one in self.outputs]
        for host, output in zip(hosts, self.outputs, strict=True):
            host.copy_(output, non_blocking=True)
        torch.cuda.synchronize()
        return [host.numpy() for host in hosts]


class _Called(_Graph):
    """A run that is called anew each time."""

    def __init__(self, inputs: list[torch.Tensor], module: Callable[..., Any]) -> None:
        def call() -> None:
            self.outputs = _tensors(module(*self.inputs))

        super().__init__(inputs, (), call)
        call()


@dataclass
class _Bound:
    """Replays of one graph: inputs and outputs stay in the GPU's memory, as a server has them that feeds it there."""

    device: str
    graph: _Graph

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Answer the inputs that are there, and wait for the GPU."""
        import torch

        self.graph.replay()
        torch.cuda.synchronize()
        return {}

    def close(self) -> None:
        """Nothing of its own."""


def _opened(file: Path, device: str) -> tuple[torch.nn.Module, dict[str, Any]]:
    """The program on its device, and what it declares."""
    import torch

    extra = {DECLARED: ""}
    try:
        with warnings.catch_warnings(action="ignore"):  # of its own deprecations
            exported = torch.export.load(file, extra_files=extra)
            if device == CUDA:
                from torch.export.passes import move_to_device_pass

                exported = move_to_device_pass(exported, CUDA)
            module = exported.module()
            if device == CUDA:
                multiply_patches(module)
                join_gelu(module)
            return module, json.loads(extra[DECLARED])
    except Exception as error:  # whatever a reader of zips, JSON and pickles raises
        raise ArtifactError(f"PyTorch {torch.__version__} refuses '{file.name}': {reason(error)}") from error


def _tensors(answer: object) -> tuple[torch.Tensor, ...]:
    return tuple(answer) if isinstance(answer, tuple | list) else (answer,)  # type: ignore[return-value]  # a tensor
