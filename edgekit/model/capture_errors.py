"""Why a capture failed, in one sentence with the user's own file and line.

torch.export names the user's line in the traceback where `forward` itself raises, and only in a log record where a
guard fixed or narrowed a size afterwards; both are read here.
"""

from __future__ import annotations

import contextlib
import logging
import re
import traceback
from collections.abc import Iterator
from pathlib import Path

from edgekit.model.causes import plain

_GUARD = re.compile(r"\[guard added\] \((?P<where>[^()]+:\d+) in (?P<function>\w+)\)")
_LIBRARIES = ("site-packages", "torch/", "_prims", "_subclasses")
"""Parts of the paths of libraries; PyTorch shortens its own."""
_FIXED = re.compile(r"as dynamic but your code specialized it to be a constant \((\d+)\)")


def capture_error(name: str, error: Exception, guards: list[str]) -> str:
    """One sentence for an exception that running or capturing the module `name` raised; `guards` as they were added."""
    where = line_of(error) or at(guards)
    kind = type(error).__name__
    if "DataDependent" in kind:
        return (
            f"'{name}' branches or computes on values of its tensors{where}: a graph would bake one case in; "
            "use torch.where or torch.cond"
        )
    if "specialized it to be a constant" in str(error):
        fixed = _FIXED.findall(str(error))
        return f"'{name}' fixes a dynamic axis at size {', '.join(dict.fromkeys(fixed))}{at(guards)}"
    if isinstance(error, IndexError) and "out of range in self" in str(error):
        return (
            f"'{name}' looks up a row beyond its table{where}: an input of integers has a larger range than the "
            "vocabulary; set Input(low=0, high=size of the table - 1)"
        )
    return f"'{name}' cannot be captured{where}: {sentence(error)}"


def line_of(error: BaseException) -> str:
    """` at file:line (source)` of the innermost frame that is neither PyTorch's nor edgekit's, or nothing."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if _theirs(f.filename)]
    return f" at {frames[-1].filename}:{frames[-1].lineno} ({frames[-1].line})" if frames else ""


def _theirs(filename: str) -> bool:
    ours = Path(__file__).parent  # capturing starts here: no other room of edgekit is on the way
    return "/torch/" not in filename and not filename.startswith("<") and Path(filename).parent != ours


def at(guards: list[str]) -> str:
    """` at file:line` of the first guard that the user's own code added, or nothing."""
    where = [g for g in guards if not any(part in g for part in _LIBRARIES)]
    return f" at {where[0]}" if where else ""


def sentence(error: Exception) -> str:
    """An exception as its type and the first line of its message, with the next where the first only announces it."""
    lines = [line.strip() for line in plain(str(error)).splitlines() if line.strip()]
    said = " ".join(lines[:2]) if lines and lines[0].endswith(":") else (lines[0] if lines else "no message")
    return f"{type(error).__name__}: {said}"


@contextlib.contextmanager
def guards_added() -> Iterator[list[str]]:
    """Collect where torch.export added guards: it logs file and line, and tells them nowhere else."""
    found: list[str] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if match := _GUARD.search(record.getMessage()):
                found.append(match["where"])

    logger = logging.getLogger("torch.fx.experimental.symbolic_shapes")
    handler, level, others = Collect(), logger.level, logger.handlers
    logger.handlers = [handler]
    propagate, logger.propagate = logger.propagate, False
    logger.setLevel(logging.INFO)
    try:
        yield found
    finally:
        logger.handlers, logger.propagate = others, propagate
        logger.setLevel(level)
