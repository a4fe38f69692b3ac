"""One trained network in one process: export, plain tools, the users' metric, size and speed.

    python -m tools.zoo.trained.measure NAME CACHE [NETWORKS]

Speed: all files are opened in this process with one thread. They take turns; a turn is at least TURN seconds of
processor time. A candidate's speed is the median over the rounds of the plain export's processor time over its own.
"""

from __future__ import annotations

import json
import logging
import statistics
import sys
import time
import tomllib
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module, util
from pathlib import Path
from typing import Any

import numpy as np

import edgekit
from edgekit import registry
from edgekit.errors import DependencyError
from edgekit.evaluate.rows import rows_of
from edgekit.model.evaluation_set import calibration_of, evaluation_of
from edgekit.model.sources import resolve_model
from edgekit.model.sources.onnx import file_of
from edgekit.model.spec import Array, EvaluationSet, ModelSpec
from edgekit.storage.files import write_text
from tools.bench.plain import export_plain, reader_of

CATALOGUE = Path(__file__).parents[1] / "trained.toml"
PLAIN, DYNAMIC, STATIC, NNCF = "torch.onnx.export", "ORT dynamic", "ORT static", "NNCF"
TARGETS = ("onnx", "onnx-fp16", "onnx-int8-dynamic", "onnx-int8-static", "openvino-int8", "executorch-int8")
OF_FILES = tuple(name for name in TARGETS if not name.startswith("executorch"))
"""Targets that take an ONNX file."""
SHOWN = 128
"""Calibration samples of the plain tools, as many as edgekit's quick search takes."""
TURN, ROUNDS = 0.04, 15
LINES = "lines.json"
"""Results of a network, in its folder of the cache."""
Run = Callable[[Mapping[str, Array]], list[Array]]
"""Inputs by name -> outputs in order."""


@dataclass(frozen=True)
class Line:
    """One network and one file.

    Attributes:
        tool: A plain tool's name, or edgekit's target.
        status: The verdict; "made" for plain tools; "failed" or "skipped" without a file.
        reason: The first sentence of one that is not verified.
        figure: The users' metric on the held-out data, or None.
        size: Bytes of what an app ships.
        speed: Processor time of the plain export over its own, or None.
        milliseconds: Its processor time a run.
    """

    tool: str
    status: str
    reason: str = ""
    figure: float | None = None
    size: int = 0
    speed: float | None = None
    milliseconds: float | None = None


@dataclass(frozen=True)
class Candidate:
    """A file or an artifact's folder, how it is opened (ONNX Runtime, OpenVINO, or its target's own), and its bytes."""

    runtime: str
    path: Path
    size: int


def catalogue(path: Path = CATALOGUE) -> dict[str, dict[str, Any]]:
    """Return the networks by name, as the TOML file has them."""
    networks: dict[str, dict[str, Any]] = tomllib.loads(path.read_text())
    return networks


def main(name: str, cache: Path, networks: Path = CATALOGUE) -> None:
    """Measure one network, and write LINES into its folder of the cache."""
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    write_lines(cache / name, measure(catalogue(networks)[name], cache / name))


def measure(entry: Mapping[str, Any], folder: Path, targets: tuple[str, ...] = TARGETS) -> list[Line]:
    """Return a line of each plain tool and each target.

    Args:
        entry: The network's table in the TOML file.
        folder: Of the files that are made.
        targets: Of edgekit.
    """
    folder.mkdir(parents=True, exist_ok=True)
    spec = resolve_model(entry["model"])
    if file_of(spec.module) is not None:
        targets = tuple(name for name in targets if name in OF_FILES)
    targets = tuple(name for name in targets if name not in entry.get("without", ()))
    lines, candidates = plain_tools(spec, entry, folder / "plain")
    for line, candidate in exported(entry["model"], targets, folder / "build"):
        lines[line.tool] = line
        if candidate is not None:
            candidates[line.tool] = candidate
    evaluation = evaluation_of(spec)
    assert evaluation is not None
    rows = list(rows_in(spec, evaluation))
    runs: dict[str, Run] = {}
    for tool, candidate in candidates.items():
        try:
            runs[tool] = OPEN[candidate.runtime](spec, candidate.path)
            figure = score(spec, entry, evaluation, [runs[tool](row) for row in rows])
            lines[tool] = Line(**{**asdict(lines[tool]), "figure": figure, "size": candidate.size})
        # Plain tools write files that their own runtime refuses.
        except Exception as error:
            runs.pop(tool, None)
            lines[tool] = Line(tool, "failed", f"it does not run: {first_line(error)}")
    if PLAIN not in runs:
        raise SystemExit(f"'{spec.name}': the plain file fails, so that nothing can be compared: {lines[PLAIN].reason}")
    times = processor_times(runs, rows)
    for tool, seconds in times.items():
        speed = statistics.median(a / b for a, b in zip(times[PLAIN], seconds, strict=True))
        facts = {"speed": speed, "milliseconds": 1e3 * statistics.median(seconds)}
        lines[tool] = Line(**{**asdict(lines[tool]), **facts})
    return list(lines.values())


