"""Commands that export, judge and report a build."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from edgekit.artifact.fact import Code
from edgekit.cli.arguments import (
    DEFAULT_BUILD,
    NOT_CONFIRMED,
    REJECTED,
    USER_ERROR,
    Axes,
    Budgets,
    BuildFolder,
    Calibration,
    Chosen,
    Data,
    Device,
    Images,
    Inputs,
    Json,
    Key,
    Limits,
    Metric,
    ModelName,
    Outputs,
    Places,
    Quiet,
    RequireSignature,
    TrustBuild,
    Verbose,
    print_answer,
    print_json,
    required_key,
)
from edgekit.cli.completion import int8_values, option_values, selections
from edgekit.cli.help import epilog
from edgekit.errors import UsageError

if TYPE_CHECKING:
    from edgekit.pipeline.outcome import Build


@epilog(
    "Examples:\n\n`edgekit export`\n\n`edgekit export -t onnx -t onnx-fp16`\n\n"
    "`edgekit export weights.safetensors -t onnx -o build`\n\n`edgekit export mypkg.mymodule:factory -t onnx`\n\n"
    "`edgekit export mypkg.mymodule:factory --weights unet.pt --name my-unet --author Me --licence MIT -t onnx`\n\n"
    "`edgekit export -t onnx -O onnx.opset=21`\n\n`edgekit export -t onnx --place openvino --budget p50=20ms,size=14MB`"
    "\n\n`edgekit export net.onnx --axes ids:1=length:8..512/8@128 -t onnx-int8-dynamic`"
    "\n\n`edgekit export net.onnx --inputs pixels:mean=0.5,std=0.5 --outputs logits:role=logits --data photos/`"
    "\n\n`edgekit export transformers:FOLDER --task text-generation-with-past -t onnx`"
    "\n\n`edgekit export -t onnx --bom --sign release.pem`"
    "\n\n`edgekit export hf:ORG/NAME --task fill-mask -t onnx --push-to hf:ME/NAME`"
)
def export(
    model: ModelName = "arr-coc-tiny",
    target: Annotated[
        list[str] | None,
        typer.Option(
            "-t",
            "--target",
            help="Target or group; repeat for more. Default: all installed ones.",
            autocompletion=selections,
        ),
    ] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of builds.")] = Path("build"),
    axes: Axes = None,
    inputs: Inputs = None,
    outputs: Outputs = None,
    data: Data = None,
    metric: Metric = "",
    calibration: Calibration = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "-O",
            "--option",
            help="A target's option: TARGET.NAME=VALUE; repeat for more. `edgekit targets TARGET` lists them.",
            autocompletion=option_values,
        ),
    ] = None,
    task: Annotated[
        str,
        typer.Option(
            "--task",
            help="Task of transformers:FOLDER, by optimum's names: text-generation-with-past, text-classification ...: "
            "graphs and files as transformers.js and optimum load them.",
        ),
    ] = "",
    weights: Annotated[
        Path | None, typer.Option("--weights", help="File of weights to load into package.module:factory.")
    ] = None,
    ema: Annotated[bool, typer.Option("--ema", help="Load the file's averaged weights (EMA).")] = False,
    name: Annotated[str | None, typer.Option("--name", help="Name of the model and of its build folder.")] = None,
    author: Annotated[str | None, typer.Option("--author", help="Author of the weights.")] = None,
    licence: Annotated[str | None, typer.Option("--licence", help="SPDX name of the weights' licence.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Export and judge again even if nothing changed.")] = False,
    place: Places = None,
    budget: Budgets = None,
    limits: Limits = "all",
    bom: Annotated[
        bool, typer.Option("--bom", help="Also write a bill of materials: bom.cdx.json, a CycloneDX ML-BOM.")
    ] = False,
    sign: Annotated[Path | None, typer.Option("--sign", help="Private ECDSA key (PEM) to sign the build with.")] = None,
    push_to: Annotated[
        str,
        typer.Option("--push-to", help="Upload verified artifacts to hf:ORG/NAME, if nothing is rejected."),
    ] = "",
    verbose: Verbose = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Export a model, verify each artifact against the model, and write the report."""
    from edgekit import api
    from edgekit.artifact.run_record import PROGRAM
    from edgekit.model.sources import uploader_of
    from edgekit.pipeline.request import Criteria, EvaluationData, ExportRequest, ModelFacts

    # A wrong name or a missing token ends the command before the export.
    upload = uploader_of(push_to) if push_to else None
    # A new build captures the model; an unchanged one does not.
    _fork_server(model, capture=fresh or not any(output.glob(f"{name or '*'}/{PROGRAM}")))
    facts = ModelFacts(
        axes=axes, inputs=inputs, outputs=outputs, task=task, weights=weights, ema=ema, name=name, author=author,
        licence=licence,
    )  # fmt: skip
    request = ExportRequest(
        model=model,
        targets=tuple(target or ()),
        output=output,
        options=_options(option or []),
        facts=facts,
        data=EvaluationData(data=data, metric=metric, calibration=calibration),
        criteria=Criteria(tuple(place or ()), budget=tuple(budget or ()), limits=limits),
        fresh=fresh,
        bom=bom,
        sign=sign,
    )
    build = api.run_request(request, progress_style(as_json or quiet))
    conclude(build, as_json, quiet, verbose)
    if upload is not None:
        address = upload(build)
        if not as_json and not quiet:
            print(f"pushed to {address}")


