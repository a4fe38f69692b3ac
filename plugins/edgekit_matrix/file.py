"""The file of a matrix: its models, targets, options and places, read from TOML and checked before anything runs."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from edgekit import metrics, registry
from edgekit.errors import EdgekitError, UsageError, suggestion
from edgekit.hosts.catalogue import further_place
from edgekit.model.contract import check_name
from edgekit.model.sources import check_model
from edgekit.model.words import words_of
from edgekit.pipeline.outcome import allowed_budgets
from edgekit.pipeline.plan import planned
from edgekit.target import Target
from edgekit_matrix.cell import Cell, ModelEntry

WRONG = {
    "missing": "is missing",
    "too_short": "is empty",
    "string_type": "must be a text",
    "model_type": "must be a text or a table",
    "dict_type": "must be a table",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
}
"""What is wrong with a value, by Pydantic's name for it."""
Options = dict[str, bool | int | float | str | tuple[str, ...]]


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Selection(_Table):
    """Cells by patterns of the model's and the target's name, as the shell writes them: `*`, `?`, `[ab]`."""

    model: str = "*"
    target: str = "*"

    def holds(self, model: str, target: str) -> bool:
        """Whether a cell is one of them."""
        return fnmatchcase(model, self.model) and fnmatchcase(target, self.target)


class Addition(_Table):
    """One more cell: a model of the file and any target, with options of its own."""

    model: str
    target: str
    options: Options = {}


def _as_entry(value: Any) -> Any:
    return {"model": value} if isinstance(value, str) else value


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, dict) else value


class MatrixFile(_Table):
    """What the file may say.

    Attributes:
        models: By the name that the build and the row of the report get; MODEL as `edgekit export` takes it, or a
            table.
        targets: Names and groups: the columns.
        options: By target: one set of options, or a list of sets, each of which makes a column of its own. What is
            made from the target gets the first set.
        places: Further places in which every cell is judged.
        budget: What artifacts may cost, as `edgekit export --budget` takes it.
        exclude: Cells to leave out.
        include: Cells to add.
    """

    models: dict[str, Annotated[ModelEntry, BeforeValidator(_as_entry)]] = Field(min_length=1)
    targets: tuple[str, ...] = ()
    options: dict[str, Annotated[tuple[Options, ...], BeforeValidator(_as_list), Field(min_length=1)]] = {}
    places: tuple[str, ...] = ()
    budget: tuple[str, ...] = ()
    exclude: tuple[Selection, ...] = ()
    include: tuple[Addition, ...] = ()


def read_file(path: Path) -> MatrixFile:
    """Read a matrix's file; its names are checked by `cells_of`.

    Raises:
        UsageError: If it cannot be read, is not TOML, or has a wrong key or type.
    """
    try:
        return MatrixFile.model_validate(tomllib.loads(path.read_text()))
    except OSError as error:
        raise UsageError(f"cannot read '{path}' ({error.strerror}): name the TOML file of a matrix") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"'{path}' is not TOML: {error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where, known = ".".join(map(str, first["loc"])), _keys_beside(first["loc"])
        if first["type"] != "extra_forbidden":
            wrong = WRONG.get(first["type"], f"is wrong: {first['msg']}")
            raise UsageError(f"'{path}': {where} {wrong}") from error
        meant = suggestion(str(first["loc"][-1]), known)
        raise UsageError(f"'{path}': no key '{where}': {meant}possible are {', '.join(known)}") from error


def _keys_beside(where: tuple[int | str, ...]) -> list[str]:
    tables: dict[str | int, type[BaseModel]] = {"models": ModelEntry, "exclude": Selection, "include": Addition}
    return list((MatrixFile if len(where) == 1 else tables[where[0]]).model_fields)


def cells_of(file: MatrixFile) -> tuple[Cell, ...]:
    """The cells, by model and then by target; of a model's cells a source comes before what is made from it.

    Raises:
        EdgekitError: For a model, target, option, place or budget that is not possible, or a library that is missing.
    """
    targets, _ = registry.loadable()
    for place in file.places:
        further_place(place)
    allowed_budgets(file.budget, targets)
    for name, entry in file.models.items():
        _check_model(name, entry)
    columns = list(_columns(file, targets))
    _check_selections(file, [target for target, _ in columns])
    cells: list[Cell] = []
    for name in file.models:
        for target, options in (*columns, *((a.target, a.options) for a in file.include if a.model == name)):
            added = any(a.model == name and (a.target, a.options) == (target, options) for a in file.include)
            if added or not any(one.holds(name, target) for one in file.exclude):
                cells.append(_cell(file, name, target, options, targets))
    if twice := [name for name, count in Counter(cell.name for cell in cells).items() if count > 1]:
        raise UsageError(f"'{twice[0]}' is asked for twice: remove one of its sets of options or additions")
    if not cells:
        if columns:
            raise UsageError("the matrix has no cell: its [[exclude]] leave all of them out")
        raise UsageError("the matrix has no cell: name targets, for example targets = ['onnx', 'onnx-fp16']")
    return tuple(cells)


def _columns(file: MatrixFile, targets: dict[str, Target]) -> Iterator[tuple[str, Options]]:
    """Each target with each of its sets of options; sources before what is made from them."""
    chosen = registry.select_targets(file.targets, targets)
    registry.select_targets(file.options, targets)
    asked = {*chosen, *(addition.target for addition in file.include)}
    needed = {*registry.ordered(tuple(asked & set(targets)), targets)}
    if unused := [name for name in file.options if name not in needed]:
        raise UsageError(f"options for '{unused[0]}', which is no target of the matrix: add it, or remove them")
    for target in registry.ordered(chosen, targets):
        if target in chosen:
            yield from ((target, options) for options in file.options.get(target, ({},)))


def _check_model(name: str, entry: ModelEntry) -> None:
    check_name(name)
    try:
        check_model(entry.model)
    except EdgekitError as error:
        raise UsageError(f"models.{name}: {error}") from error
    if entry.weights and not Path(entry.weights).is_file():
        raise UsageError(f"models.{name}: no file of weights '{entry.weights}'")
    if gone := next((folder for folder in (entry.data, entry.calibration) if folder and not Path(folder).is_dir()), ""):
        raise UsageError(f"models.{name}: there is no folder '{gone}'")
    try:
        words_of(entry.axes, entry.inputs, entry.outputs)
        if entry.metric:
            metrics.named(entry.metric)
    except EdgekitError as error:
        raise UsageError(f"models.{name}: {error}") from error


def _check_selections(file: MatrixFile, columns: list[str]) -> None:
    for one in file.exclude:
        if not any(one.holds(model, target) for model in file.models for target in columns):
            raise UsageError(f"exclude of model '{one.model}', target '{one.target}' leaves no cell out: remove it")
    for addition in file.include:
        if addition.model not in file.models:
            meant = suggestion(addition.model, file.models)
            raise UsageError(f"include of '{addition.model}', no model of the file: {meant}add it to [models]")


def _cell(file: MatrixFile, name: str, target: str, own: Options, targets: dict[str, Target]) -> Cell:
    """A cell with the options of all that it makes on its way, which are checked with it."""
    order, _, _ = planned(targets, (target,), {target: own})
    first = {source: file.options[source][0] for source in order if source != target and source in file.options}
    options = {source: given for source, given in (first | {target: own}).items() if given}
    planned(targets, (target,), options)
    sources = tuple(source for source in order if source != target)
    return Cell(name, file.models[name], target, options, file.places, file.budget, sources)
