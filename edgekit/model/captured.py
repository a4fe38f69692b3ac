"""A model without a factory (a module from a notebook or from `__main__`) travels as its captured program.

An ONNX file travels as it is.

No worker could import such a module. So its model folder holds `module/`, the graph captured in the process that has
the module, and the evaluation and calibration inputs as arrays; a worker opens these instead. The task metric is a
function and does not travel: it is computed where the module is.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.errors import ModelError
from edgekit.model import onnx_file
from edgekit.model.evaluation_set import evaluation_of
from edgekit.model.folder import WEIGHTS
from edgekit.model.input_rows import runs_of
from edgekit.model.program import Capture, load_program, save_program
from edgekit.model.spec import Array, Axis, Evaluation, Input, ModelSpec, Output
from edgekit.storage.files import digest_file, digest_text

if TYPE_CHECKING:
    import torch

GRAPH = "module"  # folder of the captured program
SETS = {"evaluation": "evaluation.safetensors", "calibration": "calibration.safetensors"}
CALIBRATION = 300  # samples that travel: what a full search asks for


def write_captured(captured: Capture, folder: Path, weights: Path) -> dict[str, Any]:
    """Write what stands for the module's code beside its weights; returns what config.json says of it.

    The graph's text identifies it: two captures of one module differ in their bytes.

    Raises:
        CaptureError: Naming the module's file and line where capture fails, or would fix a size or a branch.
    """
    spec = captured.spec
    if lost := sorted(set(spec.translations) - set(spec.decompositions)):
        raise ModelError(
            f"'{spec.name}' was given in memory, where the translation of '{lost[0]}' cannot follow: put it into a "
            "file and export 'package.module:function', or name a decomposition"
        )
    if (file := onnx_file.file_of(spec.module)) is not None:
        shutil.copyfile(file, folder / onnx_file.FILE)
        identity = digest_file(file)
    else:
        program = captured.program()
        save_program(program, folder / GRAPH, "", weights)
        identity = digest_text(program.exported.graph_module.print_readable(print_output=False))
    sets = {
        "evaluation": evaluation_of(spec),
        "calibration": spec.calibration(CALIBRATION) if spec.calibration is not None else None,
    }
    for name, found in sets.items():
        if found is not None:
            _write_set(found, folder / SETS[name])
    return {
        "graph_sha256": identity,
        "sets": {name: _described(found) for name, found in sets.items() if found is not None},
    }


def holds_program(config: Mapping[str, Any]) -> bool:
    """Whether a model folder's model is a captured program.

    Opening one can run code of whoever wrote it: torch.export unpickles constants, evaluates expressions and conditions
    that are texts in it, and calls the functions that its nodes name.
    """
    return not config["factory"] and onnx_file.FILE not in config["files"]


def read_captured(config: Mapping[str, Any], folder: Path) -> ModelSpec:
    """The model of a folder that `write_captured` wrote."""
    sets = {name: _reader(folder / SETS[name], described) for name, described in config["captured"]["sets"].items()}
    calibration = sets.get("calibration")
    return ModelSpec(
        name=config["name"],
        module=_module(config, folder),
        inputs=declared_inputs(config["inputs"]),
        outputs=tuple(
            Output(**{**o, "axes": tuple(o["axes"]), "classes": tuple(o["classes"])}) for o in config["outputs"]
        ),
        axes=declared_axes(config["axes"]),
        evaluation=sets.get("evaluation"),
        calibration=None if calibration is None else lambda n: _first(calibration(), n),
        licence=config["licence"],
        author=config["author"],
        description=config["description"],
    )


def declared_inputs(rows: Iterable[Mapping[str, Any]]) -> tuple[Input, ...]:
    """Inputs as a record on disk has them: `dataclasses.asdict`, through JSON."""
    return tuple(
        Input(**{**row, **{name: tuple(row[name]) for name in ("shape", "mean", "deviation")}}) for row in rows
    )


def declared_axes(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Axis]:
    """Axes as a record on disk has them."""
    return {name: Axis(**row) for name, row in rows.items()}


def _module(config: Mapping[str, Any], folder: Path) -> torch.nn.Module:
    if not holds_program(config):
        return onnx_file.module_of(folder / onnx_file.FILE)
    module = load_program(folder / GRAPH, folder / WEIGHTS).exported.module()
    for part in module.modules():
        part.training = False  # the graph was captured in eval mode, and an exported module refuses `eval()`
    return module


def _write_set(found: Evaluation, path: Path) -> None:
    from safetensors.numpy import save_file

    arrays = {f"inputs/{name}": np.ascontiguousarray(array) for name, array in found.inputs.items()}
    if found.truth is not None:
        arrays["truth"] = np.ascontiguousarray(found.truth)
    save_file(arrays, path)


def _described(found: Evaluation) -> dict[str, Any]:
    return {"names": list(found.names), "captions": list(found.captions), "metric_name": found.metric_name}


def _reader(path: Path, described: Mapping[str, Any]) -> Callable[[], Evaluation]:
    def read() -> Evaluation:
        from safetensors.numpy import load_file

        arrays: dict[str, Array] = load_file(path)
        return Evaluation(
            inputs={n.removeprefix("inputs/"): a for n, a in arrays.items() if n.startswith("inputs/")},
            names=tuple(described["names"]),
            captions=tuple(described["captions"]),
            truth=arrays.get("truth"),
            metric_name=described["metric_name"],
        )

    return read


def _first(found: Evaluation, count: int) -> Evaluation:
    runs = len(found.names)
    inputs = {name: runs_of(array, range(min(count, runs)), runs) for name, array in found.inputs.items()}
    return Evaluation(inputs, found.names[:count], found.captions[:count])
