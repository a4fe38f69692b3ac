"""A model of parts, driven with its modules: what the driver gives each part, and what the whole answers.

What a part is given at the sizes that are the most frequent is its evaluation set, at the defaults of its axes; what it
is given at other sizes is asked where the shapes of the grid are these.
"""

from __future__ import annotations

import math
import signal
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.artifact.manifest import AxisInfo, TensorInfo
from edgekit.errors import EdgekitError, ModelError, NotVerifiedHere, UsageError, suggestion
from edgekit.model.capture_errors import line_of, sentence
from edgekit.model.contract import checked
from edgekit.model.input_rows import BATCH, rows_in, stacked
from edgekit.model.kept_sets import COUNT
from edgekit.model.parts import Part, Parts, Session
from edgekit.model.sources import resolve_model
from edgekit.model.sources.module import range_in, spec_of_module
from edgekit.model.spec import Array, Evaluation, Input, ModelSpec, Output
from edgekit.model.words import NOTHING, Words, words_of
from edgekit.pipeline.loaded import checked_arrays
from edgekit.reference.dataset import Sets, distinct, split
from edgekit.runtime.eager import EagerRuntime

Row = Mapping[str, Array]
Call = tuple[str, Row]
"""In answer to which input of the whole a part was called, and with what."""
Sizes = tuple[tuple[str, int], ...]
FIRST = "input 0"
WHOLE = "output"
"""Name of an answer that is one array."""
TERMINATED = 128 + signal.SIGTERM
"""Code of the SystemExit that the command line makes of the signal; one of the driver's own has another."""


@dataclass(frozen=True)
class Driven:
    """What came of driving a model with its modules.

    Attributes:
        specs: Its parts, with what the driver gives them as their sets.
        calls: How often the driver called each.
        outputs: Of the driver.
        answers: What the whole answered, one an input.
        device: What answered, in words.
    """

    specs: Mapping[str, ModelSpec]
    calls: Mapping[str, int]
    outputs: tuple[Output, ...]
    answers: tuple[dict[str, Array], ...]
    device: str


class Sessions(dict[str, Session]):
    """The parts by name; a name that is none is told."""

    def __init__(self, model: str, parts: Mapping[str, Session]) -> None:
        super().__init__(parts)
        self._model = model

    def __missing__(self, name: str) -> Session:
        raise UsageError(
            f"the driver of '{self._model}' calls the part '{name}': {suggestion(str(name), self)}possible are "
            f"{', '.join(self)}"
        )


def driven(parts: Parts) -> Driven:
    """Run a model's driver with its modules.

    Raises:
        EdgekitError: If it fails, calls what is no part, gives a part what it does not take, leaves a part out, or does
            not do the same each time.
    """
    sessions = {name: Recording(name, part) for name, part in parts.parts.items()}
    answers: list[dict[str, Array]] = []
    for number, given in enumerate(parts.inputs):
        for session in sessions.values():
            session.asked = f"input {number}"
        answers.append(answered(parts, sessions, given))
    counts = {name: len(session.calls) for name, session in sessions.items()}
    if idle := next((name for name, count in counts.items() if not count), None):
        raise ModelError(
            f"the driver of '{parts.name}' never calls the part '{idle}': call it for one of the inputs, or leave it "
            "out"
        )
    _refuse_chance(parts, sessions, answers[0])
    _refuse_unheard(parts, sessions, answers)
    judged = {name: list(session.calls) for name, session in sessions.items()}
    for session in sessions.values():
        session.calls.clear()
    for given in parts.calibration:
        answered(parts, sessions, given)
    specs = {name: _with_sets(session, judged[name], parts) for name, session in sessions.items()}
    device = next(iter(sessions.values())).device
    return Driven(specs, counts, _outputs(parts, answers), tuple(answers), device)


