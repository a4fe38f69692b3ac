"""Conversion of a user's module to the common form: float32, tensors in by position, a tuple of tensors out.

Modules return dictionaries, dataclasses, transformers' ModelOutput and nested tuples; they take `*args` and
keyword-only inputs, and store weights in bfloat16. A module that needs none of this stays as it is.

    forward(*, pixel_values) -> {"logits": bfloat16 [B, 5], "hidden": ([B, N, D], [B, N, D])}
    forward(pixel_values) -> (logits [B, 5], hidden_0 [B, N, D], hidden_1 [B, N, D])
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import inspect
import keyword
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.errors import ModelError
from edgekit.model.capture_errors import line_of, sentence
from edgekit.model.spec import Array, ModelSpec

if TYPE_CHECKING:
    import torch


PLAIN = "output"
"""Name of a single output tensor, and the first word of the names of a tuple's tensors."""
PART = "inner"
"""Name of the user's module within the adapter."""


def adapt(spec: ModelSpec) -> ModelSpec:
    """Return the model with its module in the common form.

    Raises:
        ModelError: If the output is not made of tensors, or a declared output is missing.
    """
    import torch

    original, module = spec.module, in_float32(spec.module)
    spec = replace(spec, module=module)
    if isinstance(module, torch.fx.GraphModule) or getattr(module, "edgekit_adapter", False):
        return spec
    names = tuple(i.name for i in spec.inputs)
    if not _by_position(module, len(names)):
        return replace(spec, module=adapter(module, names, tuple(o.name for o in spec.outputs)))
    try:
        with torch.no_grad():
            answer = module(*to_tensors(spec, spec.random(seed=0)))
    except Exception as error:
        if module is not original:
            raise ModelError(_in_its_own_dtype(spec.name, original, error)) from error
        # Other errors are reported by capture, with file and line.
        return spec
    # A tensor or a tuple of tensors, in dtypes that every runtime supports, stays as it is.
    values = answer if isinstance(answer, tuple | list) else (answer,)
    if not hasattr(answer, "_fields") and all(isinstance(v, torch.Tensor) and _real(v, "") is v for v in values):
        return spec
    outputs = tuple(o.name for o in spec.outputs)
    # Reports a missing output before any export starts.
    _select_outputs(dict(flatten(answer)), outputs, spec.name)
    return replace(spec, module=adapter(module, names, outputs))


def in_eval(module: torch.nn.Module) -> torch.nn.Module:
    """Return the module, or for a torch.export graph a copy that accepts `eval()`, which such a graph refuses.

    The graph keeps its mode: the mode at export, or the one set by torchao's `move_exported_model_to_eval`.
    """
    import torch

    if not isinstance(module, torch.fx.GraphModule) or "train" not in vars(module):
        return module
    with warnings.catch_warnings():
        # Copying a program's structures warns each time; the user cannot change it.
        warnings.filterwarnings("ignore", message=".*LeafSpec.*", category=FutureWarning)
        settled = copy_module(module)
    for part in settled.modules():
        part.training = False
        vars(part).pop("train", None)
        vars(part).pop("eval", None)
    return settled


def rounds(module: torch.nn.Module) -> bool:
    """Return whether a module quantizes its own activations, as one converted by PT2E or an INT8 ONNX file does."""
    import torch

    if any(getattr(part, "self_quantized", False) is True for part in module.modules()):
        return True
    graphs = (part.graph for part in module.modules() if isinstance(part, torch.fx.GraphModule))
    return any(str(node.target).startswith("quantized_decomposed.quantize") for graph in graphs for node in graph.nodes)


def in_float32(module: torch.nn.Module) -> torch.nn.Module:
    """Return the module if its weights are plain float32 or integer tensors, else a copy with such weights.

    A tensor subclass (torchao's integers with scales) becomes the plain tensors that it is made of.
    """
    import torch
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    if any(is_traceable_wrapper_subclass(parameter) for parameter in module.parameters()):
        from torch._functorch._aot_autograd.subclass_parametrization import unwrap_tensor_subclass_parameters

        module = unwrap_tensor_subclass_parameters(copy_module(module))
    tensors = (*module.parameters(), *module.buffers())
    if all(t.dtype is torch.float32 or not t.is_floating_point() for t in tensors):
        return module
    # Exact: float32 holds every bfloat16 and float16 value.
    return copy_module(module).float()


