"""What a user asks of an export: one record that Python, the command line and the matrix file share."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from edgekit.artifact.option import as_text
from edgekit.errors import UsageError, suggestion
from edgekit.model.overrides import Given
from edgekit.model.spec import CalibrationSet, EvaluationSet

Calibration = CalibrationSet | str | Path


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """What the user says of a model beside naming it.

    Attributes:
        axes: Which dimensions vary, by input, in the words of `edgekit.model.overrides`:
            `{"ids": "0=batch,1=length:1..512"}`, `{"ids": {0: "batch", 1: ("length", Axis(128, 1, 512))}}` or
            `["ids:0=batch,1=length:1..512"]`. None lets the first dimension of each input be the batch. For a module,
            a program, an ONNX file and a factory's model.
        inputs: Facts of inputs, in the same words: `{"pixels": "kind=image,mean=0.5,std=0.5"}`,
            `{"rate": {"range": (8000, 16000)}}`. Of a factory that returns a module the shape too, `shape=1,3,64,64`.
        outputs: Likewise: `{"logits": "role=logits,classes=cat,dog"}`.
        task: Of a folder of transformers, by optimum's name: "text-generation-with-past" makes one graph with a cache,
            judged by the tokens that it generates. The build gets a folder `hub` for transformers.js and optimum.
        weights: A file of weights to load into the model, which then has a name of its own and nobody's licence.
        ema: Whether the file's averaged weights (an exponential moving average) are loaded.
        name: Of the model, in place of its own.
        author: Of the weights, in place of the model's own.
        licence: SPDX name of the weights' licence, in place of the model's own.
    """

    axes: Given = None
    inputs: Given = None
    outputs: Given = None
    task: str = ""
    weights: str | Path | None = None
    ema: bool = False
    name: str | None = None
    author: str | None = None
    licence: str | None = None


@dataclass(frozen=True, kw_only=True)
class EvaluationData:
    """What the user gives to judge and to calibrate with, in place of the model's own.

    Attributes:
        evaluation: Real inputs to judge on, or a function that makes them.
        data: A folder with the evaluation set in place of `evaluation`: pictures, or .npz files with an array for each
            input (`edgekit.reference.dataset`). Where the model has no calibration set and none is given, 70 inputs or
            more are split by their hashes: a part calibrates, the others judge.
        metric: Of `data` with labels, one of `edgekit.metrics` in words: "top_k:logits", "top_k:logits,k=5".
        calibration: Samples for INT8, a function that makes them and may take their number, or a folder as `data` is
            one, which holds none of the evaluation set's inputs.
        reference: Folder of a reference that was recorded with `edgekit reference`; it must be of these weights.
    """

    evaluation: EvaluationSet | Callable[[], EvaluationSet] | None = None
    data: str | Path | None = None
    metric: str = ""
    calibration: Calibration | None = None
    reference: str | Path | None = None


@dataclass(frozen=True)
class Criteria:
    """What artifacts must hold beside their targets' own places.

    Attributes:
        places: Further places to judge in, for example "openvino" or "ort-cuda@ssh:me@box"; `verify` judges in these
            alone where there are any.
        images: How many evaluation inputs are asked in further places; None for all.
        budget: What artifacts may cost, for example "p50=20ms" or "onnx-int8-static.size=4MB" (`edgekit.judge.budget`).
    """

    places: Sequence[str] = ()
    images: int | None = None
    budget: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class ExportRequest:
    """One export; the attributes are the parameters of `edgekit.export`."""

    model: Any
    example: Any = None
    targets: tuple[str, ...] = ()
    output: Path = Path("build")
    options: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    facts: ModelFacts = ModelFacts()
    data: EvaluationData = EvaluationData()
    criteria: Criteria = Criteria()
    fresh: bool = False
    bom: bool = False
    sign: Path | None = None

    def with_fields(self, values: Mapping[str, Any]) -> ExportRequest:
        """Return the request with fields of its records set by their own names, for example `axes` or `places`.

        Raises:
            UsageError: If no record has a field of that name.
        """
        records: dict[str, Any] = {"facts": self.facts, "data": self.data, "criteria": self.criteria}
        homes = {f.name: home for home, record in records.items() for f in fields(record)}
        for name, value in values.items():
            if name not in homes:
                possible = [*homes, *(f.name for f in fields(self))]
                raise UsageError(
                    f"export() takes no '{name}': {suggestion(name, possible)}it takes {', '.join(possible)}"
                )
            texts = names_in(value) if homes[name] == "criteria" and name != "images" else value
            records[homes[name]] = replace(records[homes[name]], **{name: texts})
        return replace(self, **records)

    @property
    def command(self) -> str:
        """The command that does the same; empty where the model is an object in Python, which no command can name."""
        return shlex.join(("edgekit", *self.words)) if isinstance(self.model, str | Path) else ""

    @property
    def words(self) -> list[str]:
        """The words of that command behind `edgekit`; the folder of builds is left out."""
        facts, data = self.facts, self.data
        flags: dict[str, object] = {
            **{name: _texts_of(getattr(facts, name)) for name in ("axes", "inputs", "outputs")},
            "task": facts.task,
            "data": data.data,
            "metric": data.metric,
            "calibration": data.calibration if isinstance(data.calibration, str | Path) else None,
            **{name: getattr(facts, name) for name in ("weights", "ema", "name", "author", "licence")},
            "place": tuple(self.criteria.places),
            "budget": tuple(self.criteria.budget),
        }
        words = ["export", str(self.model)]
        words += [word for target in self.targets for word in ("-t", target)]
        for name, flag in flags.items():
            for value in flag if isinstance(flag, tuple) else (flag,):
                if value not in (None, "", False):
                    words += [f"--{name}"] if value is True else [f"--{name}", str(value)]
        for target, options in self.options.items():
            words += [word for name, value in options.items() for word in ("-O", f"{target}.{name}={as_text(value)}")]
        return words


def names_in(names: Iterable[str]) -> tuple[str, ...]:
    """Return names as a tuple: one name, or several.

    Raises:
        UsageError: If one is no text.
    """
    several = (names,) if isinstance(names, str) or not isinstance(names, Iterable) else tuple(names)
    if wrong := [name for name in several if not isinstance(name, str)]:
        raise UsageError(f"{wrong[0]!r} is not a name: give a text")
    return several


def _texts_of(facts: Given) -> tuple[str, ...]:
    """Return facts that are given in words, as the command line takes them; records have no words."""
    if facts is None or isinstance(facts, Mapping):
        return tuple(f"{name}:{text}" for name, text in (facts or {}).items() if isinstance(text, str))
    return names_in(facts)
