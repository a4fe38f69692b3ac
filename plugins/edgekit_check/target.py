"""The target of `edgekit check`: its artifact is a copy of a file that another tool made, with a record of its names.

It is in no list and no group: only `check` selects it. Everything else is as for edgekit's own artifacts.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict

from edgekit.errors import UsageError
from edgekit.model.folder import load_model
from edgekit.model.overrides import BATCH
from edgekit.model.shapes import fixed_sizes
from edgekit.model.spec import Array, ModelSpec, axes_in
from edgekit.runtime.eager import EagerRuntime
from edgekit.runtime.protocol import FileRuntime, FileTensor, Runtime
from edgekit.storage.files import dump_json, load_json
from edgekit.target import FP16, FP32_DELEGATED, INT8, ExportResult, Job, Option, Place, Target, TargetDescription
from edgekit_check import files
from edgekit_check.matching import Constant, ModelTensor, Pair, pair_tensors, parse_words

NAME = "checked-file"
FILE = Option[Path | None](name="file", default=None, help="the file to judge")
MAP = Option[str](name="map", default="", help="pairs of names, separated by semicolons")
PRECISION = Option[str](
    name="precision", default="auto", help="whose limits apply", choices=("auto", "fp32", "fp16", "int8")
)
MAPPING = "mapping.json"


class NameMap(BaseModel):
    """Record of a file's names.

    Attributes:
        file: The file, in the artifact.
        inputs: Its inputs.
        outputs: Its outputs that the model has.
        rows: Number of rows that it takes in each run; 0 if it takes any.
        batched: The model's inputs with a row for each image.
        constants: Inputs of the file that the model does not have.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str
    inputs: tuple[Pair, ...]
    outputs: tuple[Pair, ...]
    rows: int = 0
    batched: tuple[str, ...] = ()
    constants: tuple[Constant, ...] = ()


def export(source: Path, out: Path, job: Job) -> ExportResult:
    """Copy the file, pair its names with the model's, and see which of the model's axes it leaves open.

    Raises:
        UsageError: If a name or a size does not fit, with the option that says it.
        EdgekitError: If the file cannot be opened here.
    """
    spec = load_model(job.model)
    if (file := job.get(FILE)) is None:
        raise UsageError(f"'{NAME}' needs a file. Use `edgekit check FILE --against MODEL`")
    path, words = files.copy_model(file, out), parse_words(filter(None, job.get(MAP).split(";")))
    job.progress(0.3, "opening the file")
    with closing(files.open_file(path)) as opened:
        theirs_in, theirs_out = opened.inputs(), opened.outputs()
        ours_in = [ModelTensor(i.name, i.dtype, i.shape, i.low, i.high) for i in spec.inputs]
        names = {tensor.name for tensor in (*(theirs_in or ()), *(theirs_out or ()))}
        if unknown := [name for name in words if names and name not in names]:
            raise UsageError(
                f"--map names '{unknown[0]}', which the file does not have. It has {', '.join(sorted(names))}"
            )
        inputs = pair_tensors("input", theirs_in, ours_in, words, True)
        with closing(EagerRuntime(spec)) as model:
            answers = model.run(spec.random(0))
        ours_out = [ModelTensor(o.name, o.dtype, _observed(answers[o.name], o.axes)) for o in spec.outputs]
        outputs = pair_tensors("output", theirs_out, ours_out, words, False)
        fixed, rows = _fixed_sizes(spec, inputs.pairs, theirs_in)
        batched = tuple(i.name for i in spec.inputs if i.shape[:1] == (BATCH,))
        names_map = NameMap(
            file=path.name, inputs=tuple(inputs.pairs), outputs=tuple(outputs.pairs), rows=rows, batched=batched,
            constants=tuple(inputs.constants),
        )  # fmt: skip
        if theirs_in is None:
            fixed |= _refused_sizes(spec, CheckedRuntime(opened, names_map))
    (out / MAPPING).write_text(dump_json(names_map.model_dump(mode="json")))
    detected, notes = files.precision_of(path), [*inputs.notes, *outputs.notes]
    if detected == "fp32" and any(np.dtype(pair.dtype).kind in "iu" and pair.span for pair in inputs.pairs):
        detected = "fp16"
        notes.append("the limits of fp16 apply, since its inputs are rounded to whole numbers")
    precision = detected if job.get(PRECISION) == "auto" else job.get(PRECISION)
    notes += [f"it takes {rows} rows in each run; shorter batches are filled with rows of earlier runs"] if rows else []
    if precision != detected:
        notes.append(f"judged by the limits of {precision}, as you asked, not by those of {detected}")
    return ExportResult(
        precision=precision,  # type: ignore[arg-type]  # one of the choices
        entry=path.name,
        dynamic=tuple(name for name in spec.axes if name not in fixed),
        sizes=_sizes(spec, fixed, path),
        notes=tuple(notes),
    )


