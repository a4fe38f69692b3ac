"""User-written facts about a model, on the command line and in Python: its axes, inputs and outputs.

This module alone parses the notation. An entry is `NAME:FACT=VALUE,FACT=VALUE`; a list value continues after a
comma:

    axes     input:0=batch,1=length:1..512          dimension=axis:range; give the range once per axis
             images:2=height:64..512/32@224         multiples of 32, by default 224
             mask:1=past+tokens                     the sum of axes of other inputs
    inputs   pixels:kind=image,mean=0.485,0.456,0.406,std=0.229,0.224,0.225
             pixels:uint8,nhwc                      artifacts take bytes [batch, height, width, 3]
             rate:range=8000..16000
             offsets:sorted                         ascending from the lowest value; sorted=descending for a mask
             lengths:at-most=time                   no value exceeds the size of an axis; below=time for positions
    outputs  logits:role=logits,classes=cat,dog

In Python an entry may also be a dictionary: `axes={"input": {0: "batch", 1: "length:1..512"}}`,
`inputs={"rate": {"range": (8000, 16000)}}`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, get_args, get_type_hints

import numpy as np

from edgekit.errors import UsageError, in_any_case, suggestion
from edgekit.model.image_input import COLOURS, TAKES
from edgekit.model.spec import MOST_VALUES, SUM, Axis, Input, ModelSpec, Output, Role, axes_in

BATCH = "batch"
BATCHES = ("N", "B", "bs", "batch_size")
"""Other names of the batch axis, which becomes "batch" in every artifact."""
# For a batch without a range.
MOST_IMAGES = 8
Entry = str | Mapping[Any, Any]
Given = Entry | Sequence[str] | None
"""Texts that each begin with a name, or one entry per name."""
RANGE = re.compile(r"(?P<low>\d+)\.\.(?P<high>\d+)(?:/(?P<step>\d+))?(?:@(?P<default>\d+))?")
SIZE = re.compile(r"[\w.-]+(\+[\w.-]+)*")
SPAN = re.compile(r"(?P<low>[^.\s]*(?:\.\d+)?[^.\s]*)\.\.(?P<high>\S+)")
AXES = "--axes input:0=batch,1=length:8..512/8@128 (8 to 512, multiples of 8, 128 by default)"
Named = TypeVar("Named", Input, Output)


@dataclass(frozen=True)
class Span:
    """The sizes of an axis as written by the user; `default` 0 means the size in the model's example."""

    minimum: int
    maximum: int
    multiple_of: int = 1
    default: int = 0

    def axis(self, name: str, size: int = 0) -> Axis:
        """Return the axis. Its default is the given one, else the example's size; of the batch the smallest size."""
        first = -(-self.minimum // max(self.multiple_of, 1)) * self.multiple_of
        middle = (self.minimum + self.maximum) // 2 // max(self.multiple_of, 1) * self.multiple_of
        default = self.default or (first if name == BATCH else size or max(first, middle))
        return Axis(default, self.minimum, self.maximum, self.multiple_of)


Axes = Mapping[str, Mapping[int, tuple[str, Axis | Span | None]]]
"""For each input by name, dimension -> the name of its axis, with its range if given there."""


@dataclass(frozen=True)
class SpecOverrides:
    """User-written facts about a model.

    Attributes:
        axes: Dimensions that vary; None if the user gave none.
        inputs: Facts by input: fields of `Input`.
        outputs: Facts by output: fields of `Output`.
    """

    axes: Axes | None = None
    inputs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    outputs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.axes is not None or bool(self.inputs) or bool(self.outputs)

    def of_inputs(self, inputs: Iterable[Input]) -> tuple[Input, ...]:
        """Return inputs with the user's facts.

        Raises:
            UsageError: If a named input does not exist, or cannot have the fact.
        """
        described = _describe(tuple(inputs), self.inputs, "input")
        return tuple(
            _bounded(_as_picture(i, facts), facts) for i in described for facts in [self.inputs.get(i.name, {})]
        )

    def of_outputs(self, outputs: Iterable[Output]) -> tuple[Output, ...]:
        """Return outputs with the user's facts.

        Raises:
            UsageError: If a named output does not exist.
        """
        return _describe(tuple(outputs), self.outputs, "output")

    def of_spec(self, spec: ModelSpec) -> ModelSpec:
        """Return a declared model with the user's facts, unchecked.

        Raises:
            UsageError: As for `of_inputs`; and if an input or a dimension in `axes` does not exist.
        """
        axes, inputs = dict(spec.axes), self.of_inputs(spec.inputs)
        require_known((i.name for i in inputs), self.axes or {}, "axes name the input")
        ranks = {i.name: i.shape for i in inputs}
        for name, dimensions in (self.axes or {}).items():
            shape = list(ranks[name])
            for dimension, (axis, span) in dimensions.items():
                if SUM in axis:
                    shape[require_dimension(name, dimension, len(shape))] = axis
                    continue
                before = shape[require_dimension(name, dimension, len(shape))]
                size = axes[before].default if isinstance(before, str) else before
                axes[axis] = range_of(axis, span, size, axes.get(axis))
                shape[dimension] = axis
            ranks[name] = tuple(shape)
        used = {axis for shape in ranks.values() for d in shape for axis in axes_in(d)}
        return replace(
            spec,
            inputs=tuple(replace(i, shape=ranks[i.name]) for i in inputs),
            outputs=self.of_outputs(spec.outputs),
            axes={name: axis for name, axis in axes.items() if name in used},
        )

    def require_own_shapes(self) -> None:
        """Refuse a shape or dtype for models that define them: an ONNX file, a ModelSpec, a module with an example.

        Raises:
            UsageError: Naming the input.
        """
        for name, input_facts in self.inputs.items():
            if wrong := next((fact for fact in OF_A_MODULE if fact in input_facts), ""):
                raise UsageError(f"'{name}' already has a {wrong}. Set it only for a plain module of a factory")

    def with_ranges(self, ranges: Mapping[str, tuple[float, float]]) -> SpecOverrides:
        """Return the same facts plus ranges of inputs that have none."""
        more = {n: {**self.inputs.get(n, {}), "low": low, "high": high} for n, (low, high) in ranges.items()}
        return replace(self, inputs={**self.inputs, **more})

    def with_facts(self, name: str, facts: Mapping[str, Any]) -> SpecOverrides:
        """Return the same, with more facts of an input."""
        return replace(self, inputs={**self.inputs, name: {**self.inputs.get(name, {}), **facts}})

    def with_classes(self, output: str, classes: tuple[str, ...]) -> SpecOverrides:
        """Return the same, with the names of an output's classes."""
        return replace(self, outputs={**self.outputs, output: {**self.outputs.get(output, {}), "classes": classes}})

    def as_record(self) -> dict[str, Any]:
        """Return the entry for config.json, which `from_record` reads."""
        axes = {
            name: [
                [d, axis, ([] if span is None else [span.minimum, span.maximum, span.multiple_of, span.default])]
                for d, (axis, span) in dimensions.items()
            ]
            for name, dimensions in (self.axes or {}).items()
        }
        facts = {"inputs": self.inputs, "outputs": self.outputs}
        return {
            "axes": None if self.axes is None else axes,
            **{k: {n: dict(f) for n, f in v.items()} for k, v in facts.items()},
        }


NOTHING = SpecOverrides()
"""Overrides without any facts."""


def from_record(record: Mapping[str, Any]) -> SpecOverrides:
    """Return the overrides stored in config.json."""
    if not record:
        return NOTHING
    axes = {
        n: {d: (axis, Span(*s) if s else None) for d, axis, s in dimensions}
        for n, dimensions in (record["axes"] or {}).items()
    }

    def facts(which: str) -> dict[str, dict[str, Any]]:
        rows = record[which].items()
        return {
            n: {k: tuple(v) if isinstance(v, list) else v for k, v in input_facts.items()} for n, input_facts in rows
        }

    return SpecOverrides(None if record["axes"] is None else axes, facts("inputs"), facts("outputs"))


def words_of(axes: Given, inputs: Given, outputs: Given) -> SpecOverrides:
    """Parse a user's facts in either form.

    Raises:
        UsageError: Naming the invalid text, and the expected form.
    """
    entries = None if axes is None else {name: _dimensions(name, entry) for name, entry in _by_name("axes", axes)}
    names = {axis for dimensions in (entries or {}).values() for axis, _ in dimensions.values()}
    if entries is not None and BATCH not in names and len(called := names.intersection(BATCHES)) == 1:
        entries = {
            name: {d: (BATCH if axis in called else axis, span) for d, (axis, span) in dimensions.items()}
            for name, dimensions in entries.items()
        }
    of_inputs = {name: _facts("inputs", name, entry, IN) for name, entry in _by_name("inputs", inputs)}
    return SpecOverrides(
        entries, of_inputs, {name: _facts("outputs", name, s, OUT) for name, s in _by_name("outputs", outputs)}
    )


def require_known(possible: Iterable[str], unchecked: Iterable[str], what: str) -> None:
    """Refuse names that do not exist.

    Raises:
        UsageError: With the existing names.
    """
    names = tuple(possible)
    if unknown := [name for name in unchecked if name not in names]:
        meant = suggestion(unknown[0], names)
        raise UsageError(f"{what} '{unknown[0]}', which does not exist. {meant}This model has: {', '.join(names)}")


def require_dimension(name: str, dimension: int, count: int) -> int:
    """Refuse a dimension that an input does not have.

    Raises:
        UsageError: With the number of its dimensions.
    """
    if not 0 <= dimension < count:
        raise UsageError(f"axes name dimension {dimension} of '{name}', which has {count}. Count from 0")
    return dimension


def range_of(axis: str, override: Axis | Span | None, size: int, declared: Axis | None) -> Axis:
    """Return the range of an axis: the given one, or the declared one; `size` is the example's, or 0 without one.

    Raises:
        UsageError: If the range is unknown, or the example is outside of it.
    """
    axis_range = (
        override.axis(axis, size) if isinstance(override, Span) else override if override is not None else declared
    )
    if axis_range is None and axis == BATCH:
        return Axis(1, 1, max(MOST_IMAGES, size))
    if axis_range is None:
        raise UsageError(f"axis '{axis}' has no range. Write '{axis}:MIN..MAX', for example {AXES}")
    return axis_range


def _by_name(what: str, entries: Given) -> list[tuple[str, Entry]]:
    """Return entries by name, with texts for the same name joined."""
    if isinstance(entries, Mapping):
        return [(str(name), entry) for name, entry in entries.items()]
    if not isinstance(entries, str | Sequence | None):
        raise UsageError(f"{what} are {entries!r}. Write them as in {EXAMPLES[what]}")
    by_name: dict[str, str] = {}
    for text in (entries,) if isinstance(entries, str) else entries or ():
        name, colon, rest = text.partition(":") if isinstance(text, str) else ("", "", "")
        if not (name and colon and rest):
            raise UsageError(f"{what} '{text}' are not of the form NAME:FACT=VALUE. Example: {EXAMPLES[what]}")
        by_name[name] = f"{by_name[name]},{rest}" if name in by_name else rest
    return list(by_name.items())


def _pairs(what: str, name: str, entry: Entry) -> list[tuple[Any, Any]]:
    """Return facts and their values; a part of a text without `=` continues the value before it."""
    if isinstance(entry, Mapping):
        return list(entry.items())
    pairs: list[tuple[str, list[str]]] = []
    for part in entry.split(",") if isinstance(entry, str) else ():
        fact, equals, value = part.partition("=")
        if what == "inputs" and part.strip() in FLAGS:
            flag, meaning = FLAGS[part.strip()]
            pairs.append((flag, [meaning]))
        elif equals:
            pairs.append((fact.strip(), [value.strip()]))
        elif pairs:
            pairs[-1][1].append(part.strip())
    if not pairs or any(not all(values) for _, values in pairs):
        raise UsageError(f"{what} of '{name}' are {entry!r}. Write them as in {EXAMPLES[what]}")
    return [(fact, ",".join(values)) for fact, values in pairs]


def _dimensions(name: str, said: Entry) -> dict[int, tuple[str, Axis | Span | None]]:
    dimensions: dict[int, tuple[str, Axis | Span | None]] = {}
    for dimension, entry in _pairs("axes", name, said):
        place = int(dimension) if isinstance(dimension, str) and dimension.isdecimal() else dimension
        axis, span = (
            _axis(entry)
            if isinstance(entry, str)
            else entry
            if (
                isinstance(entry, tuple)
                and len(entry) == 2
                and isinstance(entry[0], str)
                and (entry[1] is None or isinstance(entry[1], Axis | Span))
            )
            else ("", None)
        )
        if not axis or not isinstance(place, int) or isinstance(place, bool):
            raise UsageError(
                f"axes of '{name}' are {said!r}. Write a dimension and its axis, for example {AXES}, in Python "
                "{0: 'batch', 2: 'height:64..512/32@224'}"
            )
        dimensions[place] = (axis, span)
    return dimensions


def _axis(text: str) -> tuple[str, Span | None]:
    """Parse `name` or `name:MIN..MAX/MULTIPLE@DEFAULT`."""
    name, colon, sizes = text.partition(":")
    if not colon:
        return name, None
    match = RANGE.fullmatch(sizes)
    if match is None:
        raise UsageError(f"the range '{sizes}' of axis '{name}' is not of the form MIN..MAX/MULTIPLE@DEFAULT: {AXES}")
    low, high, step, default = (int(match[part] or 0) for part in ("low", "high", "step", "default"))
    return name, Span(low, high, 1 if match["step"] is None else step, default)


def _numbers(values: list[Any]) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def _number(values: list[Any]) -> float:
    (value,) = values
    return float(value)


def _texts(values: list[Any]) -> tuple[str, ...]:
    return tuple(str(value) for value in values)


def _single_choice(*possible: str) -> Callable[[list[Any]], str]:
    def choose(values: list[Any]) -> str:
        (value,) = map(str, values)
        choice = in_any_case(value, possible)
        if possible and choice not in possible:
            raise ValueError(f"Possible: {', '.join(possible)}")
        return choice

    return choose


def _size(values: list[Any]) -> str:
    """Return an axis, a sum of axes or a number."""
    (value,) = map(str, values)
    if not SIZE.fullmatch(value):
        raise ValueError("Possible: an axis, a sum of axes or a number, for example at-most=time")
    return value


def _of_numpy(values: list[Any]) -> str:
    (value,) = values
    try:
        dtype = np.dtype(value)
    except TypeError:
        dtype = np.dtype(object)
    if dtype.kind not in "biuf":
        raise ValueError("Possible: NumPy's names of number types, for example float32, int64, bool")
    return str(dtype.name)


def _channels(values: list[Any]) -> tuple[float, ...]:
    """Return one number per channel; a single number applies to all."""
    numbers = _numbers(values)
    return numbers * COLOURS if len(numbers) == 1 else numbers


def _range(values: list[Any]) -> tuple[float, float]:
    low, high = _values(values)
    if low == high:
        raise ValueError("The lowest must be below the highest")
    return low, high


def _values(values: list[Any]) -> tuple[float, float]:
    """Return the range of an input; a constant input may have two equal ends."""
    if len(values) == 1 and isinstance(values[0], str):
        match = SPAN.fullmatch(values[0])
        values = [match["low"], match["high"]] if match else []
    low, high = _numbers(values)
    if not -np.inf < low <= high < np.inf:
        raise ValueError("The lowest must not be above the highest, and both must be finite")
    return low, high


def _possible(record: type, fact: str) -> tuple[str, ...]:
    return tuple(get_args(get_type_hints(record)[fact]))


Fact = Callable[[list[Any]], Any]
IN: Mapping[str, Fact] = {
    "kind": _single_choice(*_possible(Input, "kind")),
    "range": _values,
    "mean": _channels,
    "std": _channels,
    "fit": _single_choice(*_possible(Input, "fit")),
    "channels": _single_choice(*_possible(Input, "channels")),
    "layout": _single_choice(*_possible(Input, "layout")),
    "takes": _texts,
    # `True` in Python is the usual order.
    "sorted": lambda values: _single_choice("ascending", "descending")(
        ["ascending" if value is True else value for value in values]
    ),
    "at-most": _size,
    "below": _size,
    "shape": lambda values: tuple(map(int, values)),
    "dtype": _of_numpy,
}
"""Possible facts of an input."""
FLAGS = {"sorted": ("sorted", "ascending"), **{form: ("takes", form) for form in TAKES}}
"""Words without a value, and the fact and value that they mean."""
OF_A_MODULE = ("shape", "dtype")
"""Facts only for a factory's plain module: all other models define them."""
OUT: Mapping[str, Fact] = {
    "role": _single_choice(*get_args(Role)),
    "of": _single_choice(),
    "range": _range,
    "axes": _texts,
    "classes": _texts,
    "threshold": _number,
}
"""Possible facts of an output."""
EXAMPLES = {
    "axes": AXES,
    "inputs": "--inputs pixels:shape=1,3,224,224,kind=image,mean=0.485,0.456,0.406,std=0.25 or "
    "--inputs rate:range=8000..16000",
    "outputs": "--outputs logits:role=logits,classes=cat,dog",
}


def _facts(what: str, name: str, entry: Entry, facts: Mapping[str, Fact]) -> dict[str, Any]:
    """Return the facts of one input or output, by the names of its record's fields."""
    facts_by_name: dict[str, Any] = {}
    for fact, value in _pairs(what, name, entry):
        if fact not in facts:
            meant = suggestion(str(fact), facts)
            raise UsageError(f"{what} of '{name}' cannot have '{fact}'. {meant}Possible: {', '.join(facts)}")
        values = (
            value.split(",") if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else [value]
        )
        try:
            parsed = facts[fact](values)
        except (ValueError, TypeError) as error:
            why = str(error) if "Possible" in str(error) or "lowest" in str(error) else f"See {EXAMPLES[what]}"
            raise UsageError(f"{fact} '{value}' of '{name}' is not possible. {why}") from error
        field_name = str(fact).replace("-", "_")
        if fact == "takes":
            parsed = tuple(dict.fromkeys((*facts_by_name.get("takes", ()), *parsed)))
        facts_by_name |= dict(zip(("low", "high"), parsed, strict=True)) if fact == "range" else {field_name: parsed}
    return facts_by_name


def _describe(tensors: tuple[Named, ...], facts: Mapping[str, Mapping[str, Any]], what: str) -> tuple[Named, ...]:
    require_known((each.name for each in tensors), facts, f"{what}s name the {what}")
    return tuple(with_facts(each, facts.get(each.name, {})) for each in tensors)


def with_facts(tensor: Named, facts: Mapping[str, Any]) -> Named:
    """Return an input or output with a user's facts."""
    return replace(tensor, **{fact: value for fact, value in facts.items() if fact not in OF_A_MODULE})


def _as_picture(i: Input, facts: Mapping[str, Any]) -> Input:
    """Return a picture input with the range [0, 1] unless the user gives one; what artifacts take implies the kind."""
    kind = facts.get("kind", "image" if facts.get("takes") and i.kind != "image" else "")
    # An example shows the range inside the module, after its normalization.
    return (
        replace(i, kind=kind, low=0.0, high=1.0)
        if kind == "image" and "low" not in facts
        else replace(i, kind=kind or i.kind)
    )


def _bounded(i: Input, facts: Mapping[str, Any]) -> Input:
    """Return a bounded input of integers; without a range a length starts at 1, and a position or an offset at 0."""
    if not {"at_most", "below"} & set(facts) or "low" in facts or np.dtype(i.dtype).kind not in "iu":
        return i
    # `check_spec` lowers the highest value to the largest size of the axis.
    lengths = "at_most" in facts and "sorted" not in facts
    return replace(i, low=1.0 if lengths else 0.0, high=float(MOST_VALUES))
