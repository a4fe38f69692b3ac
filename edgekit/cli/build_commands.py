"""The commands that make, judge and report a build."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from edgekit.cli.arguments import (
    DEFAULT_BUILD,
    REJECTED,
    USER_ERROR,
    Budgets,
    BuildFolder,
    Chosen,
    Images,
    Json,
    ModelName,
    Places,
    Quiet,
    TrustFactory,
    Verbose,
    app,
)
from edgekit.cli.completion import among, int8_values, option_values, selections
from edgekit.errors import UsageError

if TYPE_CHECKING:
    from edgekit.pipeline.outcome import Build


@app.command(
    epilog="Examples:\n\n`edgekit export`\n\n`edgekit export -t onnx -t onnx-fp16`\n\n"
    "`edgekit export weights.safetensors -t onnx -o build`\n\n`edgekit export mypkg.mymodule:factory -t onnx`\n\n"
    "`edgekit export mypkg.mymodule:factory --weights unet.pt --name my-unet --author Me --licence MIT -t onnx`\n\n"
    "`edgekit export -t onnx -O onnx.opset=21`\n\n`edgekit export -t onnx --place openvino --budget p50=20ms,size=14MB`"
)
def export(
    model: ModelName = "arr-coc-tiny",
    target: Annotated[
        list[str] | None,
        typer.Option(
            "-t",
            "--target",
            help="Target or group; repeat for more. Default: all that is installed.",
            autocompletion=selections,
        ),
    ] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of builds.")] = Path("build"),
    option: Annotated[
        list[str] | None,
        typer.Option(
            "-O",
            "--option",
            help="A target's option: TARGET.NAME=VALUE; repeat for more. `edgekit targets TARGET` lists them.",
            autocompletion=option_values,
        ),
    ] = None,
    weights: Annotated[
        Path | None, typer.Option("--weights", help="File of weights to load into package.module:factory.")
    ] = None,
    ema: Annotated[bool, typer.Option("--ema", help="Load the file's averaged weights (EMA).")] = False,
    name: Annotated[str | None, typer.Option("--name", help="Name of the model and of its build folder.")] = None,
    author: Annotated[str | None, typer.Option("--author", help="Who made the weights.")] = None,
    licence: Annotated[str | None, typer.Option("--licence", help="SPDX name of the weights' licence.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Export and judge again although nothing changed.")] = False,
    place: Places = None,
    budget: Budgets = None,
    verbose: Verbose = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Export a model, prove each artifact against the reference, and write the report."""
    from edgekit import api

    build = api.export(
        model,
        targets=target or (),
        output=output,
        options=_options(option or []),
        weights=weights,
        ema=ema,
        name=name,
        author=author,
        licence=licence,
        fresh=fresh,
        places=place or (),
        budget=budget or (),
        progress=progress_style(as_json or quiet),
    )
    _show_reports(build, verbose)
    conclude(build, as_json, quiet)


@app.command(
    epilog="Examples:\n\n`edgekit quantize`\n\n`edgekit quantize --search full`\n\n"
    "`edgekit quantize --method entropy --calibration photos/`\n\n"
    "`edgekit quantize --place openvino --place qemu:arm64`"
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
            help="How ranges are made: auto, minmax, entropy or percentile.", autocompletion=int8_values("method")
        ),
    ] = "auto",
    calibration: Annotated[
        str, typer.Option(help="Folder of images to calibrate with; default: the model's own calibration set.")
    ] = "",
    reduce_range: Annotated[
        bool, typer.Option("--reduce-range", help="7-bit weights only, for x86 without VNNI (see `edgekit doctor`).")
    ] = False,
    place: Places = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of builds.")] = Path("build"),
    fresh: Annotated[bool, typer.Option("--fresh", help="Quantize and judge again although nothing changed.")] = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Search for a static INT8 recipe, prove the result, and show what was tried; exit 3 if it is wrong or slower."""
    from edgekit import api
    from edgekit.cli.console import show_trials
    from edgekit.report import trials

    build = api.quantize(
        model,
        search=search,
        method=method,
        calibration=calibration,
        reduce_range=reduce_range,
        places=place or (),
        output=output,
        fresh=fresh,
        progress=progress_style(as_json or quiet),
    )
    _show_reports(build, verbose)
    made = build[api.INT8]
    notes = made.manifest.notes if made.manifest is not None else ()
    found = trials.read_trials(build.path, api.INT8) if notes else ()
    if not as_json and not quiet:
        show_trials(found, notes)
    conclude(build, as_json, quiet, trials=[asdict(trial) for trial in found])
    if made.slower:
        sys.exit(REJECTED)


@app.command(
    epilog="Examples:\n\n`edgekit verify build/arr-coc-tiny`\n\n`edgekit verify --place openvino --place ort-basic`"
    "\n\n`edgekit verify --place ort-cuda@ssh:me@gpu-box --images 16 -t onnx`"
    "\n\n`edgekit verify build/mine --trust-factory`"
)
def verify(
    build: BuildFolder = DEFAULT_BUILD,
    place: Places = None,
    budget: Budgets = None,
    images: Images = None,
    target: Chosen = None,
    trust_factory: TrustFactory = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Check every artifact's files, run it again, and judge it again; with --place in these places alone."""
    from edgekit import api

    if images is not None and not place:
        raise UsageError("--images is for --place: a target's own places ask everything")
    found = api.verify(
        build,
        places=place or (),
        images=images,
        targets=target or (),
        budget=budget or (),
        trust_factory=trust_factory,
        progress=progress_style(as_json or quiet),
    )
    conclude(found, as_json, quiet)