class CheckedRuntime:
    """A file with the model's names, layouts and ranges."""

    def __init__(self, runtime: FileRuntime, names_map: NameMap) -> None:
        self._runtime, self._map = runtime, names_map
        # The rows of earlier runs, by input: they fill a batch, so that each place of it holds other rows in turn.
        self._earlier: dict[str, list[Array]] = {name: [] for name in names_map.batched}
        self._first = 0

    @property
    def device(self) -> str:
        """Description of the file's runtime."""
        return self._runtime.device

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run one batch, filled up to the file's number of rows with rows of earlier runs, at each place in turn."""
        arrays, most, places = dict(inputs), self._map.rows, np.arange(0)
        for name in self._map.batched if most else ():
            count = len(inputs[name])
            if count > most:
                raise UsageError(f"the file takes {most} rows in each run, not {count}")
            places = (self._first + np.arange(count)) % most
            earlier = [row for row in self._earlier[name] if row.shape == inputs[name][0].shape]
            filling = (earlier or [inputs[name][0]]) * most
            arrays[name] = np.stack(filling[:most])
            arrays[name][places] = inputs[name]
            self._earlier[name] = [*inputs[name], *earlier][: most - 1]
        self._first += 1
        feed = {pair.file_name: pair.to_file(arrays[pair.model_name]) for pair in self._map.inputs}
        for constant in self._map.constants:
            shape = feed[constant.like].shape if constant.like else constant.shape
            feed[constant.file_name] = np.full(shape, constant.value, constant.dtype)
        answers = self._runtime.run(feed)
        rows = {pair.model_name: pair.to_model(answers[pair.file_name]) for pair in self._map.outputs}
        return {n: a[places] if len(places) and a.ndim and len(a) == most else a for n, a in rows.items()}

    def close(self) -> None:
        """Close the file."""
        self._runtime.close()


def load(artifact: Path, place: Place) -> Runtime:
    """Open the file in its format's own runtime."""
    names_map = NameMap.model_validate(load_json((artifact / MAPPING).read_bytes()))
    return CheckedRuntime(files.open_file(artifact / names_map.file), names_map)


def _observed(answer: Array, axes: tuple[str, ...]) -> tuple[int | str, ...]:
    """Return the shape of an output at default sizes; the batch and axes that may vary are left open."""
    return tuple(
        BATCH if axes[i : i + 1] == (BATCH,) or (i == 0 and not axes) else size for i, size in enumerate(answer.shape)
    )


def _fixed_sizes(
    spec: ModelSpec, pairs: list[Pair], tensors: tuple[FileTensor, ...] | None
) -> tuple[dict[str, int], int]:
    """Return the axes that the file fixes, with their sizes, and the rows of each run if it fixes more than one.

    Raises:
        UsageError: If two inputs fix one axis at different sizes.
    """
    shapes = {i.name: i.shape for i in spec.inputs}
    declared = {tensor.name: tensor.shape for tensor in tensors or ()}
    fixed: dict[str, int] = {}
    for pair in pairs:
        own, file_sizes = shapes[pair.model_name], declared.get(pair.file_name)
        if file_sizes is None:
            continue
        own = tuple(own[i] for i in pair.order) if pair.order else own
        for our, their in zip(own, file_sizes, strict=True):
            axes = axes_in(our)
            if not isinstance(their, int) or not axes:
                continue
            # The terms of a sum are fixed at their defaults.
            sizes = {axes[0]: their} if our == axes[0] else {axis: spec.axes[axis].default for axis in axes}
            for axis, size in sizes.items():
                if fixed.setdefault(axis, size) != size:
                    raise UsageError(
                        f"the file takes the axis '{axis}' as {fixed[axis]} in one input and {size} in another"
                    )
    rows = fixed.get(BATCH, 0)
    if rows > 1:
        fixed[BATCH] = spec.axes[BATCH].default
    return fixed, rows if rows > 1 else 0


def _refused_sizes(spec: ModelSpec, runtime: CheckedRuntime) -> dict[str, int]:
    """Return the axes at whose other sizes a file that declares no sizes fails, with their defaults."""
    fixed = {}
    for name, axis in spec.axes.items():
        other = next((size for size in axis.sizes if size > axis.default), axis.sizes[0])
        try:
            runtime.run(spec.random(0, {name: other}))
        except Exception:  # whatever its runtime raises
            fixed[name] = axis.default
    return fixed


def _sizes(spec: ModelSpec, fixed: Mapping[str, int], path: Path) -> tuple[Mapping[str, int], ...]:
    """Return the sizes that the file is fixed at, if they are not the model's defaults.

    Raises:
        UsageError: If the reference has no outputs at these sizes.
    """
    others = {name: size for name, size in fixed.items() if name != BATCH}
    if all(size == spec.axes[name].default for name, size in others.items()):
        return ()
    if others in fixed_sizes(spec.axes):
        return (others,)
    name, size = next((n, s) for n, s in others.items() if s != spec.axes[n].default)
    raise UsageError(
        f"'{path.name}' takes '{name}' as {size} only, and the model's default is {spec.axes[name].default}. Declare "
        f"that size: --axes INPUT:DIMENSION={name}:MIN..MAX@{size}"
    )


TARGET = Target(
    summary="A file that another tool made",
    about=TargetDescription(
        use_case="files of other tools",
        proved_by="the file's own runtime on this host",
        not_covered="other runtimes and devices",
        audience="none",
    ),
    source="model",
    opt_in=True,
    # A `.pt2` file may hold its author's code.
    runs_code=True,
    export=export,
    load=load,
    places=(Place(name="cpu", tolerance=FP32_DELEGATED, limits={"fp16": FP16, "int8": INT8, "int4": INT8}),),
    options=(FILE, MAP, PRECISION),
)
