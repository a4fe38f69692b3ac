"""Golden vectors of a model without scores: a few rows with every output by name, format 2 of `golden.json`.

A device passes where each output that the golden vectors hold has its shape, and

- of floats the largest and the root mean square difference are within the output's limits, and none is NaN;
- of integers and booleans the share of values that differ is (`golden_limits.py`).

The format is described in web/README.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from edgekit.model.image_input import pixels_of
from edgekit.model.spec import Array, Input, ModelSpec
from edgekit.reference.batches import EVALUATION, PHOTOGRAPHS, STRESS, Batch
from edgekit.reference.golden_limits import Limits, difference, errors, failure, limits, spread_of, step, worst
from edgekit.reference.pictures import in_size
from edgekit.reference.store import read_reference
from edgekit.storage.files import dump_json

FORMAT = 2
CANDIDATES = 12  # evaluation rows that are tried
CASES = 2
EXACT = 1e-2  # bytes
ASKED = (EVALUATION, PHOTOGRAPHS, STRESS)
"""Where rows are taken from: the first of these batches that there is."""
KEPT = ("float32", "int64", "int32", "int8", "uint8", "bool")
"""Dtypes that golden.bin holds; other floats are held in float32, other integers in int64."""
Answer = Callable[[Mapping[str, Array]], Mapping[str, Array]]
Faults = Mapping[str, Callable[[Array, Input], Array]]
"""What preprocessing gets wrong: name -> a [1, 3, H, W] image with that fault."""


@dataclass(frozen=True)
class NamedCase:
    """One row of the reference's questions and what it answered.

    Attributes:
        name: Of the row.
        image: [H, W, 3] uint8, RGB, of the model's size but for a case `of_another_size`; None where no input is a
            picture that is made of bytes.
        inputs: The other inputs by name, as the model takes them, with a batch of one.
        expected: The outputs by name, likewise.
    """

    name: str
    image: Array | None
    inputs: Mapping[str, Array]
    expected: Mapping[str, Array]

    def feed(self, spec: ModelSpec) -> dict[str, Array]:
        """The case as the model's inputs."""
        picture = _picture(spec)
        if self.image is None or picture is None:
            return dict(self.inputs)
        low, span = np.float32(picture.low), np.float32(picture.high - picture.low)
        scaled = low + span * (self.image.astype(np.float32) / np.float32(255))
        return {**self.inputs, picture.name: np.ascontiguousarray(scaled.transpose(2, 0, 1)[None], np.float32)}


@dataclass(frozen=True)
class NamedGolden:
    """The cases of a model, and what limits on them are made of.

    Attributes:
        cases: At most `CASES`, and one more where a library has to resize a picture.
        spread: Of each output of floats, the standard deviation of the reference's answers to the evaluation set.
    """

    cases: tuple[NamedCase, ...]
    spread: Mapping[str, float]

    def limits(self, kind: str, shown: Limits) -> dict[str, dict[str, float]]:
        """What a device may show of each output, by precision and what the artifact shows here."""
        integers = [name for name in self.cases[0].expected if name not in self.spread]
        return limits(kind, self.spread, integers, shown)

    def shown(self, spec: ModelSpec, answer: Answer) -> dict[str, dict[str, float]]:
        """The largest errors of an artifact on the cases; `answer` runs it."""
        return worst(
            {name: errors(expected, answers[name]) for name, expected in case.expected.items()}
            for case in self.cases
            for answers in (answer(case.feed(spec)),)
        )

    def failures(self, spec: ModelSpec, answer: Answer, allowed: Limits) -> tuple[str, ...]:
        """Why each case fails that does; `answer` runs the artifact."""
        found = (failure(case.expected, answer(case.feed(spec)), allowed) for case in self.cases)
        return tuple(reason for reason in found if reason)


def choose_outputs(spec: ModelSpec, recorded: Path, answer: Answer, faults: Faults) -> NamedGolden:
    """The row on which the weakest fault of preprocessing shows most, and the one whose answer is farthest from it.

    Without a picture of bytes the first row takes the place of the former. There are no cases where an input has a
    dtype that golden.bin does not hold.

    Args:
        spec: The model.
        recorded: The reference folder.
        answer: Runs the proved fp32 artifact, or the model itself.
        faults: What preprocessing gets wrong.
    """
    batches = {batch.name: batch for batch in read_reference(recorded).batches}
    asked = next((batches[name] for name in ASKED if name in batches), None)
    if asked is None or any(asked.inputs[i.name].dtype.name not in KEPT for i in spec.inputs):
        return NamedGolden((), {})
    fed = list(zip(range(min(CANDIDATES, len(asked.names))), asked.rows(), strict=False))
    found = [_case(spec, asked, row, inputs, answer) for row, inputs in fed]
    floats = {name: values for name, values in found[0].expected.items() if values.dtype.kind == "f"}
    spread = {name: spread_of(asked.outputs.get(name, values)) for name, values in floats.items()}

    def weakest(case: NamedCase) -> float:
        if case.image is None:
            return 0.0
        wrong = (answer(_faulty(fault, case, spec)) for fault in faults.values())
        return min(difference(case.expected, answers, spread) for answers in wrong)

    telling = max(found, key=weakest)
    farthest = max(found, key=lambda case: difference(telling.expected, case.expected, spread))
    chosen = {case.name: case for case in (telling, farthest)}
    return NamedGolden(tuple(chosen.values()), spread)


