"""The exam of formats that are made from PyTorch: `python -m tools.exam.formats --out tools/exam/formats.md`.

A module is broken, exported, and its files take the place of the sound artifact's. What the fault does to the task is
measured on the ONNX graph of the same broken module. What is finished of a model is kept: an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import copy
import functools
import itertools
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from edgekit.artifact.store import MANIFEST
from edgekit.errors import EdgekitError
from edgekit.model.adapter import signature
from edgekit.model.spec import Array, Input, ModelSpec
from edgekit.storage.environment import package_digest
from edgekit.storage.files import digest_file, digest_text, write_text
from tests.builds import unjudged
from tools.exam.__main__ import CACHE
from tools.exam.case import CLEAN, DRAW_SEED, Case, Paper
from tools.exam.conditions import FACTORS, above, in_light, late_rows
from tools.exam.damage import DAMAGES, VECTORS
from tools.exam.examined import remember
from tools.exam.faults import LEAST_WEIGHTS, When
from tools.exam.models import MODELS
from tools.exam.sitting import ENTRY, ROOT, Room, Said
from tools.exam.table import FLAGGED, MISSED, Outcome, outcome, total, written

FORMATS = ("openvino", "executorch", "onnx-int4", "web")
SHARE = {"weights": 5, "constants": 2, "outputs": 3, "conditions": 5}
"""Faults of each class that are drawn from one module, at most."""
RARE = {"web": 4}
"""Of these targets only every so many-th fault is judged: Chromium takes ten times as long."""
EFFECT = {"onnx-int4": "int8"}
"""Target -> the row of limits that the effect is compared with; fp32 of all others."""
ROUNDING = 1e-6
"""Largest share by which a clean variant's weights differ."""
Spoil = Callable[[nn.Module], nn.Module]
Change = Callable[[Sequence[Tensor], Tensor], Tensor]
"""(inputs, first output) -> another first output."""


@dataclass(frozen=True)
class ModuleFault:
    """A change that makes a module another one.

    Attributes:
        kind: Its class, or CLEAN.
        name: Unique in its module.
        spoil: Makes it.
        when: Where it shows.
    """

    kind: str
    name: str
    spoil: Spoil
    when: When = field(default_factory=When)


def main() -> int:
    """Run what was asked for; 1 where a fault was missed or a clean variant flagged."""
    parser = argparse.ArgumentParser(prog="python -m tools.exam.formats", description=__doc__)
    parser.add_argument("--out", type=Path, help="where the table is written; none: it is printed")
    parser.add_argument("--cache", type=Path, default=CACHE.with_name("exam-formats"), help="folder of builds")
    parser.add_argument("--only", choices=MODELS, action="append", help="one model; may be given more than once")
    parser.add_argument("--target", choices=FORMATS, action="append", help="one target; may be given more than once")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    sys.path.insert(0, str(ROOT))
    targets, left_out = asked.target or FORMATS, list[str]()
    room = Room(asked.cache, targets=("onnx", *targets))
    outcomes = [found for model in asked.only or MODELS for found in remembered(room, model, left_out)]
    text = written(outcomes, left_out).replace("tools.exam --out tools/exam/table.md", "tools.exam.formats")
    if asked.out is not None:
        write_text(asked.out, text)
    print(total(outcomes) if asked.out is not None else text)
    return int(any(o.word in (MISSED, FLAGGED) for o in outcomes))


def remembered(room: Room, model: str, left_out: list[str]) -> list[Outcome]:
    """The outcomes of a model: of an earlier run where neither the judge nor the exam has changed."""
    exam = [package_digest("edgekit"), digest_file(Path(__file__)), *room.targets]
    unable: list[str] = []

    def make() -> dict[str, Any]:
        return {"outcomes": [found.record() for found in examined(room, model, unable)], "left_out": unable}

    kept = remember(room.folder / "outcomes" / f"{model}-{digest_text(json.dumps(exam))[:16]}.json", make)
    left_out += kept["left_out"]
    return [Outcome.of_record(one) for one in kept["outcomes"]]


def examined(room: Room, model: str, left_out: list[str]) -> Iterator[Outcome]:
    """Judge all faults and clean variants of a module; `left_out` gathers the targets that cannot be examined."""
    statuses = room.built(model)
    targets = [target for target in room.targets[1:] if statuses[target] == "verified"]
    left_out += [f"{t} of {model}, which is {statuses[t]} as exported." for t in room.targets[1:] if t not in targets]
    paper = room.paper(model, "onnx")
    for number, fault in enumerate((*clean(), *drawn(paper))):
        chosen = [t for t in targets if fault.kind == CLEAN or number % RARE.get(t, 1) == 0]
        for target, case, said in judged(room, paper, fault, chosen, left_out):
            found = outcome(case, said)
            print(f"{model} {target} {number}: {found.word}: {case.name}", file=sys.stderr, flush=True)
            yield found


