"""edgekit from Python: what a notebook calls, and what the command line calls too.

import edgekit

build = edgekit.export(net, example=(x,), targets=["onnx", "onnx-fp16"])
build["onnx"].path, build["onnx"].verdict, build["onnx"].latency
build.raise_for_verdict()
edgekit.load(build["onnx"].path).run({"x": x.numpy()})
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit import registry
from edgekit.analysis import attribution
from edgekit.analysis.attribution import Attribution
from edgekit.errors import UsageError
from edgekit.model.contract import check_name, checked
from edgekit.model.module import Axes, spec_of_module
from edgekit.model.source import factory_of, resolve_model
from edgekit.model.spec import Evaluation, ModelSpec
from edgekit.model.weights import with_weights
from edgekit.pipeline import run
from edgekit.pipeline.asked import command_of
from edgekit.pipeline.context import REFERENCE
from edgekit.pipeline.loaded import LoadedArtifact, load
from edgekit.pipeline.outcome import Build, TargetOutcome
from edgekit.pipeline.progress import Style, shown
from edgekit.reference.adopt import given_reference
from edgekit.reference.record import record_reference

if TYPE_CHECKING:
    import torch

    Model = str | Path | ModelSpec | Callable[[], ModelSpec] | torch.nn.Module

BUILDS = Path("build")
DEFAULT_MODEL = "arr-coc-tiny"
INT8 = "onnx-int8-static"


def export(
    model: Model = DEFAULT_MODEL,
    *,
    example: Any = None,
    axes: Axes | None = None,
    targets: Iterable[str] = (),
    evaluation: Evaluation | Callable[[], Evaluation] | None = None,
    calibration: Callable[[int], Evaluation] | None = None,
    output: str | Path = BUILDS,
    options: Mapping[str, Mapping[str, object]] | None = None,
    reference: str | Path | None = None,
    weights: str | Path | None = None,
    name: str | None = None,
    author: str | None = None,
    licence: str | None = None,
    fresh: bool = False,
    progress: Style = "auto",
) -> Build:
    """Export a model, prove each artifact against the reference, and write the report.

    Args:
        model: A preset's name, the path of a checkpoint or of an ONNX file, `package.module:factory`, a factory, a
            `ModelSpec`, or a module. A module defined in a notebook or in `__main__` is captured here and travels as
            its program.
        example: For a module: one tensor, a sequence in the order of `forward`, or tensors by name.
        axes: For a module: which dimensions vary, by input; None lets the first dimension of each be the batch. For an
            ONNX file: the ranges of its open dimensions.
        targets: Names and groups; empty means every target whose libraries are installed.
        evaluation: Real inputs to judge on, or a function that makes them; in place of the model's own.
        calibration: A function that makes n samples for INT8; in place of the model's own.
        output: The folder of builds; the build lies in it under the model's name.
        options: Options by target and name, for example `{"onnx": {"opset": 21}}`.
        reference: Folder of a reference that was recorded with `edgekit reference`; it must be of these weights.
        weights: A file of weights to load into the model, which then has a name of its own and nobody's licence.
        name: Of the model, in place of its own.
        author: Of the weights, in place of the model's own.
        licence: SPDX name of the weights' licence, in place of the model's own.
        fresh: Whether to export and judge again although nothing changed.
        progress: "auto" (live on a terminal and in a notebook, lines elsewhere), "live", "lines" or "none".

    Returns:
        What became of each target, as a mapping by name.

    Raises:
        EdgekitError: For what concerns all targets; what concerns one becomes its record in the build.
    """
    spec = _spec(_given(model, example, axes, weights), evaluation, calibration, reference)
    spec, wanted, given = _signed(spec, name, author, licence), _names(targets), options or {}
    told = command_of(model, wanted, given, weights=weights, name=name, author=author, licence=licence)
    with shown(progress) as listener:
        return run.export(spec, wanted, Path(output) / spec.name, given, listener, fresh, told)


def quantize(
    model: Model = DEFAULT_MODEL,
    *,
    search: str = "quick",
    method: str = "auto",
    calibration: str | Path | None = None,
    reduce_range: bool = False,
    example: Any = None,
    output: str | Path = BUILDS,
    fresh: bool = False,
    progress: Style = "auto",
) -> Build:
    """Search for a static INT8 recipe and prove the result: `export` with the target "onnx-int8-static".

    Args:
        model: As for `export`.
        search: "quick", "full", or "none" (one recipe, all in INT8).
        method: How ranges are made: "auto", "minmax", "entropy" or "percentile".
        calibration: Folder of images to calibrate with; None for the model's own calibration set.
        reduce_range: Whether weights have 7 bits, for x86 without VNNI.
        example: As for `export`.
        output: As for `export`.
        fresh: As for `export`.
        progress: As for `export`.
    """
    chosen = {"search": search, "method": method, "calibration": calibration or "", "reduce_range": reduce_range}
    given = {INT8: chosen}
    return export(model, example=example, targets=(INT8,), output=output, options=given, fresh=fresh, progress=progress)


def verify(build: str | Path, *, progress: Style = "auto") -> Build:
    """Check every artifact's files, run each again, and judge it again.

    Args:
        build: A model's build folder, for example `build/arr-coc-tiny`.
        progress: As for `export`.
    """
    with shown(progress) as listener:
        return run.verify(Path(build), listener)


def record(
    model: Model = DEFAULT_MODEL,
    *,
    device: str = "cpu",
    example: Any = None,
    output: str | Path | None = None,
    progress: Style = "auto",
) -> Path:
    """Record what the model itself says on a device: outputs, noise floor, latency.

    Args:
        model: As for `export`.
        device: "cpu" or "cuda".
        example: As for `export`.
        output: Where to write, without the inputs; None writes into the model's build folder, with them.
        progress: As for `export`.

    Returns:
        The reference's folder.
    """
    if device not in ("cpu", "cuda"):
        raise UsageError(f"no device '{device}': possible are cpu, cuda")
    spec = _given(model, example, None, None)
    folder = Path(output) if output is not None else BUILDS / spec.name / REFERENCE
    with shown(progress) as listener:
        record_reference(
            spec, folder, device, output is None, lambda done, text: listener.progress(REFERENCE, done, text)
        )
        listener.done(REFERENCE)
    return folder


def explain(artifact: str | Path, *, images: int = 8) -> Attribution:
    """Tell in which modules an fp16 or INT8 ONNX artifact's error starts, and where it grows.

    Args:
        artifact: The artifact's folder in its build.
        images: Evaluation images to run.
    """
    return attribution.explain(Path(artifact), images)


@dataclass(frozen=True)
class TargetInfo:
    """What there is to know of a target.

    Attributes:
        name: As `-t` takes it.
        summary: What it makes.
        source: What it is made from.
        groups: Names that select it besides its own.
        places: Where it is judged.
        missing: The commands that install what it lacks here.
        options: JSON schema of its options.
    """

    name: str
    summary: str
    source: str
    groups: tuple[str, ...]
    places: tuple[str, ...]
    missing: tuple[str, ...]
    options: Mapping[str, Any]


def targets() -> dict[str, TargetInfo]:
    """Every target that can be imported, by name."""
    rows, _ = registry.descriptions()
    return {
        row["name"]: TargetInfo(
            row["name"],
            row["summary"],
            row["source"],
            tuple(row["groups"]),
            tuple(row["places"]),
            tuple(row["missing"]),
            row["options"],
        )
        for row in rows
    }


def _names(targets: Iterable[str]) -> tuple[str, ...]:
    names = (targets,) if isinstance(targets, str) or not isinstance(targets, Iterable) else tuple(targets)
    if wrong := [name for name in names if not isinstance(name, str)]:
        raise UsageError(f"{wrong[0]!r} is no target's name: `edgekit targets` lists them")
    return names


def _spec(
    spec: ModelSpec,
    evaluation: Evaluation | Callable[[], Evaluation] | None,
    calibration: Callable[[int], Evaluation] | None,
    reference: str | Path | None,
) -> ModelSpec:
    """The model with what was given beside it."""
    if evaluation is not None:
        if not callable(evaluation) and not isinstance(evaluation, Evaluation):
            raise UsageError(f"the evaluation set is a {type(evaluation).__name__}, not an edgekit.model.Evaluation")
        spec = replace(spec, evaluation=evaluation if callable(evaluation) else lambda: evaluation)
    if calibration is not None:
        spec = replace(spec, calibration=calibration)
    return spec if reference is None else replace(spec, reference=given_reference(spec, Path(reference)))


def _signed(spec: ModelSpec, name: str | None, author: str | None, licence: str | None) -> ModelSpec:
    if name is not None:
        check_name(name)
    return replace(
        spec,
        name=spec.name if name is None else name,
        author=spec.author if author is None else author,
        licence=spec.licence if licence is None else licence,
    )


def _given(model: Any, example: Any, axes: Axes | None, weights: str | Path | None) -> ModelSpec:
    spec = _declared(model, example, axes)
    return spec if weights is None else with_weights(spec, Path(weights))


def _declared(model: Any, example: Any, axes: Axes | None) -> ModelSpec:
    if isinstance(model, str | Path):
        _refuse_beside(example, None if str(model).endswith(".onnx") else axes)
        return resolve_model(str(model), axes)
    if isinstance(model, ModelSpec):
        _refuse_beside(example, axes)
        return checked(model)
    import torch

    if not isinstance(model, torch.nn.Module):
        _refuse_beside(example, axes)
        if isinstance(model, type) and issubclass(model, torch.nn.Module):
            raise UsageError(f"'{model.__name__}' is a class: give an instance of it, in eval mode")
        if not callable(model):
            kinds = "a preset's name, a path, package.module:factory, a factory, a ModelSpec or a torch.nn.Module"
            raise UsageError(f"a {type(model).__name__} is no model: possible are {kinds}")
        return factory_of(model)
    if example is None:
        raise UsageError(f"'{type(model).__name__}' needs an example of its inputs: export(net, example=(x,))")
    return spec_of_module(model, example, axes=axes)


def _refuse_beside(example: Any, axes: Axes | None) -> None:
    if example is not None or axes is not None:
        raise UsageError("example and axes describe a module: a name, a path, a factory and a ModelSpec have their own")


__all__ = [
    "Build",
    "LoadedArtifact",
    "TargetInfo",
    "TargetOutcome",
    "explain",
    "export",
    "load",
    "quantize",
    "record",
    "targets",
    "verify",
]
