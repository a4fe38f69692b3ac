"""A module, captured where its environment cannot change: its program with its weights, and what it answered there.

This file stands alone: copied anywhere, it needs torch from 2.10, numpy and safetensors, and nothing of edgekit.

    from capture import capture
    capture(net, (torch.rand(1, 3, 64, 64),), "net-captured", axes={"images": "0=batch,2=height:32..128/16"})

`edgekit export capture:net-captured` goes on elsewhere. The folder holds

    program.pt2          torch.export's program, with its weights
    answers.safetensors  of each run by its number the inputs and what the module answered: `0/in/1`, `0/out/0`
    capture.json         the name, the axes, what captured it, how many runs, the hashes of the files and of itself
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import inspect
import json
import platform
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

RECORD, PROGRAM, ANSWERS = "capture.json", "program.pt2", "answers.safetensors"
SEAL = "content_sha256"  # field of the record with its own hash
DECLARED = "declared"  # and with what `edgekit capture` knows of a model beyond its program
MOST_IMAGES = 8  # of a batch, where nothing is said
LARGEST = 1 << 27  # elements of the inputs of a recorded run
CLOSE = 1e-5  # of an output's largest value: the program holds the module's own operators
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
CONSTANTS = (bool, int, float, str, type(None))
DIMENSION = re.compile(r"(\d+)=([^:,=]+)(?::(\d+)\.\.(\d+)(?:/(\d+))?(?:@\d+)?)?")
Sizes = dict[str, int]
Axes = Mapping[str, Mapping[int, str]]


class NotCapturedError(ValueError):
    """Why nothing was written, in a sentence."""


@dataclasses.dataclass(frozen=True)
class _Asked:
    """What the module is asked: its arguments, which of them are tensors, and which of their dimensions vary."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    tensors: dict[str, torch.Tensor]
    axes: Axes
    ranges: dict[str, tuple[int, int, int]]

    def sizes(self, last: bool) -> Sizes:
        """The largest or the smallest size of each axis."""
        steps = self.ranges.items()
        return {n: high // step * step if last else -(-low // step) * step for n, (low, high, step) in steps}

    def traced(self) -> Sizes:
        """Sizes of which torch.export takes none for a constant: not 0 or 1, and not those of another axis."""
        found: Sizes = {}
        for name, (low, high, step) in self.ranges.items():
            possible = range(-(-low // step) * step, high + 1, step)
            usable = [size for size in possible if size > 1]
            found[name] = next((size for size in usable if size not in found.values()), (usable or [possible[-1]])[0])
        return found

    def at(self, sizes: Sizes) -> list[torch.Tensor]:
        """The example's tensors, repeated or cut to some sizes."""
        import torch

        made = []
        for name, tensor in self.tensors.items():
            for dimension, axis in self.axes.get(name, {}).items():
                size = sum(sizes[part] for part in axis.split("+"))
                rows = torch.arange(size) % max(tensor.shape[dimension], 1)
                tensor = tensor.index_select(dimension, rows)
            made.append(tensor.contiguous())
        return made

    def filled(self, tensors: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with other values in place of the tensors."""
        rest = iter(tensors)
        args = tuple(next(rest) if _is_tensor(value) else value for value in self.args)
        return args, {n: next(rest) if _is_tensor(value) else value for n, value in self.kwargs.items()}


def capture(
    module: torch.nn.Module,
    example: Any,
    folder: str | Path,
    axes: Mapping[str, str] | None = None,
    name: str = "",
    *,
    declared: Mapping[str, Any] | None = None,
    files: Sequence[Path] = (),
) -> Path:
    """Capture a module, see that its program answers as it does, and write both down.

    Args:
        module: In eval mode.
        example: One tensor, a sequence in the order of `forward`, values by the names of its parameters, or a tuple and
            a dictionary for both. Values are tensors, and numbers, texts and None, which are fixed.
        folder: Where to write; it must not exist.
        axes: Which dimensions vary, as `edgekit.export` takes them: `{"ids": "0=batch,1=length:1..512"}`. None lets
            the first dimension be the batch, of 1 to 8, of each input that has the first input's size there.
        name: Of the model; that of its class where none is given.
        declared: What `edgekit capture` knows of the model beyond its program, as JSON has it.
        files: What else it knows, copied beside the program.

    Returns:
        The folder.

    Raises:
        NotCapturedError: If the folder exists, the example does not fit, or the module cannot be captured as it is.
    """
    import torch

    place, kind = Path(folder), type(module).__name__
    if place.exists() or place.is_symlink():
        raise NotCapturedError(f"'{place}' exists: name a folder that does not")
    if not isinstance(module, torch.nn.Module) or isinstance(module, torch.jit.ScriptModule):
        raise NotCapturedError(f"a {kind} is not captured: give an instance of torch.nn.Module in Python")
    if name and not NAME.fullmatch(name):
        raise NotCapturedError(f"'{name}' is not a name for a model: write letters, digits, dots, dashes")
    if any(getattr(part, "training", False) for part in module.modules()):
        raise NotCapturedError(f"'{kind}' is in training mode: call .eval() before capturing it")
    asked, words = _asked(module, example, axes)
    single = _plain(module)
    with torch.no_grad():
        runs = [(inputs, _answer(single, asked, inputs, kind)) for inputs in _inputs(asked)]
        again = _answer(single, asked, runs[0][0], kind)
        if not _close(again, runs[0][1]):
            raise NotCapturedError(f"'{kind}' answers the same input differently twice: let it draw nothing by chance")
        program = _program(single, asked, kind)
        graph = program.module()
        for inputs, answer in runs:
            if not _close(answer, _answer(graph, asked, inputs, f"the program of '{kind}'")):
                shapes = [list(tensor.shape) for tensor in inputs]
                raise NotCapturedError(
                    f"the program of '{kind}' answers inputs of {shapes} otherwise than the module: a branch or a size "
                    "was baked in"
                )
    record = {
        "schema_version": 1,
        "name": name or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", kind).lower().strip("_"),
        "axes": words,
        "runs": len(runs),
        "made_by": {"torch": torch.__version__, "python": platform.python_version(), "machine": platform.machine()},
        **({} if declared is None else {DECLARED: dict(declared)}),
    }
    _write(place, record, program, runs, files)
    return place


def _asked(module: torch.nn.Module, example: Any, axes: Mapping[str, str] | None) -> tuple[_Asked, dict[str, str]]:
    """What the module is asked, and the axes in words.

    Raises:
        NotCapturedError: If the example or the axes do not fit.
    """
    import torch

    parameters = inspect.signature(module.forward).parameters
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    if isinstance(example, Mapping):
        kwargs = dict(example)
    elif isinstance(example, Sequence) and not isinstance(example, str):
        both = len(example) == 2 and isinstance(example[0], tuple) and isinstance(example[1], Mapping)
        args, kwargs = (example[0], dict(example[1])) if both else (tuple(example), {})
    else:
        args, kwargs = (example,), {}
    named = {**dict(zip(parameters, args, strict=False)), **kwargs}
    variadic = any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters.values())
    if variadic or len(named) != len(args) + len(kwargs) or set(named) - set(parameters):
        raise NotCapturedError(
            f"the example does not fit forward({', '.join(parameters)}): give each parameter once, and write "
            "forward() without *args and **kwargs"
        )
    for key, value in named.items():
        if not isinstance(value, (torch.Tensor, *CONSTANTS)):
            raise NotCapturedError(
                f"'{key}' is a {type(value).__name__}: give tensors, numbers, texts or None; let a module around this "
                "one put its tensors together"
            )
    wide = {n: v.float() if _is_half(v) else v for n, v in named.items()}
    tensors = {n: v.detach().cpu() for n, v in wide.items() if isinstance(v, torch.Tensor)}
    if not tensors or any(not tensor.numel() for tensor in tensors.values()):
        raise NotCapturedError("the example holds no tensor, or one without values: give a real input")
    first = next((tensor.shape[0] for tensor in tensors.values() if tensor.dim()), 1)
    batch = f"0=batch:1..{max(MOST_IMAGES, first)}"
    words = {n: batch for n, tensor in tensors.items() if tensor.dim() and tensor.shape[0] == first}
    words = dict(axes) if axes is not None else words
    opened, ranges = _axes(tensors, words)
    moved = tuple(tensors.get(n, v) for n, v in zip(parameters, args, strict=False))
    return _Asked(moved, {n: tensors.get(n, v) for n, v in kwargs.items()}, tensors, opened, ranges), words


def _axes(
    tensors: Mapping[str, torch.Tensor], words: Mapping[str, str]
) -> tuple[dict[str, dict[int, str]], dict[str, tuple[int, int, int]]]:
    """Of each input the dimensions that vary, and of each axis its smallest and largest size and its step."""
    opened: dict[str, dict[int, str]] = {}
    ranges: dict[str, tuple[int, int, int]] = {}
    for name, text in words.items():
        if name not in tensors:
            raise NotCapturedError(f"axes name the input '{name}': possible are {', '.join(tensors)}")
        for part in str(text).split(","):
            found = DIMENSION.fullmatch(part.strip())
            if found is None or int(found[1]) >= tensors[name].dim():
                raise NotCapturedError(
                    f"the axis '{part}' of '{name}' cannot be read: write dimension=axis:smallest..largest, as "
                    "0=batch,2=height:32..128/16"
                )
            axis, size = found[2], int(tensors[name].shape[int(found[1])])
            opened.setdefault(name, {})[int(found[1])] = axis
            if found[3]:
                ranges[axis] = (int(found[3]), int(found[4]), max(int(found[5] or 1), 1))
            elif axis == "batch" and axis not in ranges:
                ranges[axis] = (1, max(MOST_IMAGES, size), 1)
    for name, axis in [(n, part) for n, by in opened.items() for each in by.values() for part in each.split("+")]:
        if axis not in ranges:
            raise NotCapturedError(f"the axis '{axis}' of '{name}' has no range: write it once, as {axis}:1..512")
    if empty := next((axis for axis, (low, high, step) in ranges.items() if -(-low // step) * step > high), ""):
        raise NotCapturedError(f"the range of the axis '{empty}' holds no size")
    return opened, ranges


def _inputs(asked: _Asked) -> list[list[torch.Tensor]]:
    """The example as it is, and at the smallest and the largest sizes that its axes have."""
    import torch

    runs = [list(asked.tensors.values())]
    for tensors in (asked.at(asked.sizes(last=False)), asked.at(asked.sizes(last=True))):
        new = not any(all(map(torch.equal, tensors, known)) for known in runs)
        if new and sum(tensor.numel() for tensor in tensors) <= LARGEST:
            runs.append(tensors)
    return runs


def _answer(module: Any, asked: _Asked, inputs: Sequence[torch.Tensor], what: str) -> list[torch.Tensor]:
    """A module's answer, its tensors in order."""
    from torch.utils import _pytree

    args, kwargs = asked.filled(inputs)
    try:
        leaves = _pytree.tree_leaves(module(*args, **kwargs))
    except NotCapturedError:
        raise
    except Exception as error:
        shapes = ", ".join(f"{n} {list(t.shape)}" for n, t in zip(asked.tensors, inputs, strict=True))
        raise NotCapturedError(f"{what} does not take {shapes}: {_first_line(error)}") from error
    return [leaf.detach().clone() for leaf in leaves]


def _program(module: torch.nn.Module, asked: _Asked, kind: str) -> torch.export.ExportedProgram:
    import torch

    dynamic = torch.export.Dim.DYNAMIC
    args, kwargs = asked.filled(asked.at(asked.traced()))
    fixed = {axis for axis, (low, high, _) in asked.ranges.items() if low == high}
    open_axes = {n: {d: dynamic for d, axis in by.items() if axis not in fixed} for n, by in asked.axes.items()}
    names = inspect.signature(module.forward).parameters
    named = {**dict(zip(names, asked.args, strict=False)), **asked.kwargs}
    shapes = {n: open_axes.get(n, {}) if _is_tensor(value) else None for n, value in named.items()}
    try:
        program = torch.export.export(module, args, kwargs, dynamic_shapes=shapes, strict=False)
    except Exception as error:
        raise NotCapturedError(
            f"'{kind}' cannot be captured: {_first_line(error)}; a module that branches or computes on values of its "
            "tensors needs torch.where or torch.cond there"
        ) from error
    _widen(program, asked)
    return program


def _widen(program: torch.export.ExportedProgram, asked: _Asked) -> None:
    """Let a sum of axes be as small as they are: torch.export guards a sum of two by 4."""
    from torch.utils._sympy.value_ranges import ValueRanges

    nodes = {node.name: node for node in program.graph.nodes}
    spoken = [nodes[n] for n in program.graph_signature.user_inputs if isinstance(n, str) and n in nodes]
    tensors = [node for node in spoken if _is_tensor(node.meta.get("val"))]
    for name, node in zip(asked.tensors, tensors, strict=True):
        for dimension, axis in asked.axes.get(name, {}).items():
            size: Any = node.meta["val"].shape[dimension]
            if "+" in axis and not isinstance(size, int):
                bounds = program.range_constraints[size.node.expr]
                program.range_constraints[size.node.expr] = ValueRanges(0, bounds.upper)


def _plain(module: torch.nn.Module) -> torch.nn.Module:
    """The module with weights in float32, answering with tensors in tuples and dictionaries."""
    import torch

    single = copy.deepcopy(module).cpu()
    single = single.float() if any(_is_half(t) for t in (*single.parameters(), *single.buffers())) else single

    class Plain(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = single

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return _tree(self.inner(*args, **kwargs), "the answer")

        forward.__signature__ = _signature(single)  # type: ignore[attr-defined]  # torch.export takes names from here

    return Plain().eval()


def _signature(module: torch.nn.Module) -> inspect.Signature:
    """Of a method that takes what a module's forward takes."""
    own = inspect.signature(module.forward)
    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return own.replace(parameters=[first, *own.parameters.values()])


def _tree(answer: Any, where: str) -> Any:
    """An answer in dictionaries and tuples, without what is None: a program's reader knows no other class."""
    import torch

    if isinstance(answer, torch.Tensor):
        if answer.is_complex():
            raise NotCapturedError(f"{where} is complex, which no edge runtime has: return torch.view_as_real of it")
        return answer.float() if _is_half(answer) else answer
    if isinstance(answer, Mapping):
        items = dict(answer)
    elif dataclasses.is_dataclass(answer):
        items = {f.name: getattr(answer, f.name) for f in dataclasses.fields(answer)}
    elif hasattr(answer, "_fields"):
        items = answer._asdict()
    elif isinstance(answer, (tuple, list)):
        return tuple(_tree(value, where) for value in answer if value is not None)
    else:
        raise NotCapturedError(f"{where} holds a {type(answer).__name__}: return tensors, in tuples or dictionaries")
    return {str(key): _tree(value, where) for key, value in items.items() if value is not None}


def distance(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> float:
    """How far an answer is from the first one, as a share of an output's largest value, at most.

    It is infinite where shapes, types, whole numbers or the number of outputs differ, or a number is not finite.
    """
    import torch

    def off(a: torch.Tensor, b: torch.Tensor) -> float:
        if a.shape != b.shape or a.dtype != b.dtype:
            return float("inf")
        if not a.is_floating_point() or not a.numel():
            return 0.0 if torch.equal(a, b) else float("inf")
        if not bool(torch.isfinite(a).all() and torch.isfinite(b).all()):
            return float("inf")
        return float((a - b).abs().max()) / max(float(a.abs().max()), 1e-6)

    return max(map(off, one, other), default=0.0) if len(one) == len(other) else float("inf")


def _close(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
    """Whether two answers are the same but for the order in which sums are taken."""
    return distance(one, other) <= CLOSE


def _write(place: Path, record: dict[str, Any], program: Any, runs: Sequence[Any], files: Sequence[Path]) -> None:
    """Write all into a new folder beside its place, and give it its name at the end."""
    import torch
    from safetensors.torch import save_file

    place.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=place.parent))
    try:
        torch.export.save(program, made / PROGRAM)
        arrays = {
            f"{number}/{side}/{place}": tensor.contiguous().clone()
            for number, run in enumerate(runs)
            for side, tensors in zip(("in", "out"), run, strict=True)
            for place, tensor in enumerate(tensors)
        }
        save_file(arrays, made / ANSWERS)
        for file in files:
            shutil.copyfile(file, made / file.name)
        record["files"] = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(made.iterdir())}
        record[SEAL] = hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
        text = json.dumps(record, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
        (made / RECORD).write_text(text, encoding="utf-8")
        made.chmod(0o755)
        made.rename(place)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def _is_tensor(value: object) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _is_half(value: object) -> bool:
    import torch

    return isinstance(value, torch.Tensor) and value.is_floating_point() and value.dtype is not torch.float32


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:300]