def exported(model: str, targets: tuple[str, ...], output: Path) -> Iterator[tuple[Line, Candidate | None]]:
    """Export a model, and yield each target's line and file."""
    installed = []
    for target in targets:
        try:
            registry.require(target, registry.find(target))
            installed.append(target)
        except DependencyError as error:
            yield Line(target, "skipped", first_line(error)), None
    # Without a name, edgekit would export to all targets.
    if not installed:
        return
    build = edgekit.export(model, targets=installed, output=output, progress="lines")
    for target in installed:
        outcome = build[target]
        if outcome.manifest is None:
            yield Line(target, outcome.status, first_line(outcome.error)), None
            continue
        result = outcome.result
        reasons = [reason for place in result.places for reason in place.reasons] if result is not None else []
        entry = outcome.path / outcome.manifest.entry
        runtime = {".onnx": "ort", ".xml": "openvino"}.get(entry.suffix, "own")
        line = Line(target, outcome.status, first_line(reasons[0]) if reasons else "")
        size = result.size if result is not None else 0
        yield line, Candidate(runtime, outcome.path if runtime == "own" else entry, size)


def plain_tools(
    spec: ModelSpec, entry: Mapping[str, Any], folder: Path
) -> tuple[dict[str, Line], dict[str, Candidate]]:
    """Quantize a model as a user would without edgekit; a tool that fails or is not installed has a line for that."""
    folder.mkdir(parents=True, exist_ok=True)
    fp32 = folder / "fp32.onnx"
    if not fp32.is_file():
        file = file_of(spec.module)
        fp32.write_bytes(file.read_bytes()) if file is not None else export_plain(spec, fp32)
    lines, candidates = {PLAIN: Line(PLAIN, "made")}, {PLAIN: Candidate("ort", fp32, fp32.stat().st_size)}
    samples = calibration_of(spec, SHOWN)
    assert samples is not None
    rows = [row for _, row in zip(range(SHOWN), rows_in(spec, samples), strict=False)]
    ways: dict[str, tuple[str, Callable[[], Path]]] = {
        DYNAMIC: ("ort", partial(_ort_dynamic, fp32, folder / "dynamic.onnx")),
        STATIC: ("ort", partial(_ort_static, fp32, folder / "static.onnx", rows)),
        NNCF: ("openvino", partial(_nncf, fp32, folder / "nncf.xml", rows, entry.get("transformer", False))),
    }
    for tool, (runtime, make) in ways.items():
        if tool == NNCF and util.find_spec("nncf") is None:
            lines[tool] = Line(tool, "skipped", "NNCF is not installed: pip install -e '.[nncf]'")
            continue
        try:
            path = make()
            # With weights beside it.
            size = sum(file.stat().st_size for file in folder.glob(f"{path.stem}.*"))
            candidates[tool] = Candidate(runtime, path, size)
            lines[tool] = Line(tool, "made")
        # Any error of another project's tool.
        except Exception as error:
            lines[tool] = Line(tool, "failed", first_line(error))
    return lines, candidates


def rows_in(spec: ModelSpec, samples: EvaluationSet) -> Iterator[dict[str, Array]]:
    """Yield the inputs of one run each; of a state, whose first axis is not the batch, several entries."""
    count = len(samples.names)
    for number in range(count):
        row = {}
        for i in spec.inputs:
            values, step = samples.inputs[i.name], len(samples.inputs[i.name]) // count
            row[i.name] = values[number * step : (number + 1) * step] if i.shape else np.asarray(values[number])
        yield row


def score(spec: ModelSpec, entry: Mapping[str, Any], evaluation: EvaluationSet, answers: list[list[Array]]) -> float:
    """Return the users' metric: `score` of the TOML file over all rows, else the mean of the model's own."""
    names = [output.name for output in spec.outputs]
    axes = {o.name: o.axes.index("batch") if "batch" in o.axes else 1 if o.role == "state" else 0 for o in spec.outputs}
    outputs = rows_of([(1, dict(zip(names, answer, strict=True))) for answer in answers], axes)
    if "score" in entry:
        module, _, function = entry["score"].partition(":")
        return float(getattr(import_module(module), function)(outputs, evaluation.truth))
    assert evaluation.metric is not None
    return float(np.mean(evaluation.metric(outputs, np.asarray(evaluation.truth))))


