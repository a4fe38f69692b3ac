"""Two files on the same inputs: how far their outputs differ, where they first do, their speed in turn and their size.

There is no reference and no verdict: neither file counts as right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.artifact.result import Ratio
from edgekit.errors import UsageError
from edgekit.evaluate.timing import SECONDS, measure
from edgekit.hosts import process
from edgekit.judge.budget import ratio
from edgekit.model.overrides import Given, words_of
from edgekit.model.sources import resolve_model
from edgekit.model.sources.onnx import external_file, read_graph
from edgekit.model.spec import Array, Input, ModelSpec
from edgekit.reference.dataset import read_folder
from edgekit.runtime.ort import open_with_taps
from edgekit.runtime.protocol import FileRuntime, FileTensor
from edgekit.storage.files import require_folder, write_text
from edgekit.storage.host_errors import as_sentences
from edgekit_check import files
from edgekit_check.matching import ModelTensor, Pair, pair_tensors, parse_words
from edgekit_check.target import CheckedRuntime, NameMap

ROWS = 16
"""Random inputs, if there are no real ones; also the largest number of real ones."""
DESCRIBED = (".onnx", ".pt2")
"""Formats that describe their inputs with ranges and axes, as `edgekit export` takes them."""
DIFFERS = 1e-3
"""Share of a tensor's peak from which a layer counts as different."""


@dataclass(frozen=True)
class OutputDifference:
    """The difference of one output.

    Attributes:
        name: Its name in the first file.
        largest: Largest absolute difference.
        relative: That, over the largest magnitude in the first file.
        row: Number of the input with it.
        same_largest: Share of vectors along the last axis whose largest entry is the same one; None for a single entry.
    """

    name: str
    largest: float
    relative: float
    row: int
    same_largest: float | None


@dataclass(frozen=True)
class Comparison:
    """The comparison of two files.

    Attributes:
        first: Name of the first file.
        second: Name of the second file.
        sizes: Their sizes in bytes.
        devices: The runtimes that ran them.
        rows: Number of inputs.
        real: True if these are real ones.
        outputs: The difference of each output.
        layers: Inner tensors of the same name in both graphs, in order, with their relative differences.
        speed: Speed of the second file as a multiple of the first's; None if it was not measured.
        notes: Assumptions, one sentence each.
    """

    first: str
    second: str
    sizes: tuple[int, int]
    devices: tuple[str, str]
    rows: int
    real: bool
    outputs: tuple[OutputDifference, ...]
    layers: tuple[tuple[str, float], ...] = ()
    speed: Ratio | None = None
    notes: tuple[str, ...] = ()

    @property
    def worst(self) -> float:
        """Largest relative difference of an output."""
        return max((output.relative for output in self.outputs), default=0.0)

    @property
    def first_layer(self) -> tuple[str, float] | None:
        """The first inner tensor that differs by more than DIFFERS of its peak; None if none does."""
        return next((layer for layer in self.layers if not layer[1] <= DIFFERS), None)

    def as_record(self) -> dict[str, Any]:
        """Return the record that `--json` prints."""
        speed = None if self.speed is None else self.speed.model_dump(mode="json")
        return {
            **asdict(replace(self, speed=None)),
            "speed": speed,
            "worst": self.worst,
            "first_layer": self.first_layer,
        }


@as_sentences()
def compare(
    first: str | Path,
    second: str | Path,
    *,
    map: Iterable[str] = (),  # noqa: A002 - the option's name
    axes: Given = None,
    inputs: Given = None,
    data: str | Path | None = None,
    seconds: float = SECONDS,
) -> Comparison:
    """Compare two files of any format on the same inputs.

    Args:
        first: A file, as for `check`.
        second: Another one.
        map: Pairs of names, "second's=first's", as for `check`.
        axes: Open dimensions of the first file, if it is an ONNX file or a program; as for `edgekit.export`.
        inputs: Facts of its inputs, likewise: the range of integers.
        data: Folder of real inputs, as for `edgekit.export`; without it inputs are random.
        seconds: Least seconds for which each file is timed; 0 for none.

    Raises:
        EdgekitError: If a file cannot be opened or run, or inputs or outputs cannot be paired.
    """
    paths = files.find_file(Path(first)), files.find_file(Path(second))
    words = tuple(map)
    parse_words(words)
    request = {
        "first": str(paths[0]), "second": str(paths[1]), "words": words, "axes": axes, "inputs": inputs,
        "data": None if data is None else str(data), "seconds": seconds,
    }  # fmt: skip
    # In a worker: a runtime may crash on a file.
    answer: dict[str, Any] = process.call(compare_files, {"request": request})
    outputs = tuple(OutputDifference(**output) for output in answer["outputs"])
    layers = tuple((str(name), float(error)) for name, error in answer["layers"])
    speed = None if answer["speed"] is None else Ratio.model_validate(answer["speed"])
    sizes = [sum(file.stat().st_size for file in files.files_of(path)) for path in paths]
    return Comparison(
        first=str(first), second=str(second), sizes=(sizes[0], sizes[1]), devices=tuple(answer["devices"]),
        rows=answer["rows"], real=data is not None, outputs=outputs, layers=layers, speed=speed,
        notes=tuple(answer["notes"]),
    )  # fmt: skip


