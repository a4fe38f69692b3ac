"""Reasons why a capture or a converter failed, in one sentence: the user's line, the operator, the way out.

torch.export names the user's line in the traceback if `forward` itself raises. If a guard fixes or narrows a size
later, the line is only in a log record. PyTorch's ONNX exporter, ExecuTorch and coremltools wrap the cause in advice,
colour codes and links, and each names the operator differently. The captured program knows the user's line of each
operator.
"""

from __future__ import annotations

import contextlib
import linecache
import logging
import operator
import re
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.errors import ExportError
from edgekit.model import complex_numbers
from edgekit.model.complex_numbers import is_complex
from edgekit.model.shapes import grid

if TYPE_CHECKING:
    import torch

    from edgekit.model.spec import ModelSpec

_GUARD = re.compile(r"eval (?P<fixes>Eq\()?.*\[guard added\] \([^()]+:(?P<line>\d+) in (?P<function>\S+)\)", re.DOTALL)
_BELOW = (*sys.stdlib_module_names, "sympy", "mpmath")
"""Packages that PyTorch calls while it computes sizes."""
_FIXED = re.compile(r"as dynamic but your code specialized it to be a constant \((\d+)\)")
_OPERATOR = (
    re.compile(r"No ONNX function found for <OpOverload\(op='([\w.:]+)'"),
    re.compile(r"Operator torch\._ops\.([\w.]+?)(?:\.default)? is not in Core ATen"),
    re.compile(r"Missing out variants: \{'?([\w.:]+)"),
    re.compile(r"PyTorch convert function for op '(\w+)' not implemented"),
    re.compile(r"Unsupported fx node \S+, kind ([\w.:]+)"),
    re.compile(r"contains unsupported ATen ops: ([\w:]+\.\w+)"),
)
# As ExecuTorch prints its operators.
_EDGE = re.compile(r"^<EdgeOpOverload: ([\w.]+)>.*", re.DOTALL)
_NODE = re.compile(r"Error when translating node %(\w+)")
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in .*\n\s*(.*)')
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
WAY_OUT = (
    "write that line with other operators, add a replacement in `ModelSpec.translations` or `decompositions`, or "
    "export to torchscript, which keeps PyTorch's own operators"
)
ROUNDS = "quantized_decomposed"
"""Library of the operators by which a model quantizes itself to INT8."""
ROUNDED = (
    "only onnx, openvino, executorch and coreml take a model that quantizes itself to INT8. Export to these, or export "
    "the original float model"
)

FIXED_LENGTH = (
    "let forward() return a fixed length with a count. In place of non-maximum suppression, use edgekit.Detector; "
    "in place of nonzero or a mask as an index, take the best K by torch.topk and the number of valid ones"
)


@dataclass(frozen=True)
class Guard:
    """A condition on sizes, added by torch.export.

    Attributes:
        where: The user's line, `file:line (source)`.
        own: True if that line itself caused it, else a function of PyTorch that it called.
        fixes: True if it fixes a size.
    """

    where: str
    own: bool = True
    fixes: bool = False


def capture_error(name: str, error: Exception, guards: list[Guard]) -> str:
    """Return a sentence for an exception from running or capturing the module `name`."""
    where = line_of(error) or at(guards)
    kind = type(error).__name__
    if "DataDependent" in kind:
        return (
            f"'{name}' branches or computes on tensor values{where}. A graph keeps one case only: "
            "use torch.where or torch.cond"
        )
    if "specialized it to be a constant" in str(error):
        fixed = _FIXED.findall(str(error))
        return f"'{name}' fixes a dynamic axis at size {', '.join(dict.fromkeys(fixed))}{at(guards)}"
    # True if a function of PyTorch failed on packed sequences.
    from torch.nn.utils.rnn import PackedSequence

    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__) if not _is_users(frame.f_code.co_filename))
    packs = any(isinstance(value, PackedSequence) for frame in frames for value in frame.f_locals.values())
    if packs:
        return (
            f"'{name}' packs sequences by their lengths{where}, which no graph supports. Pass padded sequences to "
            "the LSTM, GRU or RNN, and mask the outputs by the lengths"
        )
    if isinstance(error, IndexError) and "out of range in self" in str(error):
        return (
            f"'{name}' looks up a row beyond its table{where}: an integer input has a larger range than the "
            "vocabulary. Set Input(low=0, high=size of the table - 1)"
        )
    return f"'{name}' cannot be captured{where}: {sentence(error)}"


