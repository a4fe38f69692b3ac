"""A captured program on an NVIDIA GPU: compiled by Inductor, and replayed as one CUDA graph per shape.

This file needs numpy and PyTorch, and travels in packs. A CUDA graph is a recorded list of kernels on fixed buffers.
Its replay costs one launch instead of hundreds (https://docs.pytorch.org/docs/2.13/notes/cuda.html#cuda-graphs).
The runtime trusts the file, since loading one unpickles.

Two patterns are replaced before Inductor compiles the program. Each becomes a custom operator, which Inductor does not
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
"""In the file: `inputs` and `outputs` in their order. An input has its name, dtype and first shape."""
GRAPHS = 64
"""Count of shapes whose graphs are kept. The one whose last use is longest ago goes first."""
GELU_SCHEMA = "(Tensor rows, Tensor weight, Tensor bias) -> Tensor"
PATCH_SCHEMA = "(Tensor image, Tensor weight, Tensor? bias) -> Tensor"
TENSOR_CORE = 8
"""Channels that a tensor core takes at once. cuDNN's quick kernels need a multiple of it."""


class TorchCudaRuntime:
    """A program in PyTorch, which is compiled when it is opened.

    Args:
        file: Path of the `.pt2` file.
        settings: `device`: "cuda", or "cpu" for the same program uncompiled.

    Raises:
        NotVerifiedHere: If PyTorch or an NVIDIA GPU is missing.
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
        # With a GPU the CPU only copies, and further threads would spin.
        torch.set_num_threads(threads() if self._device == CPU else 1)
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
        """Library, version, way of running, and the device."""
        import torch

        if self._device == CPU:
            return f"PyTorch {torch.__version__}, CPU, {threads()} threads"
        how = ", ".join(self._facts) or "compiled, one CUDA graph per shape"
        return f"PyTorch {torch.__version__}, {how}, {torch.cuda.get_device_name()}"

    @property
    def hardware(self) -> str:
        """The GPU, or the processor."""
        import torch

        return torch.cuda.get_device_name() if self._device == CUDA else processor()

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Compute the answers to one batch of arrays.

        Raises:
            UsageError: If an input is missing, or the program does not take its size.
        """
        import torch

        if missing := [tensor["name"] for tensor in self._inputs if tensor["name"] not in inputs]:
            raise UsageError(f"the input '{missing[0]}' is missing. Pass it")
        feed = [
            torch.from_numpy(np.array(inputs[tensor["name"]], tensor["dtype"], order="C")) for tensor in self._inputs
        ]
        with torch.inference_mode():
            try:
                if self._device == CPU:
                    values = [value.numpy() for value in _tensors(self._module(*feed))]
                else:
                    values = self._replay([tensor.pin_memory() for tensor in feed]).fetch()
            # Raised by the program's guards on its inputs.
            except AssertionError as error:
                raise UsageError(f"the program does not take these sizes: {reason(error)}") from error
        return dict(zip(self._outputs, values, strict=True))

    def close(self) -> None:
        """Free the program, its graphs and their memory."""
        self._graphs.clear()
        self._latest = None
        del self._module, self._compiled

    def facts(self) -> dict[str, str]:
        """Steps that failed on this host, by name."""
        return self._facts

    def modes(self, inputs: Mapping[str, Array]) -> Iterator[tuple[str, Callable[[], _Bound]]]:
        """Yield a mode on a GPU, whose inputs and outputs stay in its memory."""
        if self._device == CUDA:
            yield "bound buffers", lambda: self._bound(inputs)

    def mode_answer(self) -> dict[str, Array]:
        """Return the last run's outputs in the GPU's memory."""
        if self._latest is None:
            return {}
        return dict(zip(self._outputs, self._latest.fetch(), strict=True))

    def _start(self) -> None:
        """Compile for the declared sizes and capture them. If the host cannot compile, the program runs uncompiled."""
        import torch

        example = [torch.zeros(tensor["shape"], dtype=getattr(torch, tensor["dtype"])) for tensor in self._inputs]
        # The warnings advise to turn TF32 on.
        with torch.inference_mode(), warnings.catch_warnings(action="ignore"):
            self._compiled = torch.compile(self._module)
            try:
                self._compiled(*(tensor.cuda() for tensor in example))
            # Inductor and its compilers raise any error.
            except Exception as error:
                self._compiled = self._module
                self._facts["not compiled"] = reason(error)
            self._replay(example)

    def _replay(self, tensors: list[torch.Tensor]) -> _Graph:
        """Run tensors in the order of the inputs. The next run of this shape overwrites the answer."""
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
        """Return a graph of these shapes, or a call of the program if PyTorch cannot capture it."""
        import torch

        buffers = [tensor.to(CUDA, copy=True) for tensor in tensors]
        if "no CUDA graph" in self._facts:
            return _CalledGraph(buffers, self._compiled)
        try:
            self._compiled(*buffers)
        # Raised by the program's guards on its inputs.
        except AssertionError:
            raise
        # Inductor raises any error for a shape of another kind.
        except Exception as error:
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
            raise ArtifactError("nothing ran on the GPU. Run the program on the CPU")
        return _Bound(self.device, self._latest)