def _fork_server(model: str, capture: bool) -> None:
    """Start the workers' server, for a source that is code or a file."""
    from edgekit.hosts import fork_server
    from edgekit.model.sources import source_of
    from edgekit.pipeline.worker import CAPTURE_MODULES, RUN_MODULES

    if ":" in model or source_of(model) is not None:
        fork_server.fork_here(CAPTURE_MODULES if capture else RUN_MODULES)


@epilog(
    "Examples:\n\n`edgekit quantize`\n\n`edgekit quantize --search full`\n\n"
    "`edgekit quantize --method entropy --calibration photos/`\n\n"
    "`edgekit quantize net:make --inputs x:kind=image,shape=1,3,64,64 --data photos/`\n\n"
    "`edgekit quantize --place openvino --place ort-basic`"
)
def quantize(
    model: ModelName = "arr-coc-tiny",
    search: Annotated[
        str,
        typer.Option(help="quick, full, or none (one recipe, all in INT8).", autocompletion=int8_values("search")),
    ] = "quick",
    method: Annotated[
        str,
        typer.Option(
            help="Method for ranges: auto, minmax, entropy or percentile.", autocompletion=int8_values("method")
        ),
    ] = "auto",
    calibration: Annotated[
        str, typer.Option(help="Folder of images to calibrate with; default: the model's own calibration set.")
    ] = "",
    reduce_range: Annotated[
        bool, typer.Option("--reduce-range", help="7-bit weights only, for x86 without VNNI (see `edgekit doctor`).")
    ] = False,
    axes: Axes = None,
    inputs: Inputs = None,
    outputs: Outputs = None,
    data: Data = None,
    metric: Metric = "",
    place: Places = None,
    limits: Limits = "all",
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of builds.")] = Path("build"),
    fresh: Annotated[bool, typer.Option("--fresh", help="Quantize and judge again even if nothing changed.")] = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Search for a static INT8 recipe, and verify the result. Exit 3 if it is rejected or slower."""
    from edgekit import api
    from edgekit.cli.console import show_notes
    from edgekit.report.rows import trials_of
    from edgekit.storage.files import finite

    build = api.quantize(
        model,
        search=search,
        method=method,
        calibration=calibration,
        reduce_range=reduce_range,
        axes=axes,
        inputs=inputs,
        outputs=outputs,
        data=data,
        metric=metric,
        places=place or (),
        limits=limits,
        output=output,
        fresh=fresh,
        progress=progress_style(as_json or quiet),
    )
    artifact = build[api.INT8]
    notes = artifact.manifest.notes if artifact.manifest is not None else ()
    if not as_json and not quiet:
        show_notes(notes)
    trials = trials_of(build.path, api.INT8) if notes else ()
    conclude(build, as_json, quiet, verbose, trials=[finite(trial) for trial in trials])
    # Quantization that slows a model down misses its purpose.
    if artifact.slower:
        sys.exit(REJECTED)


@epilog(
    "Examples:\n\n`edgekit verify build/arr-coc-tiny`\n\n`edgekit verify --place openvino --place ort-basic`"
    "\n\n`edgekit verify --place ort-cuda@ssh:me@gpu-box --images 16 -t onnx`"
    "\n\n`edgekit verify s3://bucket/arr-coc-tiny@0123456789abcdef`"
    "\n\n`edgekit verify build/mine --trust-build`\n\n`edgekit verify build/theirs --key release.pub`"
    "\n\n`edgekit verify --minutes 10 --seed 7 -t onnx-int8-static`"
)
def verify(
    build: BuildFolder = DEFAULT_BUILD,
    place: Places = None,
    budget: Budgets = None,
    limits: Limits = "all",
    images: Images = None,
    target: Chosen = None,
    trust_build: TrustBuild = False,
    key: Key = None,
    require_signature: RequireSignature = False,
    minutes: Annotated[
        float, typer.Option(min=0.0, help="Also run fresh inputs through each verified artifact, for so many minutes.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the fresh inputs, for --minutes.")] = 0,
    verbose: Verbose = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Check every artifact's files, run it and judge it again. With --place, it is judged in these places only."""
    from edgekit import api
    from edgekit.hosts import fork_server
    from edgekit.pipeline.worker import RUN_MODULES

    if images is not None and not place:
        raise UsageError("--images applies only to --place: a target's own places run all inputs")
    if Path(build).is_dir():
        fork_server.fork_here(RUN_MODULES)
    verification = api.verify(
        build,
        places=place or (),
        images=images,
        targets=target or (),
        budget=budget or (),
        limits=limits,
        minutes=minutes,
        seed=seed,
        trust_build=trust_build,
        key=required_key(key, require_signature),
        progress=progress_style(as_json or quiet),
    )
    if (
        key is not None
        and not as_json
        and not quiet
        and all(outcome.status != "failed" for outcome in verification.outcomes)
    ):
        left_out = f"; not signed: {', '.join(verification.unsigned)}" if verification.unsigned else ""
        print(f"signed by '{key}'{left_out}")
    conclude(verification, as_json, quiet, verbose)
    # A stored verdict stays, but this run could not confirm it.
    if any(reason.fact.code is Code.HOST_LIMIT for outcome in verification.outcomes for reason in outcome.reasons):
        sys.exit(NOT_CONFIRMED)


@epilog("Examples:\n\n`edgekit reference --device cuda -o reference`\n\n`edgekit reference --device cpu`")
def reference(
    model: ModelName = "arr-coc-tiny",
    device: Device = "cpu",
    axes: Axes = None,
    inputs: Inputs = None,
    outputs: Outputs = None,
    data: Data = None,
    metric: Metric = "",
    calibration: Calibration = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="Folder to write; default: the model's build folder, for `edgekit verify`."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Record a model's outputs, noise floor and latency on a device."""
    from edgekit import api

    folder = api.record(
        model,
        device=device,
        axes=axes,
        inputs=inputs,
        outputs=outputs,
        data=data,
        metric=metric,
        calibration=calibration,
        output=output,
        progress=progress_style(as_json),
    )
    print_answer(as_json, {"reference": str(folder)}, [f"reference: {folder}"])


def _options(words: list[str]) -> dict[str, dict[str, str]]:
    options: dict[str, dict[str, str]] = {}
    for text in words:
        name, equals, value = text.partition("=")
        target, dot, option = name.rpartition(".")
        if not (equals and dot):
            raise UsageError(
                f"option '{text}' is not of the form TARGET.NAME=VALUE. Run `edgekit targets TARGET` for the list"
            )
        options.setdefault(target, {})[option] = value
    return options


def progress_style(silent: bool) -> Literal["auto", "none"]:
    """Return the progress style: none for JSON or quiet output."""
    return "none" if silent else "auto"


def conclude(build: Build, as_json: bool, quiet: bool = False, verbose: bool = False, **more: object) -> None:
    """Print the outcome of a build, and exit with its code."""
    for outcome in build.outcomes if verbose else ():
        if outcome.report:
            from edgekit.model.capture_errors import plain

            print(plain(f"{outcome.target}:\n{outcome.report}"), file=sys.stderr)
    if as_json:
        print_json({**build.as_record(), **more})
    else:
        from edgekit.cli.console import show_build

        show_build(build, quiet, verbose)
    from edgekit.pipeline.outcome import OVER

    statuses = {outcome.status for outcome in build.faults}
    # A rejected artifact outranks a failed one: scripts stop a release on 3.
    if statuses & {"rejected", OVER}:
        sys.exit(REJECTED)
    if "failed" in statuses:
        sys.exit(USER_ERROR)