def line_of(error: BaseException) -> str:
    """Return ` at file:line (source)` of the innermost frame outside PyTorch and edgekit, or an empty string."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if _is_users(f.filename)]
    return f" at {frames[-1].filename}:{frames[-1].lineno} ({frames[-1].line})" if frames else ""


def _is_users(filename: str) -> bool:
    # Capturing starts here, so no other package of edgekit is in the traceback.
    parent = Path(__file__).parent
    return "/torch/" not in filename and not filename.startswith("<") and parent not in Path(filename).parents


def at(guards: list[Guard]) -> str:
    """Return ` at file:line (source)` of the user's first guard, else of the first that fixes a size; or ''."""
    locations = [g.where for g in guards if g.own] or [g.where for g in guards if g.fixes]
    return f" at {locations[0]}" if locations else ""


def sentence(error: BaseException) -> str:
    """Return an exception as its type and the first line of its message; two lines if the first ends with a colon."""
    lines = [line.strip() for line in plain(str(error)).splitlines() if line.strip()]
    text = " ".join(lines[:2]) if lines and lines[0].endswith(":") else (lines[0] if lines else "no message")
    return f"{type(error).__name__}: {text}"


@contextlib.contextmanager
def collect_guards() -> Iterator[list[Guard]]:
    """Yield the list to which guards are added while torch.export logs them."""
    guards: list[Guard] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            match = _GUARD.search(record.getMessage())
            # The log record cuts the file's path short, so the path comes from the running frame.
            if match and (running := _running()):
                file, number, function = running
                own = (str(number), function) == (match["line"], match["function"]) and "site-packages" not in file
                line = linecache.getline(file, number).strip()
                guards.append(Guard(f"{file}:{number} ({line})", own, bool(match["fixes"])))

    logger = logging.getLogger("torch.fx.experimental.symbolic_shapes")
    handler, level, others = Collect(), logger.level, logger.handlers
    logger.handlers = [handler]
    propagate, logger.propagate = logger.propagate, False
    logger.setLevel(logging.INFO)
    try:
        yield guards
    finally:
        logger.handlers, logger.propagate = others, propagate
        logger.setLevel(level)


def _running() -> tuple[str, int, str] | None:
    """Return file, line and function of the innermost running code outside PyTorch and Python, within this capture."""
    for frame, number in traceback.walk_stack(None):
        file = frame.f_code.co_filename
        # The frames of this module itself.
        if file == __file__:
            continue
        if Path(__file__).parent in Path(file).parents:
            return None
        if _is_users(file) and str(frame.f_globals.get("__name__")).partition(".")[0] not in _BELOW:
            return file, number, frame.f_code.co_name
    return None


