"""Python interface of edgekit, for notebooks and for the command line.

import edgekit

build = edgekit.export(net, example=(x,), targets=["onnx", "onnx-fp16"])
build["onnx"].path, build["onnx"].verdict, build["onnx"].latency
build.raise_for_verdict()
edgekit.load(build["onnx"].path).run({"x": x.numpy()})
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from edgekit import doors, registry
from edgekit.artifact.run_record import MODEL, PARTS, REFERENCE
from edgekit.errors import UsageError
from edgekit.model.overrides import Given
from edgekit.model.parts import CompositeModel
from edgekit.model.records import CONFIG
from edgekit.model.spec import EvaluationSet, ModelSpec
from edgekit.pipeline import composite_run, given_model, run
from edgekit.pipeline.context import FreshInputs
from edgekit.pipeline.further_places import search_until_verified
from edgekit.pipeline.loaded import LoadedArtifact, load
from edgekit.pipeline.outcome import Build, TargetOutcome
from edgekit.pipeline.request import Calibration, Criteria, EvaluationData, ExportRequest, ModelFacts, names_in
from edgekit.progress import Style, listener_for
from edgekit.reference.dataset import check_folder
from edgekit.reference.record import record_reference
from edgekit.registry import TargetInfo
from edgekit.storage.files import require_folder, url_of
from edgekit.storage.host_errors import as_sentences

if TYPE_CHECKING:
    import torch

    Model = str | Path | ModelSpec | CompositeModel | Callable[[], ModelSpec | CompositeModel] | torch.nn.Module

BUILDS = Path("build")
DEFAULT_MODEL = "arr-coc-tiny"
INT8 = "onnx-int8-static"


class FactFields(TypedDict, total=False):
    """Fields of the record `facts` that `export` also takes by name."""

    axes: Given
    inputs: Given
    outputs: Given
    task: str
    weights: str | Path | None
    ema: bool
    name: str | None
    author: str | None
    licence: str | None


class Fields(FactFields, total=False):
    """Fields of `data` and `criteria` that `export` also takes by name."""

    evaluation: EvaluationSet | Callable[[], EvaluationSet] | None
    metric: str
    calibration: Calibration | None
    reference: str | Path | None
    places: Iterable[str]
    budget: Iterable[str]
    limits: str


def export(
    model: Model = DEFAULT_MODEL,
    *,
    example: Any = None,
    targets: Iterable[str] = (),
    output: str | Path = BUILDS,
    options: Mapping[str, Mapping[str, object]] | None = None,
    facts: ModelFacts = ModelFacts(),
    data: EvaluationData | str | Path | None = None,
    criteria: Criteria = Criteria(),
    fresh: bool = False,
    bom: bool = False,
    sign: str | Path | None = None,
    progress: Style = "auto",
    **fields: Unpack[Fields],
) -> Build:
    """Export a model, judge each artifact against the reference, and write the report.

    Args:
        model: A preset's name, the path of a checkpoint, an ONNX file or a `torch.export` program (`model.pt2`),
            `package.module:factory`, a factory, a `ModelSpec`, a module, or a `CompositeModel`. A module defined in a
            notebook or in `__main__` is captured here and stored as its program.
        example: For a module: one tensor, a sequence in the order of `forward`, or tensors by name. If it has 70
            different rows or more, and you give no other data, they are split like a folder of data.
        targets: Names and groups; empty selects every target whose libraries are installed.
        output: The folder of builds; the build is in it under the model's name.
        options: Options by target and name, for example `{"onnx": {"opset": 21}}`.
        facts: Your declarations about the model: axes, inputs, outputs, weights, name, licence ...
        data: Data to judge and to calibrate with, or its folder.
        criteria: Further places to judge in, and budgets.
        fresh: True to export and judge again even if nothing changed.
        bom: True to write a bill of materials, bom.cdx.json (CycloneDX).
        sign: Private ECDSA key (PEM) to sign the build with; rejected and failed targets are not signed.
        progress: "auto" (live on a terminal and in a notebook, lines elsewhere), "live", "lines" or "none".
        fields: Single fields of `facts`, `data` and `criteria` by their own names: `axes={...}`, `places=["openvino"]`.

    Returns:
        The outcome of each target, as a mapping by name. For a `CompositeModel` these are outcomes of the whole model,
        and `parts` has those of each component.

    Raises:
        EdgekitError: If something concerns all targets; an error of one target becomes its outcome in the build.
    """
    request = ExportRequest(
        model=model,
        example=example,
        targets=names_in(targets),
        output=Path(output),
        options=options or {},
        facts=facts,
        data=data if isinstance(data, EvaluationData) else EvaluationData(data=data),
        criteria=criteria,
        fresh=fresh,
        bom=bom,
        sign=None if sign is None else Path(sign),
    )
    return run_request(request.with_fields(fields), progress)


@as_sentences()
def run_request(request: ExportRequest, progress: Style = "auto") -> Build:
    """Export as `export` does, for a request in one record.

    Raises:
        EdgekitError: As `export`.
    """
    require_folder(request.output, "builds are made")
    sign_build = None if request.sign is None else doors.hook("sign_build")(request.sign)
    write_bill = doors.hook("write_bill")() if request.bom else None

    def export_graph(spec: ModelSpec, folder: Path, targets: tuple[str, ...], command: str = "") -> Build:
        with listener_for(progress) as listener:
            build = run.export(
                spec, targets, folder, request.options, listener, request.fresh, command, request.criteria
            )
        if write_bill is not None:
            write_bill(build)
        if sign_build is not None:
            sign_build(build)
        return build

    model = given_model.any_model(request.model, request.example, request.facts)
    if isinstance(model, CompositeModel):
        given_model.refuse_beside_parts(model, request.data)
        composite = model if request.facts.name is None else replace(model, name=request.facts.name)
        root = request.output / composite.name

        def export_component(name: str, spec: ModelSpec, targets: tuple[str, ...]) -> Build:
            facts = replace(request.facts, name=None)
            return export_graph(given_model.with_authorship(spec, facts), root / name, targets)

        factory = given_model.factory_name(request.model)
        whole = composite_run.export(composite, request.targets, root, export_component, factory)
        # Each component is signed by itself; this covers the record of the whole, and which components it has.
        if sign_build is not None:
            sign_build(whole)
        return whole
    spec = given_model.with_authorship(given_model.with_data(model, request.data, request.example), request.facts)
    return export_graph(spec, request.output / spec.name, request.targets, request.command)


class ExportKeywords(FactFields, total=False):
    """Arguments that `quantize` passes on to `export`."""

    data: EvaluationData | str | Path | None
    metric: str
    limits: str
    example: Any
    output: str | Path
    progress: Style


def quantize(
    model: Model = DEFAULT_MODEL,
    *,
    search: str = "quick",
    method: str = "auto",
    calibration: str | Path | None = None,
    reduce_range: bool = False,
    places: Iterable[str] = (),
    fresh: bool = False,
    **options: Unpack[ExportKeywords],
) -> Build:
    """Search for a static INT8 recipe and judge the result: `export` with the target "onnx-int8-static".

    If it is rejected in one of `places`, the next best recipe (option `rank`) is tried; a note states the cost.

    Args:
        model: As for `export`.
        search: "quick", "full", or "none" (one recipe, all in INT8).
        method: Method for ranges: "auto", "minmax", "entropy" or "percentile".
        calibration: Folder of images to calibrate with; None for the model's own calibration set.
        reduce_range: True for weights of 7 bits, for x86 without VNNI.
        places: Further places in which the artifact must be verified, as for `export`.
        fresh: As for `export`.
        options: Facts of the model (`axes`, `inputs` ...), `data`, `metric`, `limits`, `example`, `output` and
            `progress`, as for `export`.
    """
    if calibration:
        check_folder(Path(calibration))
    int8_options = {"search": search, "method": method, "calibration": calibration or "", "reduce_range": reduce_range}
    names = names_in(places)
    ranked = partial(export, model, targets=(INT8,), places=names, **options)
    return search_until_verified(ranked, INT8, int8_options, names, fresh)


def verify(
    build: str | Path,
    *,
    places: Iterable[str] = (),
    images: int | None = None,
    targets: Iterable[str] = (),
    budget: Iterable[str] = (),
    limits: str = "all",
    minutes: float = 0.0,
    seed: int = 0,
    trust_build: bool = False,
    key: str | Path | None = None,
    progress: Style = "auto",
) -> Build:
    """Check every artifact's files, run each again, and judge it again.

    Args:
        build: A model's build folder, for example `build/arr-coc-tiny`; or a URL in a store, which is copied to the
            cache. For a model of parts, each part is judged again, and the whole too if its factory may run; otherwise
            its recorded result must belong to the same artifacts.
        places: Further places, as for `export`: if any are given, artifacts are judged only there.
        images: Number of evaluation inputs to run in these; other batches are reduced in proportion. None for all.
        targets: Names and groups; empty selects all in the build.
        budget: As for `export`.
        limits: As for `export`.
        minutes: Time for fresh inputs, which each verified artifact and the model run in each of the target's places,
            with one open runtime. An artifact that exceeds a limit is rejected.
        seed: Seed of the fresh inputs: the same seed gives the same inputs.
        trust_build: True if code that the build names may run: a factory that is not edgekit's (also from the working
            directory), and the stored program of a model given in memory.
        key: Public ECDSA key (PEM) of the required signer; None requires no signature.
        progress: As for `export`.
    """
    criteria, only = Criteria(names_in(places), images, names_in(budget), limits), names_in(targets)
    if not 0 <= minutes < math.inf or seed < 0:
        raise UsageError(
            f"cannot run fresh inputs for {minutes:g} minutes with the seed {seed}. Give finite numbers from 0"
        )
    if (seed and not minutes) or (minutes and criteria.places):
        raise UsageError(
            "a seed needs minutes, and minutes apply only to a target's own places. Leave out further places"
        )
    if minutes and criteria.limits == "task":
        raise UsageError("minutes run made inputs, which limits='task' does not judge. Leave out one of them")
    fresh_inputs = FreshInputs(minutes * 60, seed) if minutes else None
    public = None if key is None else Path(key)
    folder = local(build, writable=True, progress=progress)

    def verify_build(root: Path) -> Build:
        with listener_for(progress) as listener:
            return run.verify(root, listener, criteria, only, trust_build, public, fresh_inputs)

    # The build of a single graph has a model folder; `model` may also be the build of a part of that name.
    whole = (folder / PARTS).exists() and not (folder / MODEL / CONFIG).exists()
    if not whole:
        return verify_build(folder)
    if public is not None:
        doors.hook("require_signature")(folder, public)
    again = given_model.parts_of_factory if trust_build and not criteria.places else None
    return composite_run.verify(folder, only, verify_build, public is not None, again)


def pack(
    build: str | Path,
    output: str | Path,
    *,
    places: Iterable[str],
    images: int | None = None,
    targets: Iterable[str] = (),
    trust_build: bool = False,
    progress: Style = "auto",
) -> tuple[str, ...]:
    """Pack ONNX artifacts, inputs and a runner for a host without remote login.

    On that host, `python -m edgekit.evaluate` in the unpacked folder writes result.zip; `import_result` judges it.

    Args:
        build: A model's build folder.
        output: The zip file to write.
        places: Runtimes, for example "ort-cuda".
        images: As for `verify`.
        targets: Names and groups; empty selects all that the places take.
        trust_build: As for `verify`.
        progress: As for `export`.

    Returns:
        The targets in the pack.
    """
    folder = local(build, writable=True, progress=progress)
    with listener_for(progress) as listener:
        return run.pack(folder, Path(output), listener, names_in(places), images, names_in(targets), trust_build)


def import_result(
    build: str | Path, result: str | Path, *, trust_build: bool = False, progress: Style = "auto"
) -> Build:
    """Judge the results of a pack, and add them to the build's report.

    Args:
        build: The packed build.
        result: The result.zip.
        trust_build: As for `verify`.
        progress: As for `export`.
    """
    require_folder(build, "results are taken into builds")
    with listener_for(progress) as listener:
        return run.import_result(Path(build), Path(result), listener, trust_build)


def record(
    model: Model = DEFAULT_MODEL,
    *,
    device: str = "cpu",
    example: Any = None,
    axes: Given = None,
    inputs: Given = None,
    outputs: Given = None,
    evaluation: EvaluationSet | Callable[[], EvaluationSet] | None = None,
    data: str | Path | None = None,
    metric: str = "",
    calibration: Calibration | None = None,
    output: str | Path | None = None,
    progress: Style = "auto",
) -> Path:
    """Record the model itself on a device: outputs, noise floor, latency.

    Args:
        model: As for `export`.
        device: "cpu" or "cuda".
        example: As for `export`.
        axes: As for `export`.
        inputs: As for `export`.
        outputs: As for `export`.
        evaluation: As for `export`, which needs the same set to use these outputs.
        data: As for `export`, likewise.
        metric: As for `export`.
        calibration: As for `export`: without it a part of `data` is not recorded.
        output: Folder to write, without the inputs; None writes into the model's build folder, with inputs.
        progress: As for `export`.

    Returns:
        The reference's folder.
    """
    if device not in ("cpu", "cuda"):
        raise UsageError(f"unknown device '{device}'. Use cpu or cuda")
    require_folder(output or "", "references are recorded")
    facts = ModelFacts(axes=axes, inputs=inputs, outputs=outputs)
    given_data = EvaluationData(evaluation=evaluation, data=data, metric=metric, calibration=calibration)
    spec = given_model.with_data(given_model.resolve_model(model, example, facts), given_data, example)
    folder = Path(output) if output is not None else BUILDS / spec.name / REFERENCE
    with listener_for(progress) as listener:
        record_reference(
            spec, folder, device, output is None, lambda share, text: listener.progress(REFERENCE, share, text)
        )
        listener.done(REFERENCE)
    return folder


def local(build: str | Path, *, writable: bool = False, progress: Style = "auto") -> Path:
    """Return the folder of a build, or of an artifact in it, from a path or a URL in a store.

    A path is returned unchanged. A URL's build is downloaded into the user's cache, and checked.

    Args:
        build: A path, or a URL such as "s3://bucket/arr-coc-tiny" or ".../onnx" of an artifact in it.
        writable: True if the caller writes into the build: it is then a fresh copy.
        progress: As for `export`.
    """
    if not (url := url_of(build)):
        return Path(build)
    folder: Path = doors.hook("fetch_build")(url, writable=writable, progress=progress)
    return folder


def targets() -> dict[str, TargetInfo]:
    """Return every target that can be imported, by name."""
    return {name: registry.info(name, target) for name, target in registry.loadable()[0].items()}


__all__ = [
    "Build", "LoadedArtifact", "TargetInfo", "TargetOutcome",
    "export", "import_result", "load", "local", "pack", "quantize", "record", "run_request",
    "targets", "verify",
]  # fmt: skip