def answered(parts: Parts, sessions: Mapping[str, Session], given: Any) -> dict[str, Array]:
    """What the driver answers to one input, as arrays by name.

    Raises:
        ModelError: If it raises, or returns something else.
    """
    raised: list[BaseException] = []
    try:
        watched = {name: _Watched(session, raised) for name, session in sessions.items()}
        answer = parts.driver(Sessions(parts.name, watched), given)
    except (Exception, SystemExit) as error:
        if first := next((one for one in (*raised, error) if isinstance(one, EdgekitError) or _stops(one)), None):
            raise first from None
        raise ModelError(f"the driver of '{parts.name}' fails{line_of(error)}: {sentence(error)}") from error
    if raised:
        _refuse_going_on(parts, raised[0])
    named = answer if isinstance(answer, Mapping) else {WHOLE: answer}
    arrays = {str(name): np.array(value) for name, value in named.items()}  # a copy: a driver may fill one buffer
    if wrong := next((name for name, array in arrays.items() if array.dtype.kind not in "biuf"), None):
        raise ModelError(
            f"the driver of '{parts.name}' returns {type(named[wrong]).__name__} in '{wrong}': arrays of numbers are "
            "possible, alone or by name"
        )
    if not arrays:
        raise ModelError(f"the driver of '{parts.name}' returns nothing: let it return an array, or arrays by name")
    return arrays


def _refuse_going_on(parts: Parts, error: BaseException) -> None:
    """Refuse an answer for which a part failed: an artifact that fails would be verified."""
    if isinstance(error, NotVerifiedHere) or _stops(error):
        raise error
    raise ModelError(
        f"the driver of '{parts.name}' goes on although one of its parts failed ({sentence(error)}): let it catch "
        "nothing that a part raises, since an artifact that fails must be refused"
    ) from error


def _stops(error: BaseException) -> bool:
    """Whether the user or the system stops the process."""
    return isinstance(error, KeyboardInterrupt) or (isinstance(error, SystemExit) and error.code == TERMINATED)


@dataclass
class _Watched:
    """A part as the driver calls it: what it raises is kept, whatever the driver makes of it."""

    session: Session
    raised: list[BaseException]

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        try:
            return self.session.run(inputs)
        except BaseException as error:
            self.raised.append(error)
            raise