def compare_files(request: Mapping[str, Any], progress: process.Progress) -> dict[str, Any]:
    """Compare two files in this worker process, as `compare` does; return the fields of `Comparison` as plain data."""
    first, second = Path(request["first"]), Path(request["second"])
    with ExitStack() as stack:
        left = stack.enter_context(closing(files.open_file(first)))
        right = stack.enter_context(closing(files.open_file(second)))
        spec = _spec_of(first, left, request["axes"], request["inputs"])
        rows = _rows_of(spec, request["data"])
        words = parse_words(request["words"])
        # The first file has the description's names, or those of its own tensors by position.
        own = [ModelTensor(i.name, i.dtype, i.shape, i.low, i.high) for i in spec.inputs]
        plain = CheckedRuntime(left, _identity(left, own))
        answers = [plain.run(row) for row in rows]
        outputs = [
            ModelTensor(name, array.dtype.name, ("batch", *array.shape[1:]) if array.ndim else ())
            for name, array in answers[0].items()
        ]
        inputs = pair_tensors("input", right.inputs(), own, words, True)
        output_pairs = pair_tensors("output", right.outputs(), outputs, words, False)
        other = CheckedRuntime(
            right,
            NameMap(
                file=second.name,
                inputs=tuple(inputs.pairs),
                outputs=tuple(output_pairs.pairs),
                constants=tuple(inputs.constants),
            ),
        )
        other_answers = [other.run(row) for row in rows]
        speed = None
        if request["seconds"]:
            times = measure({"first": plain, "second": other}, rows[0], seconds=request["seconds"])
            speed = ratio(times, "first", "second").model_dump(mode="json")
        devices = [left.device, right.device]
    both = first.suffix == second.suffix == ".onnx"
    return {
        "outputs": [
            asdict(_difference(name, answers, other_answers)) for name in answers[0] if name in other_answers[0]
        ],
        "layers": _layers(first, second, rows[0]) if both and len(rows) else [],
        "speed": speed,
        "devices": devices,
        "rows": len(rows),
        "notes": [note.replace("the model's", "the first file's") for note in (*inputs.notes, *output_pairs.notes)],
    }


def _spec_of(path: Path, opened: FileRuntime, axes: Given, inputs: Given) -> ModelSpec:
    """Return what is known of a file's inputs: the model of an ONNX file or a program, else its own declaration.

    Raises:
        UsageError: If it declares no inputs, or their sizes are open.
    """
    import torch

    if path.suffix in DESCRIBED:
        return resolve_model(str(path), words_of(axes, inputs, None))
    tensors = opened.inputs()
    if tensors is None or any(tensor.shape is None for tensor in tensors):
        raise UsageError(f"'{path.name}' declares no inputs. Name an ONNX file or a program first")
    declared = []
    for tensor in tensors:
        sizes = tuple(size if isinstance(size, int) else 1 for size in tensor.shape or ())
        declared.append(Input(tensor.name, sizes, dtype=tensor.dtype, high=255.0 if tensor.dtype == "uint8" else 1.0))
    return ModelSpec(path.stem, torch.nn.Identity(), tuple(declared), ())


def _rows_of(spec: ModelSpec, data: str | None) -> list[dict[str, Array]]:
    """Return inputs, one row each: real ones from a folder, else random and constant ones."""
    if data is None:
        return [
            *(spec.random(seed) for seed in range(ROWS)),
            *(spec.constant_inputs(share) for share in (0.0, 0.5, 1.0)),
        ]
    real = read_folder(spec, Path(data))
    return [{n: a[row : row + 1] for n, a in real.inputs.items()} for row in range(min(len(real.names), ROWS))]