@dataclass
class _Graph:
    """A captured run: its buffers, and the function that replays it."""

    inputs: list[torch.Tensor]
    outputs: tuple[torch.Tensor, ...]
    replay: Callable[[], None]

    def fetch(self) -> list[Array]:
        """Return copies of the outputs in the host's memory. All are under way before the first wait."""
        import torch

        hosts = [torch.empty(output.shape, dtype=output.dtype, pin_memory=True) for output in self.outputs]
        for host, output in zip(hosts, self.outputs, strict=True):
            host.copy_(output, non_blocking=True)
        torch.cuda.synchronize()
        return [host.numpy() for host in hosts]


class _CalledGraph(_Graph):
    """A run that calls the program each time."""

    def __init__(self, inputs: list[torch.Tensor], module: Callable[..., Any]) -> None:
        def call() -> None:
            self.outputs = _tensors(module(*self.inputs))

        super().__init__(inputs, (), call)
        call()


@dataclass
class _Bound:
    """Replays of one graph. Inputs and outputs stay in the GPU's memory, as in a server that feeds it there."""

    device: str
    graph: _Graph

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run the inputs in the GPU's memory, and wait for the GPU."""
        import torch

        self.graph.replay()
        torch.cuda.synchronize()
        return {}

    def close(self) -> None:
        """Free nothing, since the runtime owns the graph."""


def _open_program(file: Path, device: str) -> tuple[torch.nn.Module, dict[str, Any]]:
    """Return the program on its device, and its declaration of inputs and outputs."""
    import torch

    extra = {DECLARED: ""}
    try:
        # It warns of its own deprecations.
        with warnings.catch_warnings(action="ignore"):
            exported = torch.export.load(file, extra_files=extra)
            if device == CUDA:
                from torch.export.passes import move_to_device_pass

                exported = move_to_device_pass(exported, CUDA)
            module = exported.module()
            if device == CUDA:
                multiply_patches(module)
                join_gelu(module)
            return module, json.loads(extra[DECLARED])
    # A reader of zips, JSON and pickles raises any error.
    except Exception as error:
        raise ArtifactError(f"PyTorch {torch.__version__} refuses '{file.name}': {reason(error)}") from error


def _tensors(answer: object) -> tuple[torch.Tensor, ...]:
    return tuple(answer) if isinstance(answer, tuple | list) else (answer,)  # type: ignore[return-value]  # a tensor


def join_gelu(module: torch.fx.GraphModule) -> None:
    """Replace, in place, linear layers whose half-precision result is widened only for GELU and then halved again.

    cuBLAS computes GELU where the product's result leaves the tensor cores, so it is not written and read again in
    between. So arr-coc-base at batch 32 takes 2.86 ms instead of 3.12 on an H200. It is GELU by tanh
    (https://docs.nvidia.com/cuda/cublas/#cublasltepilogue-t), with an error of at most 5e-4. The same layer's rounding
    to fp16 has as large an error at 1.
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
    """Replace, in place, the convolutions over separate patches with few channels, like an image's.

    cuDNN has no quick fp16 kernel for patches of three channels. That of arr-coc-base took 0.24 of 3.4 ms for 32 images
    on an H100. The product and its two copies take 0.08. The answer has the convolution's layout in memory. With the
    product's own layout Inductor of PyTorch 2.11 gave wrong answers for an open batch.
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