def adapter(module: torch.nn.Module, inputs: Sequence[str], outputs: Sequence[str]) -> torch.nn.Module:
    """Return a module with the named inputs by position and the named outputs as a tuple, in order."""
    import torch

    class Adapter(torch.nn.Module):
        edgekit_adapter = True

        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            answer = run_module(self.inner, dict(zip(inputs, tensors, strict=True)))
            return _select_outputs(answer, outputs, type(module).__name__)

        # torch.export reads the names and the number of inputs from here.
        forward.__signature__ = signature(inputs)  # type: ignore[attr-defined]

    return Adapter().eval()


def run_module(module: torch.nn.Module, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Run a module on inputs by name and return its output tensors by name."""
    positional, by_name = _arguments(module, tuple(inputs))
    return dict(flatten(module(*(inputs[n] for n in positional), **{n: inputs[n] for n in by_name})))


def to_tensors(spec: ModelSpec, inputs: Mapping[str, Array]) -> tuple[torch.Tensor, ...]:
    """Return inputs as the tensors that the module's forward takes, in order."""
    import torch

    return tuple(torch.from_numpy(np.asarray(inputs[i.name], order="C")) for i in spec.inputs)


def named_outputs(spec: ModelSpec, answer: object) -> dict[str, Array]:
    """Return the module's output (a tensor or a tuple) as arrays by output name.

    Raises:
        ModelError: If the number of outputs differs from the declared one.
    """
    import torch

    values = list(answer) if isinstance(answer, (tuple, list)) else [answer]
    answers = [v.detach().cpu().numpy() for v in values if isinstance(v, torch.Tensor)]
    if len(answers) != len(values):
        raise ModelError(f"'{spec.name}' must return a tensor or a tuple of tensors")
    if len(values) != len(spec.outputs):
        raise ModelError(f"'{spec.name}' returned {len(values)} outputs but declares {len(spec.outputs)}")
    return {o.name: v for o, v in zip(spec.outputs, answers, strict=True)}


def flatten(answer: object) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield output tensors by name: keys and fields joined by `_`, numbers for the places of a tuple.

    Raises:
        ModelError: If the output contains anything but tensors, None and collections of them.
    """
    import torch

    for name, value in leaves(answer, plain=PLAIN):
        if isinstance(value, torch.Tensor):
            yield name, _real(value, name)
        elif value is not None:
            where = f" in '{name}'" if value is not answer else ""
            raise ModelError(
                f"the module returned {type(value).__name__}{where}. Return tensors, or tuples, dictionaries or "
                "dataclasses of tensors"
            )


def _real(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """Return the tensor in a dtype that every runtime supports."""
    import torch

    if tensor.is_complex():
        raise ModelError(
            f"the module returned {tensor.dtype} in '{name or PLAIN}', which no edge runtime supports. Return "
            "torch.view_as_real(answer), or its real and imaginary parts"
        )
    return tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor


def _select_outputs(
    tensors: Mapping[str, torch.Tensor], outputs: Sequence[str], model: str
) -> tuple[torch.Tensor, ...]:
    """Return the declared outputs: by name if the output is named, else in order."""
    if set(outputs) <= set(tensors):
        return tuple(tensors[name] for name in outputs)
    if len(tensors) == len(outputs) and all(name.startswith(PLAIN) for name in tensors):
        return tuple(tensors.values())
    missing = next(name for name in outputs if name not in tensors)
    raise ModelError(f"'{model}' did not return '{missing}'. It returned: {', '.join(tensors) or 'nothing'}")


def _in_its_own_dtype(name: str, module: torch.nn.Module, error: Exception) -> str:
    import torch

    dtype = next(t.dtype for t in module.state_dict().values() if t.is_floating_point() and t.dtype != torch.float32)
    return (
        f"'{name}' has {dtype} weights and fails in float32, which artifacts use{line_of(error)}: "
        f"{sentence(error)}. Remove casts to {dtype} from its code"
    )


def _by_position(module: torch.nn.Module, count: int) -> bool:
    """Return whether `forward` takes at least `count` positional parameters and requires no keyword."""
    parameters = parameters_of(module)
    kinds = [p.kind for p in parameters]
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return False
    needed = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    return not needed and sum(k in (0, 1) for k in kinds) >= count


def _arguments(module: torch.nn.Module, inputs: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the inputs passed by position, and those passed by name."""
    parameters = parameters_of(module)
    keywords = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
    by_name = [name for name in inputs if name in keywords]
    places = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    others = [name for name in inputs if name not in keywords]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters) or not set(others) <= set(places):
        return others, by_name
    # Named as in forward, perhaps with gaps: inputs after a gap are passed by name.
    straight = next((n for n, (a, b) in enumerate(zip(others, places, strict=False)) if a != b), len(others))
    return others[:straight], [*others[straight:], *by_name]