def why(error: BaseException, exported: torch.export.ExportedProgram) -> str:
    """Return the cause of a converter's error, as the end of a sentence that begins with the failed step.

    Args:
        error: Raised by the converter, with its chain of causes.
        exported: The converted program.
    """
    errors = list(_chain(error))
    texts = [plain(str(error)) for error in errors]
    # The first operator with complex outputs, which few converters support.
    imaginary = next((n for n in exported.graph.nodes if n.op == "call_function" and is_complex(n)), None)
    lacks = next((m[1] for p in _OPERATOR for text in texts for m in p.finditer(text)), "")
    name = next((m[1] for text in texts for m in _NODE.finditer(text)), "")
    node = next((n for n in exported.graph.nodes if n.name == name), None)
    met = node or _met(errors[-1])
    open_transform = next((n for n in exported.graph.nodes if complex_numbers.is_open(n)), None)
    if open_transform and _in_complex_part(lacks, met, exported):
        used = _line(open_transform)
        return (
            f"'{_operator_name(open_transform)}'{f' at {used}' if used else ''} goes along an axis of open length "
            f"({_first(errors[-1], texts[-1])}). Leave that axis out of `axes`: a transform of fixed length becomes "
            "products, which every target supports. Or export to torchscript, which keeps PyTorch's own operators"
        )
    if lacks:
        used = line_using(exported, lacks)
        of = (
            f" (the program has complex numbers, starting at '{_operator_name(imaginary)}')"
            if imaginary is not None
            else ""
        )
        return f"it does not have the operator '{lacks}'{f', used at {used}' if used else ''}{of}; {_way_out(lacks)}"
    if node and (used := _line(node)):
        return f"{_first(errors[-1], texts[-1])}, at {used}"
    if met:
        name = _operator_name(met)
        used = _line(met) or line_using(exported, name)
        sentence = f"it fails at the operator '{name}'{f', used at {used}' if used else ''}"
        return f"{sentence} ({_first(errors[-1], texts[-1])}); {_way_out(name)}"
    if imaginary is not None:
        used = _line(imaginary)
        sentence = (
            f"the program has complex numbers, starting at '{_operator_name(imaginary)}'{f' at {used}' if used else ''}"
        )
        return f"{sentence} ({_first(errors[-1], texts[-1])}); {WAY_OUT}"
    return _first(errors[-1], texts[-1])


def refuse_bfloat16(name: str, exported: torch.export.ExportedProgram) -> None:
    """Refuse a program that computes in bfloat16, for a runtime that computes in fp32.

    Raises:
        ExportError: Naming the line and the way out.
    """
    import torch

    parts = [part for part in exported.graph_module.modules() if isinstance(part, torch.fx.GraphModule)]
    for node in (node for part in parts for node in part.graph.nodes if node.op == "call_function"):
        value = node.meta.get("val")
        # A cast and back rounds, which runtimes do.
        cast = _operator_name(node).startswith(("aten._to_copy", "aten.to."))
        if isinstance(value, torch.Tensor) and value.dtype is torch.bfloat16 and not cast:
            used = _line(node)
            raise ExportError(
                f"'{name}' computes in bfloat16{f' at {used}' if used else ''}, which this runtime does not. Leave "
                "torch.autocast out of forward, or switch it off there with enabled=False: the weights are float32"
            )


def refuse_open_pools(spec: ModelSpec, exported: torch.export.ExportedProgram) -> None:
    """Refuse an adaptive pooling whose declared sizes are no multiples of its output, which PyTorch translates wrongly.

    Raises:
        ExportError: Naming the line and the way out.
    """
    placeholders = [n for n in exported.graph.nodes if n.op == "placeholder"][-len(spec.inputs) :]
    symbols = {
        size.node.expr: str(name)
        for declared, node in zip(spec.inputs, placeholders, strict=True)
        for name, size in zip(declared.shape, node.meta["val"].shape, strict=True)
        if name in spec.axes and not isinstance(size, int)
    }
    for node in exported.graph.nodes:
        if node.op != "call_function" or not _bare(str(node.target)).startswith("adaptive_avg_pool"):
            continue
        results = node.args[1] if isinstance(node.args[1], list | tuple) else [node.args[1]]
        sizes = node.args[0].meta["val"].shape[-len(results) :]
        for size, result in zip(sizes, results, strict=True):
            expression = None if isinstance(size, int) or result in (None, 1) else size.node.expr
            if expression is None or not expression.free_symbols <= set(symbols):
                continue
            for shape in grid(spec.axes):
                if expression.subs({symbol: shape[axis] for symbol, axis in symbols.items()}) % result:
                    axis = symbols[next(iter(expression.free_symbols))]
                    raise ExportError(
                        f"'{spec.name}' pools {axis} {shape[axis]} to {result} at {_line(node)}. PyTorch translates an "
                        f"adaptive pooling of open sizes only for multiples of its output. Declare '{axis}' with such "
                        f"a step (MIN..MAX/{result}), or fix it"
                    )


