"""One cell of a matrix: a model, a target and its options, and the `edgekit export` that makes it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import util
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from edgekit import registry
from edgekit.artifact.option import OptionValue, as_text
from edgekit.pipeline.request import Criteria, EvaluationData, ExportRequest, ModelFacts
from edgekit.storage.files import digest_file, digest_text, dump_json

FACTS = {"axes", "inputs", "outputs", "weights", "ema", "author", "licence"}
DATA = {"data", "metric", "calibration"}
"""Fields of a model in a matrix file, by the record of a request that they belong to."""


class ModelEntry(BaseModel):
    """One model of a matrix.

    Attributes:
        model: MODEL as `edgekit export` takes it.
        weights: A file of weights to load into it.
        ema: Whether the file's averaged weights are loaded.
        author: Of the weights.
        licence: SPDX name of the weights' licence.
        axes: Which dimensions vary, as `edgekit export --axes` takes it; a list of such texts.
        inputs: What is known of its inputs, likewise.
        outputs: What is known of its outputs, likewise.
        data: Folder of real inputs to judge on.
        metric: Of data with labels.
        calibration: Folder of other real inputs, from which INT8 gets its ranges.
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


@dataclass(frozen=True)
class Cell:
    """One model, one target, one set of options.

    Attributes:
        model: The model's name in the matrix, and that of its build folder.
        entry: The model.
        target: The target's name.
        options: By target: its own, and those of what it is made from.
        places: Further places to judge in.
        budget: What the artifact may cost.
        sources: Other targets that are made on the way to it.
    """

    model: str
    entry: ModelEntry
    target: str
    options: Mapping[str, Mapping[str, OptionValue]]
    places: Sequence[str] = ()
    budget: Sequence[str] = ()
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
        """Its folder in the matrix's own, with the build, the log and the record."""
        plain = re.sub(r"[^\w.=,-]", "_", self.column.replace(" ", ","))
        exact = plain == self.column.replace(" ", ",") and len(plain) < 100
        return f"cells/{self.model}/{plain if exact else f'{plain[:80]}-{digest_text(self.column)[:8]}'}"

    @property
    def arguments(self) -> tuple[str, ...]:
        """What `edgekit export` is given, but for the folder."""
        entry = self.entry
        request = ExportRequest(
            model=entry.model,
            targets=(self.target,),
            options=self.options,
            facts=ModelFacts(name=self.model, **entry.model_dump(include=FACTS)),
            data=EvaluationData(**entry.model_dump(include=DATA)),
            criteria=Criteria(self.places, budget=self.budget),
        )
        return tuple(request.words[1:])

    def follows(self, earlier: Sequence[Cell]) -> Cell | None:
        """Which of the earlier cells of a matrix its build begins with: that of its source, else its model's first."""
        same = [cell for cell in earlier if cell.model == self.model]
        for source in reversed(self.sources):
            options = {name: given for name, given in self.options.items() if name != self.target}
            for cell in same:
                if cell.target == source and cell.options == {n: options[n] for n in cell.made if n in options}:
                    return cell
        return same[0] if same else None

    @property
    def made(self) -> tuple[str, ...]:
        """The targets that its build holds."""
        return (*self.sources, self.target)

    @property
    def key(self) -> str:
        """sha256 of what the cell is made of: arguments, files and code of the model, code and libraries of edgekit.

        Of a factory the file counts that defines it; what that file imports does not.
        """
        entry = self.entry
        files = [_content(path) for path in (entry.model, entry.weights, entry.data, entry.calibration)]
        made_of = [list(self.arguments), files, _made_by(self.target)]
        return digest_text(dump_json(made_of))


@cache
def _made_by(target: str) -> list[object]:
    """The code and the libraries that make a target's artifacts."""
    declared = registry.find(target)
    return [registry.code_digest(declared), registry.versions(declared)]


@cache
def _content(path: str) -> str:
    """The hash of a file, of a folder's files, or of the file that defines a factory; empty for any other name."""
    path = path.partition(":")[2] if path.startswith(("transformers:", "timm:")) else path
    if path and Path(path).is_dir():
        files = sorted(file for file in Path(path).rglob("*") if file.is_file())
        return digest_text("\n".join(f"{file.relative_to(path)} {digest_file(file)}" for file in files))
    if ":" in path:
        found = util.find_spec(path.partition(":")[0])
        path = found.origin or "" if found is not None else ""
    return digest_file(Path(path)) if path and Path(path).is_file() else ""