@app.command(
    epilog="Examples:\n\n`edgekit report build/arr-coc-tiny`\n\n`edgekit report build/arr-coc-tiny --junit edgekit.xml`"
    "\n\n`edgekit report --history builds`"
)
def report(
    build: BuildFolder = DEFAULT_BUILD,
    junit: Annotated[
        Path | None, typer.Option("--junit", help="Write JUnit XML too: one test case an artifact and place.")
    ] = None,
    history: Annotated[
        Path | None,
        typer.Option("--history", help="Instead write history.html: all builds below this folder, by their dates."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write report.html, .json, .md and .csv from what is in a build; runs nothing."""
    from edgekit import report as reports

    if history is not None:
        found, page = reports.write_history(history)
        print(json.dumps(found.as_record(), indent=2) if as_json else page)
        return
    written = reports.write_report(build)
    paths = [str(build / f"report.{suffix}") for suffix in ("html", "json", "md", "csv")]
    if junit is not None:
        reports.write_junit(written.study, junit)
        paths.append(str(junit))
    print(json.dumps({"report": paths}) if as_json else "\n".join(paths))


@app.command(
    epilog="Examples:\n\n`edgekit diff main/arr-coc-tiny build/arr-coc-tiny`\n\n"
    "`edgekit diff main/arr-coc-tiny build/arr-coc-tiny --speed 50 --markdown`"
)
def diff(
    before: Annotated[Path, typer.Argument(help="The build to compare with: a model's build folder.")],
    after: Annotated[Path, typer.Argument(help="The build in question.")],
    size: Annotated[float, typer.Option(min=0, help="Percent that an artifact may grow.")] = 1.0,
    speed: Annotated[float, typer.Option(min=0, help="Percent that its ratio to a baseline may fall.")] = 20.0,
    accuracy: Annotated[
        float, typer.Option(min=0, help="Percent of its limit that a number may move; verdicts may never fall.")
    ] = 10.0,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a table for a pull request.")] = False,
    as_json: Json = False,
) -> None:
    """Tell what became better or worse between two builds, by artifact, image and metric; exit 3 if any is worse."""
    from edgekit.report.change import Allowed
    from edgekit.report.difference import compare_builds

    found = compare_builds(before, after, Allowed(size / 100, speed / 100, accuracy / 100))
    if as_json:
        print(json.dumps(found.as_record(), indent=2))
    else:
        print(found.as_markdown() if markdown else "\n".join(found.lines))
    if found.worse:
        sys.exit(REJECTED)


@app.command(epilog="Examples:\n\n`edgekit reference --device cuda -o reference`\n\n`edgekit reference --device cpu`")
def reference(
    model: ModelName = "arr-coc-tiny",
    device: Annotated[str, typer.Option(help="cpu or cuda.", autocompletion=among("cpu", "cuda"))] = "cpu",
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Where to write; default: the model's build folder, for `edgekit verify`."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Record what the model itself says on a device: outputs, noise floor, latency."""
    from edgekit import api

    folder = api.record(model, device=device, output=output, progress=progress_style(as_json))
    print(json.dumps({"reference": str(folder)}) if as_json else f"reference: {folder}")


def _options(given: list[str]) -> dict[str, dict[str, str]]:
    options: dict[str, dict[str, str]] = {}
    for text in given:
        name, equals, value = text.partition("=")
        target, dot, option = name.rpartition(".")
        if not (equals and dot):
            raise UsageError(f"option '{text}' is not of the form TARGET.NAME=VALUE")
        options.setdefault(target, {})[option] = value
    return options


def progress_style(silent: bool) -> Literal["auto", "none"]:
    """No progress where a machine reads, or nobody wants it."""
    return "none" if silent else "auto"


def _show_reports(build: Build, verbose: bool) -> None:
    from edgekit.model.causes import plain

    for outcome in build.outcomes if verbose else ():
        if outcome.report:
            print(plain(f"{outcome.target}:\n{outcome.report}"), file=sys.stderr)


def conclude(build: Build, as_json: bool, quiet: bool = False, **more: object) -> None:
    """Print what became of a build, and exit with the code that says so."""
    if as_json:
        print(json.dumps({**build.as_record(), **more}, indent=2))
    else:
        from edgekit.cli.console import show_build

        show_build(build, quiet)
    from edgekit.pipeline.outcome import OVER

    statuses = {outcome.status for outcome in build.faults}
    if statuses & {"rejected", OVER}:
        sys.exit(REJECTED)
    if "failed" in statuses:
        sys.exit(USER_ERROR)