def judged(
    room: Room, paper: Paper, fault: ModuleFault, targets: Sequence[str], left_out: list[str]
) -> Iterator[tuple[str, Case, Said]]:
    """Export a broken module, and judge its files in place of the sound ones; `left_out` gathers refused exports."""
    spec = paper.spec
    spoilt = replace(spec, module=fault.spoil(copy.deepcopy(spec.module)))
    with tempfile.TemporaryDirectory(prefix="edgekit-") as folder:
        try:
            build = unjudged(spoilt, Path(folder), ("onnx", *targets))
        except EdgekitError as error:
            left_out.append(f"'{fault.name}' of {spec.name}, which cannot be exported: {error}")
            return
        graph = (build / "onnx" / ENTRY).read_bytes()
        for target in targets:
            row = EFFECT.get(target, "fp32")
            effect = None if fault.kind == CLEAN else paper.effect(graph, fault.when, row)
            case = Case(spec.name, target, fault.kind, fault.name, b"", effect)
            home = room.home(spec.name, target)
            for file in (build / target).rglob("*"):
                if file.is_file() and file.name != MANIFEST:
                    shutil.copyfile(file, home / file.relative_to(build / target))
            yield target, case, room.verdict(case, home)


def clean() -> Iterator[ModuleFault]:
    """Modules that compute the same."""
    yield ModuleFault(CLEAN, "exported again", lambda m: m)
    for seed in range(2):
        yield ModuleFault(CLEAN, f"weights moved, draw {seed}", functools.partial(moved, seed))


def moved(seed: int, module: nn.Module) -> nn.Module:
    """The module with weights that differ by up to ROUNDING of themselves."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(1 + ROUNDING * (2 * torch.rand(parameter.shape, generator=generator) - 1))
    return module


def drawn(paper: Paper) -> Iterator[ModuleFault]:
    """A seeded draw of a module's faults, class by class."""
    for number, (_, pool) in enumerate(itertools.groupby(faults(paper), lambda fault: fault.kind)):
        found = list(pool)
        draw = np.random.Generator(np.random.PCG64([DRAW_SEED, number, MODELS.index(paper.spec.name)]))
        yield from (found[i] for i in draw.permutation(len(found))[: SHARE[found[0].kind]])


def faults(paper: Paper) -> Iterator[ModuleFault]:
    """All faults that a module allows, class by class."""
    parameters = dict(paper.spec.module.named_parameters())
    for name, value in parameters.items():
        if value.dim() > 1 and value.numel() >= LEAST_WEIGHTS:
            for word, damage in DAMAGES.items():
                yield ModuleFault("weights", f"{name} {word}", functools.partial(stored, name, damage))
    for name, value in parameters.items():
        if value.dim() == 1 and len(value) > 1:
            for word, damage in VECTORS.items():
                yield ModuleFault("constants", f"{name} {word}", functools.partial(stored, name, damage))
    rank = len(paper.exported.graph.output[0].type.tensor_type.shape.dim)
    outputs: dict[str, tuple[Change, When]] = {
        **{f"reversed along {axis}": (functools.partial(backwards, axis), When()) for axis in range(1, rank)},
        **{f"rolled along {axis}": (functools.partial(rolled, axis), When()) for axis in range(1, rank)},
        "rows rolled": (lambda _, x: x.roll(1, 0), When(rows=3)),
        "of the first row": (lambda _, x: x[:1].expand_as(x), When(rows=2)),
    }
    for word, (change, when) in outputs.items():
        yield ModuleFault("outputs", word, functools.partial(changed, paper.spec, change), when)
    for condition, when in (*late_rows(), *above(paper.quantiles()), *in_light(paper.spec)):
        for word, factor in ((word, factor) for word, factor in FACTORS.items() if word != "NaN"):
            change = functools.partial(masked, paper.spec.inputs[0], when, factor)
            spoil = functools.partial(changed, paper.spec, change)
            yield ModuleFault("conditions", f"{word} {condition}", spoil, when)


def stored(name: str, damage: Callable[[Array], Array], module: nn.Module) -> nn.Module:
    """The module with other values of a parameter."""
    with torch.no_grad():
        parameter = module.get_parameter(name)
        new = np.ascontiguousarray(damage(parameter.numpy().astype(np.float64)))
        parameter.copy_(torch.from_numpy(new).reshape(parameter.shape))
    return module


def backwards(axis: int, _: Sequence[Tensor], x: Tensor) -> Tensor:
    return x.flip(axis)


def rolled(axis: int, _: Sequence[Tensor], x: Tensor) -> Tensor:
    return x.roll(-1, axis)


def changed(spec: ModelSpec, change: Change, inner: nn.Module) -> nn.Module:
    """Return a module with another first output."""

    class Changed(nn.Module):
        edgekit_adapter = True

        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
            answer = self.inner(*inputs)
            if isinstance(answer, Tensor):
                return change(inputs, answer)
            return change(inputs, answer[0]), *answer[1:]

        forward.__signature__ = signature([i.name for i in spec.inputs])  # type: ignore[attr-defined]

    return Changed().eval()


def masked(first: Input, when: When, factor: float | None, inputs: Sequence[Tensor], x: Tensor) -> Tensor:
    """Where a condition holds, the output is another one."""
    wrong = x.flip(-1) if factor is None else factor * x
    return torch.where(holds(first, when, inputs, x), wrong, x)


def holds(first: Input, when: When, inputs: Sequence[Tensor], x: Tensor) -> Tensor:
    """Return where a condition holds, in a shape that fits the output x."""
    rows = (-1, *[1] * (x.dim() - 1))
    if when.brightness is not None:
        low, high = (first.low + share * (first.high - first.low) for share in when.brightness)
        return (inputs[0].mean() >= low) & (inputs[0].mean() <= high)
    if when.above is not None:
        return (x.flatten(1).amax(1) > when.above).reshape(rows)
    return (torch.arange(x.shape[0]) >= when.first).reshape(rows)


if __name__ == "__main__":
    sys.exit(main())