def _identity(opened: FileRuntime, own: Sequence[ModelTensor]) -> NameMap:
    """Return a file's names as they are; inputs are the description's by position, since those may be cleaned names."""
    file_inputs = opened.inputs() or tuple(FileTensor(str(number), i.dtype) for number, i in enumerate(own))
    inputs = [Pair(file_name=t.name, model_name=i.name, dtype=t.dtype) for t, i in zip(file_inputs, own, strict=True)]
    outputs = [Pair(file_name=t.name, model_name=t.name, dtype=t.dtype) for t in opened.outputs() or ()]
    return NameMap(file="", inputs=tuple(inputs), outputs=tuple(outputs))


def _difference(
    name: str, answers: Sequence[Mapping[str, Array]], other_answers: Sequence[Mapping[str, Array]]
) -> OutputDifference:
    pairs = [
        (a[name].astype(np.float64), b[name].astype(np.float64)) for a, b in zip(answers, other_answers, strict=True)
    ]
    errors = [float(np.max(np.abs(a - b), initial=0.0)) for a, b in pairs]
    peak = max(float(np.max(np.abs(a), initial=0.0)) for a, _ in pairs)
    # NaN in one of the files is the largest difference.
    errors = [error if np.isfinite(error) else np.inf for error in errors]
    row, largest = int(np.argmax(errors)), max(errors)
    same = [np.mean(a.argmax(-1) == b.argmax(-1)) for a, b in pairs if a.ndim and a.shape[-1] > 1]
    relative = largest / peak if peak else (np.inf if largest else 0.0)
    return OutputDifference(name, largest, relative, row, float(np.mean(same)) if same else None)


def _layers(first: Path, second: Path, row: Mapping[str, Array]) -> list[tuple[str, float]]:
    """Return the inner tensors of the same name in two ONNX graphs, in order, with their relative differences."""
    graphs = [read_graph(path, external_file(path)) for path in (first, second)]
    names = [[name for node in graph.graph.node for name in node.output if name] for graph in graphs]
    shared = [name for name in names[0] if name in set(names[1])]
    values = []
    for graph in graphs:
        with closing(open_with_taps(graph, shared)) as runtime:
            feed = dict(zip(runtime.names()[0], row.values(), strict=True))
            values.append(runtime.run(feed))
    layers = []
    for name in shared:
        a, b = values[0][name], values[1][name]
        if a.shape == b.shape and a.dtype.kind == b.dtype.kind == "f" and a.size:
            peak = float(np.abs(a).max())
            layers.append((name, float(np.abs(a - b).max()) / peak if peak else 0.0))
    return layers


def lines(comparison: Comparison) -> Iterator[str]:
    """Yield the comparison as sentences, the same for the terminal and the page."""
    kind = "real" if comparison.real else "random and constant"
    yield f"{comparison.rows} {kind} inputs"
    for output in comparison.outputs:
        same = "" if output.same_largest is None else f"; its largest entry is the same in {output.same_largest:.1%}"
        size = f"{output.largest:.3g}, {output.relative:.3g} of its peak"
        yield f"output '{output.name}' differs by up to {size}, in input {output.row}{same}"
    left, right = comparison.sizes
    yield f"size: {left:,} bytes and {right:,} bytes, {right / left:.2f} times"
    if comparison.speed is not None:
        speed = comparison.speed
        text = "too noisy to say" if speed.noisy else f"{speed.value:.2f} times as fast"
        interval = f"95 % interval {speed.low:.2f} to {speed.high:.2f}"
        yield f"speed of the second file, in turn with the first: {text} ({interval})"
    if comparison.first_layer is not None:
        name, error = comparison.first_layer
        yield f"the graphs first differ at '{name}': {error:.2g} of its peak"
    elif comparison.layers:
        yield f"none of {len(comparison.layers)} inner tensors of the same name differs by over {DIFFERS:g} of its peak"
    yield from comparison.notes


def write_page(comparison: Comparison, path: Path) -> None:
    """Write the comparison as a page, with the inner tensors."""
    from jinja2 import Environment, FileSystemLoader

    jinja = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True)
    page = jinja.get_template("compare.html.jinja").render(
        comparison=comparison, lines=[*lines(comparison)], differs=DIFFERS
    )
    require_folder(path.parent, "pages are written")
    write_text(path, page)
