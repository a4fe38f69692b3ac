"""A captured program on an NVIDIA GPU: compiled by Inductor, and replayed as one CUDA graph a shape.

This file needs numpy and PyTorch, and travels in packs. A CUDA graph is a recorded list of kernels on fixed buffers:
replaying it costs one launch instead of hundreds (https://docs.pytorch.org/docs/2.13/notes/cuda.html#cuda-graphs).
The runtime trusts the file: loading one unpickles.

Two patterns are replaced before Inductor compiles the program. Each is an operator of its own, which Inductor does not
take apart.
"""

from __future__ import annotations

import json
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.errors import ArtifactError, NotVerifiedHere, RuntimeMissingError, UsageError, reason
from edgekit.runtime.cuda_graph import capture_graph
from edgekit.runtime.processor import processor, threads

if TYPE_CHECKING:
    import torch

    from edgekit.model.spec import Array

CPU, CUDA = "cpu", "cuda"
DECLARED = "declared.json"
"""In the file: `inputs` and `outputs` in their order; of each input its name, and shape and dtype at the start."""
GRAPHS = 64
"""Shapes whose graphs are kept; the one that was asked longest ago goes first."""
GELU_SCHEMA = "(Tensor rows, Tensor weight, Tensor bias) -> Tensor"
PATCH_SCHEMA = "(Tensor image, Tensor weight, Tensor? bias) -> Tensor"
TENSOR_CORE = 8
"""Channels that a tensor core takes at once: cuDNN's quick kernels need a multiple of it."""


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
        self._module, declared = _open_program(file, self._device)
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

        if missing := [tensor["name"] for tensor in self._inputs if tensor["name"] not in inputs]:
            raise UsageError(f"the input '{missing[0]}' is missing")
        feed = [
            torch.from_numpy(np.array(inputs[tensor["name"]], tensor["dtype"], order="C")) for tensor in self._inputs
        ]
        with torch.inference_mode():
            try:
                if self._device == CPU:
                    values = [value.numpy() for value in _tensors(self._module(*feed))]
                else:
                    values = self._replay([tensor.pin_memory() for tensor in feed]).fetch()
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

    def modes(self, inputs: Mapping[str, Array]) -> Iterator[tuple[str, Callable[[], _Bound]]]:
        """On a GPU: with inputs and outputs that stay in its memory."""
        if self._device == CUDA:
            yield "bound buffers", lambda: self._bound(inputs)

    def mode_answer(self) -> dict[str, Array]:
        """What the last run left in the GPU's memory."""
        if self._latest is None:
            return {}
        return dict(zip(self._outputs, self._latest.fetch(), strict=True))

    def _start(self) -> None:
        """Compile for the declared sizes and capture them; where the host cannot compile, the program runs as it is."""
        import torch

        example = [torch.zeros(tensor["shape"], dtype=getattr(torch, tensor["dtype"])) for tensor in self._inputs]
        with torch.inference_mode(), warnings.catch_warnings(action="ignore"):  # advice to turn TF32 on
            self._compiled = torch.compile(self._module)
            try:
                self._compiled(*(tensor.cuda() for tensor in example))
            except Exception as error:  # whatever Inductor and its compilers raise
                self._compiled = self._module
                self._facts["not compiled"] = reason(error)
            self._replay(example)

    def _replay(self, tensors: list[torch.Tensor]) -> _Graph:
        """Answer tensors in the order of the inputs; the next run of this shape overwrites the answer."""
        key = tuple((*tensor.shape,) for tensor in tensors)
        graph = self._graphs.get(key)
        if graph is None:
            graph = self._graphs[key] = self._capture(tensors)
            if len(self._graphs) > GRAPHS:
                self._graphs.popitem(last=False)
        self._graphs.move_to_end(key)
        self._latest = graph
        for buffer, tensor in zip(graph.inputs, tensors, strict=True):
            buffer.copy_(tensor, non_blocking=True)
        graph.replay()
        return graph

    def _capture(self, tensors: list[torch.Tensor]) -> _Graph:
        """A graph of these shapes; where PyTorch cannot capture the program, a call of it in the graph's place."""
        import torch

        buffers = [tensor.to(CUDA, copy=True) for tensor in tensors]
        if "no CUDA graph" in self._facts:
            return _CalledGraph(buffers, self._compiled)
        try:
            self._compiled(*buffers)
        except AssertionError:  # of the program's guards on its inputs
            raise
        except Exception as error:  # whatever Inductor raises for a shape of another kind
            self._compiled = self._module
            self._facts["not compiled"] = reason(error)
        try:
            replay, outputs = capture_graph(self._compiled, buffers)
        except RuntimeError as error:
            torch.cuda.synchronize()
            self._facts["no CUDA graph"] = reason(error)
            return _CalledGraph(buffers, self._compiled)
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

    def fetch(self) -> list[Array]:
        """Copies of the outputs in the host's memory; all are on their way before the first is waited for."""
        import torch

        hosts = [torch.empty(output.shape, dtype=output.dtype, pin_memory=True) for output in self.outputs]
        for host, output in zip(hosts, self.outputs, strict=True):
            host.copy_(output, non_blocking=True)
        torch.cuda.synchronize()
        return [host.numpy() for host in hosts]


