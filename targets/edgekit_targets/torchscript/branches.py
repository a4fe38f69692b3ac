"""Branches that depend on values, of which only one side was taken: nothing proves the other.

The module runs eagerly on real and random inputs. Python's trace function tells which line follows which, and a
dispatch mode at which lines the module reads a value. Only a branch whose own condition reads one is watched: not one
on a variable that was read before, nor a conditional expression, nor what is TorchScript already.
"""

from __future__ import annotations

import ast
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from edgekit.model.adapter import to_tensors
from edgekit.model.evaluation_set import evaluation_of, runs_of
from edgekit.model.shapes import grid
from edgekit.model.spec import Array, ModelSpec
from edgekit_targets.torchscript import determinism

ROWS, SEEDS = 64, 32
"""Evaluation inputs and random inputs at the default sizes, beside one input at each point of the shape grid."""
FIRST = 4
"""Random inputs after which a module that read no value is taken for one that reads none."""
Line = tuple[str, int]


def one_sided(spec: ModelSpec) -> tuple[str, ...]:
    """A sentence for each branch on a value of which these inputs took one side only."""
    import torch

    read: set[Line] = set()
    follows: dict[Line, set[int]] = {}
    count = 0

    def note(_: object, frames: Sequence[traceback.FrameSummary]) -> None:
        if (place := determinism.innermost(frames)) is not None:
            read.add((place.filename, place.lineno or 0))

    before = sys.gettrace()
    sys.settrace(_tracer(follows))
    try:
        with torch.no_grad(), determinism.watched(note, of_weights=True):
            for inputs in _inputs(spec):
                spec.module(*to_tensors(spec, inputs))
                count += 1
                if count == FIRST and not read:
                    return ()
    except Exception:  # the exporter's own checks say what a module cannot answer
        return ()
    finally:
        sys.settrace(before)
    return tuple(
        f"the branch at {Path(file).name}:{line} took one side only for the {count} inputs that were tried: nothing is "
        "proved of the other"
        for file, line in sorted(_untaken(read, follows))
    )


def _inputs(spec: ModelSpec) -> Iterator[dict[str, Array]]:
    for seed in range(FIRST):
        yield spec.random(seed)
    evaluation = evaluation_of(spec)
    if evaluation is not None:
        runs = len(evaluation.names)
        for row in range(min(ROWS, runs)):
            yield {name: runs_of(array, [row], runs) for name, array in evaluation.inputs.items()}
    for seed in range(FIRST, SEEDS):
        yield spec.random(seed)
    for sizes in grid(spec.axes):
        yield spec.random(0, dict(sizes))


def _untaken(read: set[Line], follows: dict[Line, set[int]]) -> Iterator[Line]:
    """Branches whose condition reads a value, and that were always or never entered."""
    for file in sorted({file for file, _ in read}):
        try:
            tree = ast.parse(Path(file).read_text())
        except (OSError, SyntaxError, ValueError):
            continue  # typed into a notebook: there is no file to read
        for node in ast.walk(tree):
            if not isinstance(node, ast.If | ast.While):
                continue
            condition = range(node.test.lineno, (node.test.end_lineno or node.test.lineno) + 1)
            if not any((file, line) in read for line in condition):
                continue
            if node.body[0].lineno in condition:
                continue  # on one line: its side leaves no line of its own
            body = range(node.body[0].lineno, (node.body[-1].end_lineno or node.body[-1].lineno) + 1)
            next_lines = set().union(*(follows.get((file, line), set()) for line in condition)) - {*condition}
            if next_lines and len({line in body for line in next_lines}) == 1:
                yield file, node.lineno


def _tracer(follows: dict[Line, set[int]]) -> Any:
    """A trace function that notes which line of a user's file follows which; 0 follows the last one of a call."""
    import torch

    library = str(Path(torch.__file__).parent)
    latest: dict[FrameType, int] = {}

    def local(frame: FrameType, event: str, argument: object) -> Any:
        line = 0 if event == "return" else frame.f_lineno
        if event in ("line", "return"):
            if frame in latest:
                follows.setdefault((frame.f_code.co_filename, latest[frame]), set()).add(line)
            latest[frame] = line
        if event == "return":
            latest.pop(frame, None)
        return local

    def called(frame: FrameType, event: str, argument: object) -> Any:
        return None if frame.f_code.co_filename.startswith((library, "<")) else local

    return called