def _in_complex_part(lacks: str, met: torch.fx.Node | None, exported: torch.export.ExportedProgram) -> bool:
    """Return whether an error may come from a Fourier transform: it names no operator that takes only real numbers.

    Args:
        lacks: The operator that the converter does not support, or an empty string.
        met: The operator at which it failed, if known.
        exported: The converted program.
    """
    if "fft" in lacks or "stft" in lacks or not (lacks or met):
        return True
    called = [n for n in exported.graph.nodes if n.op == "call_function"]
    culprits = [n for n in called if _bare(str(n.target)) == _bare(lacks)] if lacks else [met]
    return any(is_complex(end) for n in culprits if n for end in (n, *n.all_input_nodes))


def _way_out(operator: str) -> str:
    return ROUNDED if operator.startswith(ROUNDS) else WAY_OUT


def _operator_name(node: torch.fx.Node) -> str:
    """Return an operator's name in PyTorch's spelling."""
    return _EDGE.sub(r"\1", str(node.target)).removesuffix(".default")


def plain(text: str) -> str:
    """Return the text without colour codes."""
    return _COLOUR.sub("", text)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _met(error: BaseException) -> torch.fx.Node | None:
    """Return the operator in the local variables of a converter's innermost function."""
    import torch

    node = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        nodes = [
            f_local
            for f_local in frame.f_locals.values()
            if isinstance(f_local, torch.fx.Node) and f_local.op == "call_function"
        ]
        node = next((node for node in nodes if node.target is not operator.getitem), node)
    return node


def _first(error: BaseException, text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"


def open_length(exported: torch.export.ExportedProgram) -> str:
    """Return the operator, with the user's line, whose output length depends on values; or an empty string."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    (answer,) = (n for n in exported.graph.nodes if n.op == "output")
    lengths = {s for n in answer.all_input_nodes for s in free_unbacked_symbols(n.meta.get("val"))}
    for node in exported.graph.nodes:
        if node.op == "call_function" and lengths & set(node.meta.get("unbacked_bindings") or ()):
            line = _line(node)
            return f"'{str(node.target).removesuffix('.default')}'{f' at {line}' if line else ''}"
    return ""


def line_using(exported: torch.export.ExportedProgram, named_so: str) -> str:
    """Return the user's line of the first node with an operator, or with an operator that decomposes into it."""
    bare = _bare(named_so)
    calls = [(_bare(str(n.target)), n) for n in exported.graph.nodes if n.op == "call_function"]
    exact = [n for name, n in calls if name == bare]
    wider = [n for name, n in calls if len(bare) > 3 and bare in name]
    parts = [n for name, n in sorted(calls, key=lambda pair: -len(pair[0])) if len(name) > 3 and name in bare]
    return next((line for n in (*exact, *wider, *parts) if (line := _line(n))), "")


def _bare(name: str) -> str:
    """Return an operator's name without its library and its overload: `aten.median.dim` is median."""
    parts = re.split(r"[.:]+", name)
    return parts[min(1, len(parts) - 1)].strip("_")


def _line(node: torch.fx.Node) -> str:
    """Return `file:line (source)` of a node's innermost frame outside PyTorch, or an empty string."""
    frames = [
        f for f in _FRAME.findall(node.meta.get("stack_trace") or "") if "/torch/" not in f[0] and f[0][:1] != "<"
    ]
    if not frames:
        return ""
    file, line, source = frames[-1]
    return f"{file}:{line} ({source.strip()})" if source.strip() else f"{file}:{line}"


def plain_trace(trace: str) -> str:
    """Return a stack trace with the user's frames only, without folders and source lines."""
    frames = [f for f in _FRAME.findall(trace) if "/torch/" not in f[0]]
    return "".join(f'  File "{Path(file).name}", line {line}, in forward\n    \n' for file, line, _ in frames)