@dataclass
class Recording:
    """A part's module as a session that keeps what it is given.

    Attributes:
        name: Of the part.
        part: As it was declared.
        calls: What it was given, and in answer to which of the whole's inputs.
        asked: The input that is being answered.
    """

    name: str
    part: Any
    calls: list[Call] = field(default_factory=list)
    asked: str = ""
    _spec: ModelSpec | None = None
    _runtime: EagerRuntime | None = None

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Answer one batch, and keep it."""
        if not isinstance(inputs, Mapping):
            raise ModelError(f"the driver gives '{self.name}' a {type(inputs).__name__}: give arrays by name")
        if self._runtime is None:
            self._spec = self._described(inputs)
            self._runtime = EagerRuntime(self._spec)
        _check(self.name, self.spec, inputs)
        kept = {i.name: np.array(inputs[i.name]) for i in self.spec.inputs}
        self.calls.append((self.asked, kept))
        return self._runtime.run({name: array.copy() for name, array in kept.items()})

    @property
    def spec(self) -> ModelSpec:
        """The part as a model; there since the first call."""
        if self._spec is None:
            raise ModelError(f"the part '{self.name}' was not called")
        return self._spec

    @property
    def device(self) -> str:
        """What answers, in words."""
        return self._runtime.device if self._runtime is not None else ""

    @property
    def words(self) -> Words:
        """What its user said of it."""
        part = self.part
        return words_of(part.axes, part.inputs, part.outputs) if isinstance(part, Part) else NOTHING

    def _described(self, inputs: Mapping[str, Array]) -> ModelSpec:
        import torch

        if isinstance(self.part, ModelSpec):
            return checked(self.part)
        if isinstance(self.part, str | Path):
            return resolve_model(str(self.part))
        part = self.part if isinstance(self.part, Part) else Part(self.part)
        example = part.example
        if example is None:
            example = {name: torch.from_numpy(np.array(array)) for name, array in inputs.items()}
        return spec_of_module(part.module, example, self.words)


def _check(name: str, spec: ModelSpec, inputs: Mapping[str, Array]) -> None:
    """See that a part takes what the driver gives it.

    Raises:
        UsageError: Naming the part, the input and what is possible.
    """
    taken = [i.name for i in spec.inputs]
    if wrong := sorted({*taken} ^ {*inputs}):
        word = "lacks" if wrong[0] in taken else "has no"
        raise UsageError(f"the driver calls '{name}', which {word} the input '{wrong[0]}': it takes {', '.join(taken)}")
    axes = {axis: AxisInfo.of_axis(declared, True) for axis, declared in spec.axes.items()}
    checked_arrays(name, map(TensorInfo.of_input, spec.inputs), axes, inputs, "which it declares")


def _refuse_chance(parts: Parts, sessions: Mapping[str, Recording], first: Mapping[str, Array]) -> None:
    """Drive the first input again: the calls and the answer must be the same."""
    counts = {name: len(session.calls) for name, session in sessions.items()}
    again = answered(parts, sessions, parts.inputs[0])
    odd = ""
    for name, session in sessions.items():
        once = [call for asked, call in session.calls[: counts[name]] if asked == FIRST]
        twice = [call for _, call in session.calls[counts[name] :]]
        if len(once) != len(twice) or not all(map(_equal, once, twice)):
            odd = odd or f"gives '{name}'"
        del session.calls[counts[name] :]
    odd = odd or ("" if _equal(first, again) else "answers")
    if odd:
        raise ModelError(
            f"the driver of '{parts.name}' {odd} something else when it is asked the same again: let it draw nothing "
            "by chance and keep nothing from one input to the next"
        )


@dataclass
class _Wrong:
    """A part that answers something else, and is called no more often than the right one."""

    session: Session
    slope: int
    left: int

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        self.left -= 1
        if self.left < 0:
            raise ModelError("it goes another way")
        answer = self.session.run(inputs).items()
        return {n: ~a if a.dtype.kind == "b" else (self.slope * a + self.slope).astype(a.dtype) for n, a in answer}


def _refuse_unheard(parts: Parts, sessions: Mapping[str, Recording], answers: Sequence[Row]) -> None:
    """See that what the whole answers depends on what each part answers: else no artifact of it could be refused."""
    for name, session in sessions.items():
        asked = Counter(number for number, _ in session.calls)
        counts = {other: len(one.calls) for other, one in sessions.items()}
        tried = ((number, slope) for number in range(len(answers)) for slope in (-1, 3) if asked[f"input {number}"])
        heard = any(
            _heard(parts, sessions, name, number, _Wrong(session, slope, asked[f"input {number}"]), answers)
            for number, slope in tried
        )
        for other, one in sessions.items():
            del one.calls[counts[other] :]
        if not heard:
            raise ModelError(
                f"the driver of '{parts.name}' answers the same whatever the part '{name}' answers: let what it "
                "returns depend on each part for one of the inputs, or leave the part out"
            )


def _heard(
    parts: Parts, sessions: Mapping[str, Session], name: str, number: int, wrong: Session, answers: Sequence[Row]
) -> bool:
    try:
        return not _equal(answered(parts, {**sessions, name: wrong}, parts.inputs[number]), answers[number])
    except EdgekitError:
        return True


def _equal(one: Row, other: Row) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[n], other[n], equal_nan=True) for n in one)


def _outputs(parts: Parts, answers: Sequence[Mapping[str, Array]]) -> tuple[Output, ...]:
    """The driver's outputs with their roles; each answer must have the same."""
    declared = {output.name: output for output in parts.outputs}
    if unknown := next((name for name in declared if name not in answers[0]), None):
        raise ModelError(
            f"the driver of '{parts.name}' returns no '{unknown}', which its outputs declare: it returns "
            f"{', '.join(answers[0])}"
        )
    for number, answer in enumerate(answers):
        if answer.keys() != answers[0].keys():
            raise ModelError(
                f"the driver of '{parts.name}' returns {', '.join(answer)} for input {number}, and "
                f"{', '.join(answers[0])} for input 0: let it return the same names for each"
            )
    if empty := next((name for name in answers[0] if not any(answer[name].size for answer in answers)), None):
        raise ModelError(
            f"the driver of '{parts.name}' returns an empty '{empty}' for each input: let one of the inputs fill it"
        )
    kinds = {name: "labels" if array.dtype.kind in "iu" else "tensor" for name, array in answers[0].items()}
    found = (declared.get(name, Output(name, role=role)) for name, role in kinds.items())  # type: ignore[arg-type]  # two of the roles
    return tuple(replace(output, dtype=str(answers[0][output.name].dtype)) for output in found)