def with_another_size(golden: NamedGolden, spec: ModelSpec, answer: Answer) -> NamedGolden:
    """One case more, for libraries that resize a picture themselves: the first one's with mirrored borders.

    The reference has no answer to it: it is that of `answer` to the picture in the model's size, in bytes, by the rule
    of the input. The same golden vectors where the first case has no picture.
    """
    picture, case = _picture(spec), golden.cases[0]
    if picture is None or case.image is None:
        return golden
    height, width, _ = case.image.shape
    large = np.pad(case.image, ((0, max(height // 3, 1)), (0, max(width // 5, 1)), (0, 0)), "symmetric")
    small = replace(case, image=in_size(large, height, width, picture.fit))
    name = f"{case.name}, {large.shape[1]} x {large.shape[0]} pixels"
    other = replace(case, name=name, image=large, expected=dict(answer(small.feed(spec))))
    return replace(golden, cases=(*golden.cases, other))


def undetected(
    golden: NamedGolden, spec: ModelSpec, answer: Answer, allowed: Limits, faults: Faults
) -> tuple[str, ...]:
    """The faults of preprocessing that no case shows beyond the limits; none where no case has a picture."""
    pictures = [case for case in golden.cases if case.image is not None]

    def seen(fault: Callable[[Array, Input], Array]) -> bool:
        return any(failure(case.expected, answer(_faulty(fault, case, spec)), allowed) for case in pictures)

    return tuple(name for name, fault in faults.items() if pictures and not seen(fault))


def write_outputs(folder: Path, golden: NamedGolden, allowed: Mapping[str, Limits], paths: tuple[str, str]) -> str:
    """Write golden.json and golden.bin; returns the path of the former.

    Args:
        folder: Where.
        golden: The cases.
        allowed: Variant, target or "delegated" -> limits.
        paths: Of the two files.
    """
    binary = bytearray()

    def part(array: Array, every: int = 1) -> dict[str, object]:
        held = _held(array)
        where: dict[str, object] = {"offset": len(binary), "shape": list(held.shape), "dtype": held.dtype.name}
        binary.extend(np.ascontiguousarray(held.ravel()[::every]).tobytes())
        binary.extend(b"\0" * (-len(binary) % 4))
        return {**where, "step": every}

    rows = [
        {
            "name": case.name,
            "image": None if case.image is None else part(case.image),
            "inputs": {name: part(values) for name, values in case.inputs.items()},
            "expected": {name: part(values, step(values)) for name, values in case.expected.items()},
        }
        for case in golden.cases
    ]
    described, data = paths
    (folder / data).write_bytes(bytes(binary))
    (folder / described).write_text(dump_json({"format": FORMAT, "binary": data, "limits": allowed, "cases": rows}))
    return described


def _case(spec: ModelSpec, asked: Batch, row: int, inputs: Mapping[str, Array], answer: Answer) -> NamedCase:
    """A row with its recorded outputs; of one that is kept in part only, those of `answer`."""
    picture, image = _picture(spec), None
    if picture is not None and inputs[picture.name].shape == spec.shape(picture.name, {"batch": 1}):
        image = pixels_of(inputs[picture.name][0], picture.low, picture.high, EXACT)
    others = {name: values for name, values in inputs.items() if image is None or name != getattr(picture, "name", "")}
    case = NamedCase(asked.names[row], image, others, {})
    expected = dict(answer(case.feed(spec)))
    for name, shown in expected.items():
        rows = asked.outputs.get(name, np.empty(0))
        if len(rows) == len(asked.names) and rows[row].size == shown.size:
            expected[name] = rows[row].reshape(shown.shape)
    return replace(case, expected=expected)


def _faulty(fault: Callable[[Array, Input], Array], case: NamedCase, spec: ModelSpec) -> dict[str, Array]:
    fed, picture = case.feed(spec), _picture(spec)
    if picture is None:
        return fed
    return {**fed, picture.name: np.ascontiguousarray(fault(fed[picture.name], picture), np.float32)}


def _picture(spec: ModelSpec) -> Input | None:
    return next((i for i in spec.inputs if i.kind == "image" and i.dtype == "float32"), None)


def _held(array: Array) -> Array:
    if array.dtype.name in KEPT:
        return array
    return array.astype("<f4" if array.dtype.kind == "f" else "<i8")