@contextlib.contextmanager
def without_fast_path() -> Iterator[None]:
    """Run attention as its code says inside the block.

    Eager PyTorch has a kernel of its own for encoder layers with a padding mask, which writes zeros at the padded
    positions. No captured program does, and nobody reads these positions.
    """
    import torch

    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def copy_module(module: torch.nn.Module) -> torch.nn.Module:
    """Return a copy of a module with weights of its own.

    A tensor that was computed once and kept as an attribute, without `no_grad`, still has its history. PyTorch cannot
    copy that, and no answer needs it.
    """
    import torch

    values = [value for part in module.modules() for value in vars(part).values() if isinstance(value, torch.Tensor)]
    memo = {id(value): value.detach().clone() for value in values if value.grad_fn is not None}
    return copy.deepcopy(module, memo)


def parameters_of(module: torch.nn.Module) -> list[inspect.Parameter]:
    """Return the parameters of a module's `forward`; for TorchScript they come from its schema."""
    import torch

    if isinstance(module, torch.jit.ScriptModule):
        kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
        schema = module.forward.schema  # type: ignore[attr-defined]  # of TorchScript alone
        return [inspect.Parameter(argument.name, kind) for argument in schema.arguments[1:]]
    return list(inspect.signature(module.forward).parameters.values())


def signature(inputs: Sequence[str]) -> inspect.Signature:
    """Return the signature of a method that takes the named inputs by position."""
    names = [
        name if name.isidentifier() and not keyword.iskeyword(name) and name != "self" else f"input_{number}"
        for number, name in enumerate(inputs)
    ]
    kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Signature([inspect.Parameter(name, kind) for name in ("self", *names)])


Children = tuple[list[str], list[Any], Callable[[list[Any]], Any]]
"""Keys, values, and a function that puts other values under the same keys."""


def leaves(value: Any, name: str = "", plain: str = "output") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a structure by name: keys and fields joined by `_`, numbers for the places of a tuple.

    Args:
        value: A tensor, or a structure.
        name: Name of the whole structure.
        plain: First word if the whole has no name and its parts have only numbers.
    """
    children = _child_nodes(value)
    if children is None:
        yield name or plain, value
        return
    for key, child in zip(*children[:2], strict=True):
        first = name or (plain if key.isdigit() else "")
        yield from leaves(child, f"{first}_{key}" if first else key, plain)


def rebuilt(value: Any, tensors: Iterator[torch.Tensor]) -> Any:
    """Return the structure with its tensors replaced, in the order of `leaves`."""
    import torch

    if isinstance(value, torch.Tensor):
        return next(tensors)
    children = _child_nodes(value)
    return value if children is None else children[2]([rebuilt(child, tensors) for child in children[1]])


def _child_nodes(value: Any) -> Children | None:
    """Return one level of a structure; None for a leaf."""
    from torch.utils import _pytree as pytree

    def inside(other: Any) -> bool:
        return other is not value

    pairs, layout = pytree.tree_flatten_with_path(value, is_leaf=inside)
    if not layout.is_leaf():
        return (
            [
                str(next(getattr(path[0], name) for name in ("key", "idx", "name") if hasattr(path[0], name)))
                for path, _ in pairs
            ],
            [child for _, child in pairs],
            lambda values: pytree.tree_unflatten(values, layout),
        )
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return (
            names,
            [getattr(value, n) for n in names],
            lambda values: _record(value, dict(zip(names, values, strict=True))),
        )
    if isinstance(value, Mapping):
        kind: Any = type(value)
        return [str(k) for k in value], list(value.values()), lambda values: kind(dict(zip(value, values, strict=True)))
    return None


def _record(like: Any, fields: Mapping[str, Any]) -> Any:
    """Return a dataclass of the same kind without calling its `__init__`, which may take other arguments."""
    record = object.__new__(type(like))
    for name, value in {**vars(like), **fields}.items():
        object.__setattr__(record, name, value)
    return record


def unique(names: Sequence[str], reserved: Sequence[str] = ()) -> list[str]:
    """Return unique names that every target accepts: letters, digits and underscores, none of them reserved."""
    unique_names: list[str] = []
    for name in names:
        word = re.sub(r"[^A-Za-z0-9_.]+", "_", name).strip("_.")
        word = word if word[:1].isalpha() else f"tensor_{word}"
        if word in reserved:
            word = f"{word}_out"
        number = 2
        while word in unique_names or word in reserved:
            word, number = f"{word}_{number}", number + 1
        unique_names.append(word)
    return unique_names
