"""The file of a matrix (models, targets, options and places in TOML), its checks, and its cells."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from importlib import util
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from edgekit import metrics, registry
from edgekit.artifact.option import OptionValue, as_text
from edgekit.errors import EdgekitError, UsageError, suggestion
from edgekit.hosts.catalogue import further_place
from edgekit.model.contract import check_name
from edgekit.model.overrides import words_of
from edgekit.model.sources import check_model
from edgekit.pipeline.outcome import parse_allowed_budgets
from edgekit.pipeline.plan import plan_run
from edgekit.pipeline.request import Criteria, EvaluationData, ExportRequest, ModelFacts
from edgekit.storage.files import digest_file, digest_text, dump_json
from edgekit.target import Target

WRONG = {
    "missing": "is missing",
    "too_short": "is empty",
    "string_type": "must be a text",
    "model_type": "must be a text or a table",
    "dict_type": "must be a table",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
}
"""Error text for a value, by Pydantic's name of the error."""
Options = dict[str, bool | int | float | str | tuple[str, ...]]


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


FACTS = {"axes", "inputs", "outputs", "weights", "ema", "author", "licence"}
DATA = {"data", "metric", "calibration"}
"""Fields of a model in a matrix file, by their record in a request."""


class ModelEntry(BaseModel):
    """One model of a matrix.

    Attributes:
        model: MODEL as in `edgekit export`.
        weights: A file of weights to load into it.
        ema: True to load the file's averaged weights.
        author: Author of the weights.
        licence: SPDX name of the weights' licence.
        axes: Dimensions that vary, as in `edgekit export --axes`; a list of such texts.
        inputs: Facts about its inputs, as in `--inputs`.
        outputs: Facts about its outputs, as in `--outputs`.
        data: Folder of real inputs to judge on.
        metric: Metric for data with labels.
        calibration: Folder of other real inputs, which determine the ranges of INT8.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    weights: str = ""
    ema: bool = False
    author: str = ""
    licence: str = ""
    axes: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    data: str = ""
    metric: str = ""
    calibration: str = ""


class Selection(_Table):
    """Cells by shell patterns of the model's and the target's name: `*`, `?`, `[ab]`."""

    model: str = "*"
    target: str = "*"

    def holds(self, model: str, target: str) -> bool:
        """Return whether the selection includes a cell."""
        return fnmatchcase(model, self.model) and fnmatchcase(target, self.target)


class Addition(_Table):
    """An additional cell: a model of the file and any target, with its own options."""

    model: str
    target: str
    options: Options = {}


_Entry = Annotated[ModelEntry, BeforeValidator(lambda value: {"model": value} if isinstance(value, str) else value)]
_OptionSets = Annotated[
    tuple[Options, ...],
    BeforeValidator(lambda value: [value] if isinstance(value, dict) else value),
    Field(min_length=1),
]


class MatrixFile(_Table):
    """The contents of the file.

    Attributes:
        models: By the name of the build and of the report's row; MODEL as in `edgekit export`, or a table.
        targets: Names and groups: the columns.
        options: By target: one set of options, or a list of sets, each of which makes a separate column. Targets
            derived from it use the first set.
        places: Additional places in which every cell is judged.
        budget: Limits of artifacts, as in `edgekit export --budget`.
        limits: "all" or "task", as in `edgekit export --limits`.
        exclude: Cells to leave out.
        include: Cells to add.
    """

    models: dict[str, _Entry] = Field(min_length=1)
    targets: tuple[str, ...] = ()
    options: dict[str, _OptionSets] = {}
    places: tuple[str, ...] = ()
    budget: tuple[str, ...] = ()
    limits: str = "all"
    exclude: tuple[Selection, ...] = ()
    include: tuple[Addition, ...] = ()


def read_file(path: Path) -> MatrixFile:
    """Read a matrix file; `cells_of` checks its names.

    Raises:
        UsageError: If it cannot be read, is not TOML, or has a wrong key or type.
    """
    try:
        # A pipe that nobody writes to never ends, and neither does a device.
        if path.exists() and not path.is_file():
            raise UsageError(f"'{path}' is not a regular file. Name the TOML file of a matrix")
        return MatrixFile.model_validate(tomllib.loads(path.read_text()))
    except OSError as error:
        raise UsageError(f"cannot read '{path}' ({error.strerror}). Name the TOML file of a matrix") from error
    except RecursionError as error:
        raise UsageError(f"'{path}' is nested too deeply. Name the TOML file of a matrix") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        tables: dict[str | int, type[BaseModel]] = {"models": ModelEntry, "exclude": Selection, "include": Addition}
        possible = list((MatrixFile if len(first["loc"]) == 1 else tables[first["loc"][0]]).model_fields)
        if first["type"] != "extra_forbidden":
            wrong = WRONG.get(first["type"], f"is wrong: {first['msg']}")
            raise UsageError(f"'{path}': {where} {wrong}") from error
        meant = suggestion(str(first["loc"][-1]), possible)
        raise UsageError(f"'{path}': no key '{where}'. {meant}Possible: {', '.join(possible)}") from error
    # Python refuses integers of thousands of digits with a plain ValueError.
    except ValueError as error:
        raise UsageError(f"'{path}' is not TOML: {error}") from error


def cells_of(file: MatrixFile) -> tuple[Cell, ...]:
    """Return the cells, by model and then by target, with sources before the targets derived from them.

    Raises:
        EdgekitError: For an impossible model, target, option, place or budget, or a missing library.
    """
    targets, _ = registry.loadable()
    for place in file.places:
        further_place(place)
    parse_allowed_budgets(file.budget, targets)
    criteria = Criteria(file.places, budget=file.budget, limits=file.limits)
    for name, entry in file.models.items():
        _check_model(name, entry)
    columns = list(_columns(file, targets))
    _check_selections(file, [target for target, _ in columns])
    cells: list[Cell] = []
    for name in file.models:
        for target, options in (*columns, *((a.target, a.options) for a in file.include if a.model == name)):
            added = any(a.model == name and (a.target, a.options) == (target, options) for a in file.include)
            if added or not any(rule.holds(name, target) for rule in file.exclude):
                # A cell has the options of all targets that it makes on the way, which are checked with it.
                order, _, _ = plan_run(targets, (target,), {target: options})
                sources = tuple(source for source in order if source != target)
                on_its_way = {source: file.options[source][0] for source in sources if source in file.options}
                every = {source: own for source, own in (on_its_way | {target: options}).items() if own}
                plan_run(targets, (target,), every)
                cells.append(Cell(name, file.models[name], target, every, criteria, sources))
    if twice := [name for name, count in Counter(cell.name for cell in cells).items() if count > 1]:
        raise UsageError(f"'{twice[0]}' occurs twice. Remove one of its sets of options or additions")
    if not cells:
        if columns:
            raise UsageError("the matrix has no cells: its [[exclude]] leave all of them out")
        raise UsageError("the matrix has no cells. Name targets, for example targets = ['onnx', 'onnx-fp16']")
    return tuple(cells)


def _columns(file: MatrixFile, targets: dict[str, Target]) -> Iterator[tuple[str, Options]]:
    """Yield each target with each of its sets of options, with sources before derived targets."""
    selected = registry.select_targets(file.targets, targets)
    registry.select_targets(file.options, targets)
    names = {*selected, *(addition.target for addition in file.include)}
    needed = {*registry.sources_first(tuple(names & set(targets)), targets)}
    if unused := [name for name in file.options if name not in needed]:
        raise UsageError(f"options for '{unused[0]}', which the matrix does not have. Add the target, or remove them")
    for target in registry.sources_first(selected, targets):
        if target in selected:
            yield from ((target, options) for options in file.options.get(target, ({},)))


def _check_selections(file: MatrixFile, targets: list[str]) -> None:
    for selection in file.exclude:
        if not any(selection.holds(model, target) for model in file.models for target in targets):
            where = f"model '{selection.model}', target '{selection.target}'"
            raise UsageError(f"exclude of {where} leaves no cell out. Remove it")
    for addition in file.include:
        if addition.model not in file.models:
            meant = suggestion(addition.model, file.models)
            raise UsageError(f"include of '{addition.model}', which is not in the file. {meant}Add it to [models]")


def _check_model(name: str, entry: ModelEntry) -> None:
    check_name(name)
    try:
        check_model(entry.model)
    except EdgekitError as error:
        raise UsageError(f"models.{name}: {error}") from error
    if entry.weights and not Path(entry.weights).is_file():
        raise UsageError(f"models.{name}: no file of weights '{entry.weights}'")
    if gone := next((folder for folder in (entry.data, entry.calibration) if folder and not Path(folder).is_dir()), ""):
        raise UsageError(f"models.{name}: no folder '{gone}'")
    try:
        words_of(entry.axes, entry.inputs, entry.outputs)
        if entry.metric:
            metrics.parse_metric(entry.metric)
    except EdgekitError as error:
        raise UsageError(f"models.{name}: {error}") from error


@dataclass(frozen=True)
class Cell:
    """One model, one target, one set of options.

    Attributes:
        model: The model's name in the matrix and in its build folder.
        entry: The model.
        target: The target's name.
        options: By target: its own, and those of its sources.
        criteria: Additional places to judge in, and limits of the artifact.
        sources: Other targets that are made on the way to it.
    """

    model: str
    entry: ModelEntry
    target: str
    options: Mapping[str, Mapping[str, OptionValue]]
    criteria: Criteria = field(default_factory=Criteria)
    sources: tuple[str, ...] = ()

    @property
    def column(self) -> str:
        """The target with its own options, as a column's head: `onnx`, `onnx opset=20`."""
        own = self.options.get(self.target, {})
        return " ".join((self.target, *(f"{name}={as_text(value)}" for name, value in own.items())))

    @property
    def name(self) -> str:
        """Model and column; unique in a matrix."""
        return f"{self.model} {self.column}"

    @property
    def folder(self) -> str:
        """Its folder in the matrix's folder, with the build, the log and the record."""
        plain = re.sub(r"[^\w.=,-]", "_", self.column.replace(" ", ","))
        exact = plain == self.column.replace(" ", ",") and len(plain) < 100
        return f"cells/{self.model}/{plain if exact else f'{plain[:80]}-{digest_text(self.column)[:8]}'}"

    @property
    def arguments(self) -> tuple[str, ...]:
        """Arguments of `edgekit export`, without the folder."""
        entry = self.entry
        request = ExportRequest(
            model=entry.model,
            targets=(self.target,),
            options=self.options,
            facts=ModelFacts(name=self.model, **entry.model_dump(include=FACTS)),
            data=EvaluationData(**entry.model_dump(include=DATA)),
            criteria=self.criteria,
        )
        return tuple(request.words[1:])

    def follows(self, earlier: Sequence[Cell]) -> Cell | None:
        """Return the earlier cell whose build its own begins with: that of its source, else its model's first."""
        same = [cell for cell in earlier if cell.model == self.model]
        for source in reversed(self.sources):
            options = {name: option for name, option in self.options.items() if name != self.target}
            for cell in same:
                if cell.target == source and cell.options == {
                    n: options[n] for n in cell.build_targets if n in options
                }:
                    return cell
        return same[0] if same else None

    @property
    def build_targets(self) -> tuple[str, ...]:
        """The targets in its build."""
        return (*self.sources, self.target)

    @property
    def key(self) -> str:
        """sha256 of the cell's ingredients: arguments, files and code of the model, code and libraries of edgekit.

        For a factory only the file that defines it counts, not the imports of that file.
        """
        entry = self.entry
        files = [_content(path) for path in (entry.model, entry.weights, entry.data, entry.calibration)]
        made_of = [list(self.arguments), files, _code_of(self.target)]
        return digest_text(dump_json(made_of))


@cache
def _code_of(target: str) -> list[object]:
    """Return the code and the libraries that make a target's artifacts."""
    declared = registry.find(target)
    return [registry.code_digest(declared), registry.versions(declared)]


@cache
def _content(path: str) -> str:
    """Return the hash of a file, of a folder's files, or of a factory's file; empty for any other name."""
    path = path.partition(":")[2] if path.startswith(("transformers:", "timm:")) else path
    if path and Path(path).is_dir():
        files = sorted(file for file in Path(path).rglob("*") if file.is_file())
        return digest_text("\n".join(f"{file.relative_to(path)} {digest_file(file)}" for file in files))
    if ":" in path:
        module_spec = util.find_spec(path.partition(":")[0])
        path = module_spec.origin or "" if module_spec is not None else ""
    return digest_file(Path(path)) if path and Path(path).is_file() else ""