def _with_sets(session: Recording, judged: Sequence[Call], parts: Parts) -> ModelSpec:
    """A part with what the driver gave it as its evaluation and calibration sets."""
    spec = session.spec
    if not isinstance(session.part, ModelSpec | str | Path):
        spec = _ranged(spec, [call for _, call in (*judged, *session.calls)], session.words)
    rows = list(_rows(spec, judged))
    usual = _usual(session.name, rows)
    axes = {name: replace(axis, default=dict(usual).get(name, axis.default)) for name, axis in spec.axes.items()}
    spec = replace(spec, name=f"{parts.name}.{session.name}", axes=axes, factory="", words=None, reference=None)
    evaluation = distinct(spec, _set(spec, [row for row in rows if row.sizes == usual]))
    others = tuple(row.inputs for row in rows if row.sizes != usual)
    shown = [row for row in _rows(spec, session.calls) if row.sizes == usual]
    calibration = distinct(spec, _set(spec, shown[:COUNT])) if shown else None
    sets = split(spec, evaluation) if calibration is None else Sets(evaluation, calibration)
    judge = replace(sets.evaluation or evaluation, others=others)
    notes = (*spec.notes, sets.note) if sets.note else spec.notes
    return replace(spec, evaluation=lambda: judge, calibration=sets.calibration, notes=notes)


def _ranged(spec: ModelSpec, calls: Sequence[Row], words: Words) -> ModelSpec:
    """A part whose inputs go as far as what the driver gives them, where nobody says another range."""

    def of(i: Input) -> Input:
        if i.kind == "image" or "low" in words.inputs.get(i.name, {}):
            return i
        low, high = range_in(np.concatenate([np.ravel(call[i.name]) for call in calls]))
        return replace(i, low=low, high=high)

    return replace(spec, inputs=tuple(map(of, spec.inputs)))


@dataclass(frozen=True)
class _Row:
    """One row of a call: its name, its sizes beside the batch, and its inputs as one run takes them."""

    name: str
    sizes: Sizes
    inputs: Row


def _rows(spec: ModelSpec, calls: Sequence[Call]) -> Iterator[_Row]:
    shapes = {i.name: i.shape for i in spec.inputs}
    for number, (asked, call) in enumerate(calls):
        sizes = {
            axis: size
            for name, shape in shapes.items()
            for axis, size in zip(shape, call[name].shape, strict=True)
            if isinstance(axis, str) and axis in spec.axes
        }
        count = sizes.pop(BATCH, 1)
        for row in range(count):
            inputs = {name: rows_in(call[name], [row], shape) for name, shape in shapes.items()}
            yield _Row(f"{asked}, call {number}" + (f", row {row}" if count > 1 else ""), tuple(sizes.items()), inputs)


def _usual(part: str, rows: Sequence[_Row]) -> Sizes:
    """The most frequent sizes, none of them 0; of several the ones in the middle."""
    counts = Counter(row.sizes for row in rows if all(size for _, size in row.sizes))
    if not counts:
        raise ModelError(f"the driver calls '{part}' with an empty axis alone: call it with a size of 1 or more too")
    most = max(counts.values())
    often = [sizes for sizes, count in counts.items() if count == most]
    return sorted(often, key=lambda sizes: (math.prod(size for _, size in sizes), sizes))[len(often) // 2]


def _set(spec: ModelSpec, rows: Sequence[_Row]) -> Evaluation:
    inputs = {i.name: stacked(row.inputs[i.name] for row in rows) for i in spec.inputs}
    return Evaluation(inputs, tuple(row.name for row in rows))
