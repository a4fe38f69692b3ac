"""Why a converter failed, in one sentence: the operator that it lacks, the user's own line that uses it, the way out.

PyTorch's ONNX exporter, ExecuTorch and coremltools wrap the cause in advice, colour codes and links; each names the
operator in words of its own. The captured program knows which line of the user's code an operator came from.
"""

from __future__ import annotations

import operator
import re
import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_OPERATOR = (
    re.compile(r"No ONNX function found for <OpOverload\(op='([\w.:]+)'"),
    re.compile(r"Operator torch\._ops\.([\w.]+?)(?:\.default)? is not in Core ATen"),
    re.compile(r"Missing out variants: \{'?([\w.:]+)"),
    re.compile(r"PyTorch convert function for op '(\w+)' not implemented"),
    re.compile(r"Unsupported fx node \S+, kind ([\w.:]+)"),
    re.compile(r"contains unsupported ATen ops: ([\w:]+\.\w+)"),
)
_EDGE = re.compile(r"^<EdgeOpOverload: ([\w.]+)>.*", re.DOTALL)  # as ExecuTorch prints its operators
_NODE = re.compile(r"Error when translating node %(\w+)")
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in .*\n\s*(.*)')
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
WAY_OUT = (
    "write that line with other operators, name what stands for it in `ModelSpec.translations` or `decompositions`, or "
    "export to torchscript, which keeps PyTorch's own"
)


def why(error: BaseException, exported: torch.export.ExportedProgram) -> str:
    """The cause of a converter's error as the end of a sentence that begins with what could not be done.

    Args:
        error: What the converter raised, with the errors that it was raised from.
        exported: The program that it was given.
    """
    errors = list(_chain(error))
    texts = [plain(str(one)) for one in errors]
    if lacks := next((m[1] for p in _OPERATOR for text in texts for m in p.finditer(text)), ""):
        used = _used(exported, lacks)
        return f"it has no operator '{lacks}'{f', used at {used}' if used else ''}; {WAY_OUT}"
    node = next((m[1] for text in texts for m in _NODE.finditer(text)), "")
    if used := next((_line(n) for n in exported.graph.nodes if n.name == node), ""):
        return f"{_first(errors[-1], texts[-1])}, at {used}"
    if met := _met(errors[-1]):
        name = _EDGE.sub(r"\1", str(met.target)).removesuffix(".default")
        used = _line(met) or _used(exported, name)
        said = f"it fails at the operator '{name}'{f', used at {used}' if used else ''}"
        return f"{said} ({_first(errors[-1], texts[-1])}); {WAY_OUT}"
    return _first(errors[-1], texts[-1])


def plain(text: str) -> str:
    """A text without colour codes."""
    return _COLOUR.sub("", text)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _met(error: BaseException) -> torch.fx.Node | None:
    """The operator that a converter's innermost function was at: its local variables hold it."""
    import torch

    found = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        held = [one for one in frame.f_locals.values() if isinstance(one, torch.fx.Node) and one.op == "call_function"]
        found = next((one for one in held if one.target is not operator.getitem), found)
    return found


def _first(error: BaseException, text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"


def _used(exported: torch.export.ExportedProgram, named_so: str) -> str:
    """The user's line of the first node with an operator, or with the one that was taken apart into it."""
    bare = re.split(r"[.:]+", named_so)[-1].strip("_")
    named = [(str(n.target).removesuffix(".default").split(".")[-1].strip("_"), n) for n in exported.graph.nodes]
    exact = [n for name, n in named if name == bare]
    wider = [n for name, n in named if len(bare) > 3 and bare in name]
    return next((line for n in (*exact, *wider) if (line := _line(n))), "")


def _line(node: torch.fx.Node) -> str:
    """`file:line (source)` of the innermost frame of a node that is not PyTorch's, or nothing."""
    frames = [f for f in _FRAME.findall(node.meta.get("stack_trace") or "") if "/torch/" not in f[0]]
    return f"{frames[-1][0]}:{frames[-1][1]} ({frames[-1][2].strip()})" if frames else ""