def processor_times(runs: Mapping[str, Run], rows: list[dict[str, Array]]) -> dict[str, list[float]]:
    """Return the seconds of processor time a run of each file, a number a round; every other round goes backwards."""
    counts: dict[str, int] = {}
    for tool, run in runs.items():
        began = time.process_time()
        for row in (rows * 10)[:10]:
            run(row)
        counts[tool] = max(int(TURN / max((time.process_time() - began) / 10, 1e-6)), 1)
    times: dict[str, list[float]] = {tool: [] for tool in runs}
    for number in range(ROUNDS):
        for tool in list(runs)[:: 1 if number % 2 else -1]:
            runs[tool](rows[0])
            began = time.process_time()
            for turn in range(counts[tool]):
                runs[tool](rows[turn % len(rows)])
            times[tool].append((time.process_time() - began) / counts[tool])
    return times


def first_line(error: object) -> str:
    """Return the first line of an error or a reason, without the folders of this machine."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return " ".join(word.rpartition("/")[2] if word.startswith(("/", "'/")) else word for word in lines[0].split())


def write_lines(folder: Path, lines: list[Line]) -> None:
    """Keep a network's lines."""
    write_text(folder / LINES, json.dumps([asdict(line) for line in lines], indent=1) + "\n")


def read_lines(folder: Path) -> list[Line] | None:
    """Return a network's lines; None if it was not measured."""
    with suppress(OSError):
        return [Line(**row) for row in json.loads((folder / LINES).read_text())]
    return None


def _ort_dynamic(fp32: Path, path: Path) -> Path:
    from onnxruntime.quantization import quantize_dynamic

    if not path.is_file():
        quantize_dynamic(_prepared(fp32), path, per_channel=True)
    return path


def _ort_static(fp32: Path, path: Path, rows: list[dict[str, Array]]) -> Path:
    from onnxruntime.quantization import QuantFormat, quantize_static

    if not path.is_file():
        quantize_static(_prepared(fp32), path, reader_of(rows), quant_format=QuantFormat.QDQ, per_channel=True)
    return path


def _prepared(fp32: Path) -> Path:
    """Return the graph after ONNX Runtime's own preparation for its quantizers."""
    import onnx
    from onnxruntime.quantization.shape_inference import quant_pre_process

    path = fp32.with_name("prepared.onnx")
    if not path.is_file():
        bare = onnx.load(fp32)
        # Shapes of inner values that torch.onnx.export writes make the quantizers' files fail to load.
        del bare.graph.value_info[:]
        onnx.save(bare, fp32.with_name("bare.onnx"))
        quant_pre_process(fp32.with_name("bare.onnx"), path, skip_symbolic_shape=True)
    return path


def _nncf(fp32: Path, path: Path, rows: list[dict[str, Array]], transformer: bool) -> Path:
    import nncf
    import openvino

    if not path.is_file():
        model = openvino.Core().read_model(fp32)
        kind = nncf.ModelType.TRANSFORMER if transformer else None
        quantized = nncf.quantize(model, nncf.Dataset(rows), model_type=kind, subset_size=len(rows))
        openvino.save_model(quantized, path, compress_to_fp16=False)
    return path


def _open_ort(spec: ModelSpec, path: Path) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = 1, 1, 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    return lambda row: session.run(None, _feed(row, names))


def _open_openvino(spec: ModelSpec, path: Path) -> Run:
    import openvino

    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1}
    compiled = openvino.Core().compile_model(path, "CPU", settings)
    names = [value.any_name for value in compiled.inputs]
    request = compiled.create_infer_request()

    def run(row: Mapping[str, Array]) -> list[Array]:
        answers = request.infer(_feed(row, names))
        return [np.array(answers[number]) for number in range(len(compiled.outputs))]

    return run


def _open_own(spec: ModelSpec, path: Path) -> Run:
    runtime = edgekit.load(path, trust_build=True)
    return lambda row: list(runtime.run(row).values())


def _feed(row: Mapping[str, Array], names: list[str]) -> dict[str, Array]:
    """Return the inputs under a file's own names; its order is the model's."""
    renamed = dict(zip(names, row.values(), strict=False))
    return {name: row.get(name, renamed[name]) for name in names}


OPEN = {"ort": _open_ort, "openvino": _open_openvino, "own": _open_own}


if __name__ == "__main__":
    main(sys.argv[1], *map(Path, sys.argv[2:]))
