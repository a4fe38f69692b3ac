"""Request for an export: one record that Python, the command line and the matrix file share."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from edgekit.artifact.option import as_text
from edgekit.errors import UsageError, in_any_case, suggestion
from edgekit.model.evaluation_set import evaluation_of
from edgekit.model.overrides import Given
from edgekit.model.spec import CalibrationSet, EvaluationSet, ModelSpec

Calibration = CalibrationSet | str | Path


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """The user's declarations about a model.

    Attributes:
        axes: Dynamic dimensions, by input, in the syntax of `edgekit.model.overrides`: `{"ids":
            "0=batch,1=length:1..512"}`, `{"ids": {0: "batch", 1: ("length", Axis(128, 1, 512))}}` or
            `["ids:0=batch,1=length:1..512"]`. With None, the first dimension of each input is the batch. For a module,
            a program, an ONNX file and a factory's model.
        inputs: Facts of inputs, in the same syntax: `{"pixels": "kind=image,mean=0.5,std=0.5"}`, `{"rate": {"range":
            (8000, 16000)}}`. For a factory that returns a module, the shape too: `shape=1,3,64,64`.
        outputs: Likewise: `{"logits": "role=logits,classes=cat,dog"}`.
        task: Task of a transformers folder, by optimum's name: "text-generation-with-past" gives one graph with a
            cache, judged by its generated tokens. The build gets a folder `hub` for transformers.js and optimum.
        weights: A file of weights to load into the model, which then has its own name and no licence.
        ema: True to load the file's averaged weights (an exponential moving average).
        name: Name of the model; by default its declared one.
        author: Author of the weights, in place of the model's own.
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
    """The user's data to judge and to calibrate with, in place of the model's own.

    Attributes:
        evaluation: Real inputs to judge on, or a function that returns them.
        data: A folder with the evaluation set in place of `evaluation`: pictures, or .npz files with an array for each
            input (`edgekit.reference.dataset`). Without any calibration set, 70 inputs or more are split by their
            hashes: a part calibrates, the others judge.
        metric: For `data` with labels: a metric of `edgekit.metrics` as text: "top_k:logits", "top_k:logits,k=5".
        calibration: Samples for INT8, a function that returns them and may take their number, or a folder like `data`.
            It must hold none of the evaluation set's inputs.
        reference: Folder of a reference recorded with `edgekit reference` for the same weights.
        splits: False if nothing is calibrated: all of `data` then judge.
    """

    evaluation: EvaluationSet | Callable[[], EvaluationSet] | None = None
    data: str | Path | None = None
    metric: str = ""
    calibration: Calibration | None = None
    reference: str | Path | None = None
    splits: bool = True


LIMITS = ("all", "task")


@dataclass(frozen=True)
class Criteria:
    """Criteria for artifacts in addition to their targets' own places.

    Attributes:
        places: Further places to judge in, for example "openvino" or "ort-cuda@ssh:me@box"; if there are any, `verify`
            judges only in these.
        images: Number of evaluation inputs to run in further places; None for all.
        budget: Limits on cost, for example "p50=20ms" or "onnx-int8-static.size=4MB" (`edgekit.judge.budget`).
        limits: "all", or "task": an fp16 or INT8 artifact that fails only on made inputs is verified on the user's own
            inputs and metric alone, and its verdict says so.
    """

    places: Sequence[str] = ()
    images: int | None = None
    budget: Sequence[str] = ()
    limits: str = "all"

    def __post_init__(self) -> None:
        limits = in_any_case(self.limits, LIMITS)
        if limits not in LIMITS:
            raise UsageError(f"unknown limits '{self.limits}'. Use all, or task")
        object.__setattr__(self, "limits", limits)

    def require_task(self, spec: ModelSpec) -> bool:
        """Return whether the user's own inputs and metric suffice.

        Raises:
            UsageError: If they should, and there are none.
        """
        evaluation = evaluation_of(spec) if self.limits == "task" else None
        if self.limits == "task" and (evaluation is None or evaluation.metric is None or evaluation.truth is None):
            raise UsageError(
                "--limits task judges by your own metric, and the model has no inputs with truth and a metric. Add "
                "--data FOLDER with labels and --metric, for example top_k:logits"
            )
        return self.limits == "task"


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
        """Return the request with fields of its records set by name, for example `axes` or `places`.

        Raises:
            UsageError: If a name is unknown.
        """
        records: dict[str, Any] = {"facts": self.facts, "data": self.data, "criteria": self.criteria}
        homes = {f.name: home for home, record in records.items() for f in fields(record)}
        for name, value in values.items():
            if name not in homes:
                possible = [*homes, *(f.name for f in fields(self))]
                raise UsageError(
                    f"export() does not take '{name}'. {suggestion(name, possible)}Parameters: {', '.join(possible)}"
                )
            texts = names_in(value) if homes[name] == "criteria" and name in ("places", "budget") else value
            records[homes[name]] = replace(records[homes[name]], **{name: texts})
        return replace(self, **records)

    @property
    def command(self) -> str:
        """The equivalent command; empty if the model is an object in Python, which no command can name.

        It stands in the build, which travels: absolute paths are shortened to their last name.
        """
        if not isinstance(self.model, str | Path):
            return ""
        return shlex.join(("edgekit", *(_without_folders(word) for word in self.words)))

    @property
    def words(self) -> list[str]:
        """The arguments of that command after `edgekit`, without the output folder."""
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
            "limits": "" if self.criteria.limits == "all" else self.criteria.limits,
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


def _without_folders(word: str) -> str:
    """Return an argument whose value is an absolute path with the path's last name alone."""
    head, equals, value = word.rpartition("=")
    return f"{head}{equals}.../{Path(value).name}" if Path(value).is_absolute() else word


def names_in(names: Iterable[str]) -> tuple[str, ...]:
    """Return names as a tuple, from one name or several.

    Raises:
        UsageError: If a name is not a string.
    """
    several = (names,) if isinstance(names, str) or not isinstance(names, Iterable) else tuple(names)
    if wrong := [name for name in several if not isinstance(name, str)]:
        raise UsageError(f"{wrong[0]!r} is not a name. Pass a string")
    return several


def _texts_of(facts: Given) -> tuple[str, ...]:
    """Return facts given as text, as the command line takes them; records are left out."""
    if facts is None or isinstance(facts, Mapping):
        return tuple(f"{name}:{text}" for name, text in (facts or {}).items() if isinstance(text, str))
    return names_in(facts)