class _CalledGraph(_Graph):
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


def _open_program(file: Path, device: str) -> tuple[torch.nn.Module, dict[str, Any]]:
    """Return the program on its device, and what it declares."""
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


def join_gelu(module: torch.fx.GraphModule) -> None:
    """Replace, in place, linear layers whose half-precision result is widened for GELU alone, and is halved again.

    cuBLAS computes GELU where the product's result leaves the tensor cores, so that it is not written in between and
    read again: arr-coc-base at batch 32 takes 2.86 ms for 3.12 on an H200. It is GELU by tanh
    (https://docs.nvidia.com/cuda/cublas/#cublasltepilogue-t), off by 5e-4 at most; the same layer's rounding to fp16 is
    off by as much at 1.
    """
    graph = module.graph
    joins = [node for node in graph.nodes if _joins(node)]
    for gelu in joins:
        linear = gelu.args[0].args[0]
        with graph.inserting_before(gelu):
            joined = graph.call_function(_linear_gelu(), linear.args)
        joined.meta = linear.meta
        for halved in list(gelu.users):
            halved.replace_all_uses_with(joined)
    if joins:
        graph.eliminate_dead_code()
        module.recompile()


def _joins(gelu: Any) -> bool:
    import torch

    aten = torch.ops.aten
    if gelu.target is not aten.gelu.default or gelu.args[0].target is not aten.to.dtype:
        return False
    widened = gelu.args[0]
    linear = widened.args[0]
    if linear.target is not aten.linear.default or (*linear.args, None)[2] is None:
        return False
    half = linear.meta["val"].dtype
    alone = len(widened.users) == len(linear.users) == 1
    halved = all(user.target is aten.to.dtype and user.args[1] is half for user in gelu.users)
    return half in (torch.float16, torch.bfloat16) and alone and halved


@cache
def _linear_gelu() -> Callable[..., torch.Tensor]:
    """Return the operator: rows [..., K], weight [N, K], bias [N] -> [..., N], all of one dtype."""
    import torch

    def product(rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        flat = torch._addmm_activation(bias, rows.reshape(-1, rows.shape[-1]), weight.t(), use_gelu=True)
        return flat.view(*rows.shape[:-1], weight.shape[0])

    def shape(rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.empty((*rows.shape[:-1], weight.shape[0]), dtype=rows.dtype, device=rows.device)

    operator = torch.library.custom_op("edgekit::linear_gelu", product, mutates_args=(), schema=GELU_SCHEMA)
    operator.register_fake(shape)
    return operator._opoverload


def multiply_patches(module: torch.fx.GraphModule) -> None:
    """Replace, in place, the convolutions over patches that do not overlap and have as few channels as an image.

    cuDNN has no quick fp16 kernel for patches of three channels: that of arr-coc-base took 0.24 of 3.4 ms for 32 images
    on an H100, the product and its two copies take 0.08. The answer lies in memory as the convolution's does: of the
    product's own layout Inductor of PyTorch 2.11 made wrong answers for an open batch.
    """
    graph = module.graph
    patches = [node for node in graph.nodes if _covers_patches(node)]
    for node in patches:
        image, weight, bias = (*node.args[:3], None)[:3]
        with graph.inserting_before(node):
            product = graph.call_function(_product(), (image, weight, bias))
        product.meta = node.meta
        node.replace_all_uses_with(product)
        graph.erase_node(node)
    if patches:
        module.recompile()


def _covers_patches(node: torch.fx.Node) -> bool:
    import torch

    if node.target is not torch.ops.aten.conv2d.default:
        return False
    arguments: Any = node.args
    settings = [*arguments[3:], *([1, 1], [0, 0], [1, 1], 1)[len(arguments[3:]) :]]
    stride, padding, dilation, groups = settings
    channels, *kernel = arguments[1].meta["val"].shape[1:]
    plain = not any(padding) and {*dilation} == {1} and groups == 1 and arguments[0].meta["val"].dim() == 4
    return bool(plain and [*stride] == kernel and min(kernel) > 1 and channels % TENSOR_CORE)


@cache
def _product() -> Callable[..., torch.Tensor]:
    """Return the operator: image [B, C, H, W], weight [D, C, p, q], bias [D] or None -> [B, D, H // p, W // q]."""
    import torch

    def product(image: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        wide, channels, down, across = weight.shape
        rows, columns = image.shape[2] // down, image.shape[3] // across
        whole = image[:, :, : rows * down, : columns * across]
        parts = whole.reshape(image.shape[0], channels, rows, down, columns, across).permute(0, 2, 4, 1, 3, 5)
        flat = parts.reshape(image.shape[0], rows, columns, channels * down * across)
        answer = torch.nn.functional.linear(flat, weight.reshape(wide, -1), bias).permute(0, 3, 1, 2)
        return answer.clone(memory_format=torch.contiguous_format)

    def shape(image: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        wide, _, down, across = weight.shape
        sizes = (image.shape[0], wide, image.shape[2] // down, image.shape[3] // across)
        return torch.empty(sizes, dtype=image.dtype, device=image.device)

    operator = torch.library.custom_op("edgekit::patch_product", product, mutates_args=(), schema=PATCH_SCHEMA)
    operator.register_fake(shape)
    return operator._opoverload
