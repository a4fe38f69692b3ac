"""The command line: parse, call, print. The only file that prints or exits.

Exit codes: 0 clean, 1 a bug (traceback), 2 something that the user can fix (one sentence), 3 an artifact was rejected.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from edgekit.cli.completion import model_names, option_values, selections, target_names
from edgekit.errors import EdgekitError, UsageError

if TYPE_CHECKING:
    from edgekit.pipeline.outcome import Build

CLEAN, USER_ERROR, REJECTED = 0, 2, 3
INTERRUPTED = 130

app = typer.Typer(
    name="edgekit",
    help="Export a trained model to everything the edge runs, and prove each artifact against a recorded reference.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, typer.Option("--json", help="Print one machine-readable object and nothing else.")]
BuildFolder = Annotated[Path, typer.Argument(help="A model's build folder, for example build/arr-coc-tiny.")]
DEFAULT_BUILD = Path("build/arr-coc-tiny")
ModelName = Annotated[
    str, typer.Argument(help="Preset, checkpoint path, or package.module:factory.", autocompletion=model_names)
]


def main() -> None:
    """Entry point: turn what a user can fix into one sentence and exit code 2."""
    try:
        app()
    except EdgekitError as error:
        print(f"edgekit: {error}", file=sys.stderr)
        sys.exit(USER_ERROR)
    except KeyboardInterrupt:
        print("edgekit: interrupted; what was finished is kept, run the same command to go on", file=sys.stderr)
        sys.exit(INTERRUPTED)


@app.callback(invoke_without_command=True)
def edgekit(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Export a trained model to everything the edge runs, and prove each artifact against a recorded reference."""
    if version:
        import edgekit as package

        print(f"edgekit {package.__version__}")
        raise typer.Exit


@app.command(epilog="Examples:\n\n`edgekit targets`\n\n`edgekit targets onnx-int8-static`\n\n`edgekit targets --json`")
def targets(
    name: Annotated[str, typer.Argument(help="Show one target with its options.", autocompletion=target_names)] = "",
    as_json: Json = False,
) -> None:
    """List the targets: what each makes, what it needs, whether it is installed; with a name its options and places."""
    from edgekit import registry
    from edgekit.cli.console import print_table, show_target

    if name:
        target = registry.find(name)
        if as_json:
            print(json.dumps(registry.description(name, target), indent=2))
        else:
            show_target(name, target)
        return
    rows, broken = registry.descriptions()
    if as_json:
        print(json.dumps({"schema_version": 2, "targets": rows, "broken": broken}, indent=2))
        return
    shown = [
        (str(r["name"]), str(r["summary"]), str(r["source"]), "; ".join(r["missing"]) or "installed") for r in rows
    ]
    shown += [(name, sentence, "", "broken") for name, sentence in broken.items()]
    print_table(("target", "makes", "from", "state"), shown)


@app.command(
    epilog="Examples:\n\n`edgekit export`\n\n`edgekit export -t onnx -t onnx-fp16`\n\n"
    "`edgekit export weights.safetensors -t onnx -o build`\n\n`edgekit export mypkg.mymodule:factory -t onnx`\n\n"
    "`edgekit export -t onnx -O onnx.opset=21`"
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
    fresh: Annotated[bool, typer.Option("--fresh", help="Export and judge again although nothing changed.")] = False,
    as_json: Json = False,
) -> None:
    """Export a model, prove each artifact against the reference, and write the report."""
    from edgekit import api

    build = api.export(
        model,
        targets=target or (),
        output=output,
        options=_options(option or []),
        fresh=fresh,
        progress=_progress(as_json),
    )
    _conclude(build, as_json)


@app.command(
    epilog="Examples:\n\n`edgekit quantize`\n\n`edgekit quantize --search full`\n\n"
    "`edgekit quantize --method entropy --calibration photos/`"
)
def quantize(
    model: ModelName = "arr-coc-tiny",
    search: Annotated[str, typer.Option(help="quick, full, or none (one recipe, all in INT8).")] = "quick",
    method: Annotated[str, typer.Option(help="How ranges are made: auto, minmax, entropy or percentile.")] = "auto",
    calibration: Annotated[
        str, typer.Option(help="Folder of images to calibrate with; default: the model's own calibration set.")
    ] = "",
    reduce_range: Annotated[
        bool, typer.Option("--reduce-range", help="7-bit weights only, for x86 without VNNI (see `edgekit doctor`).")
    ] = False,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of builds.")] = Path("build"),
    fresh: Annotated[bool, typer.Option("--fresh", help="Quantize and judge again although nothing changed.")] = False,
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
        output=output,
        fresh=fresh,
        progress=_progress(as_json),
    )
    made = build[api.INT8]
    notes = made.manifest.notes if made.manifest is not None else ()
    found = trials.read_trials(build.path, api.INT8) if notes else ()
    if not as_json:
        show_trials(found, notes)
    _conclude(build, as_json, trials=[asdict(trial) for trial in found])
    if made.slower:
        sys.exit(REJECTED)


@app.command(epilog="Example: `edgekit verify build/arr-coc-tiny`")
def verify(build: BuildFolder = DEFAULT_BUILD, as_json: Json = False) -> None:
    """Check every artifact's files, run it again, and judge it again."""
    from edgekit import api

    _conclude(api.verify(build, progress=_progress(as_json)), as_json)


@app.command(epilog="Example: `edgekit report build/arr-coc-tiny`")
def report(build: BuildFolder = DEFAULT_BUILD, as_json: Json = False) -> None:
    """Write report.html, .json, .md and .csv from what is in a build; runs nothing."""
    from edgekit import report as reports

    reports.write_report(build)
    paths = [str(build / f"report.{suffix}") for suffix in ("html", "json", "md", "csv")]
    print(json.dumps({"report": paths}) if as_json else "\n".join(paths))


@app.command(epilog="Examples:\n\n`edgekit reference --device cuda -o reference`\n\n`edgekit reference --device cpu`")
def reference(
    model: ModelName = "arr-coc-tiny",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Where to write; default: the model's build folder, for `edgekit verify`."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Record what the model itself says on a device: outputs, noise floor, latency."""
    from edgekit import api

    folder = api.record(model, device=device, output=output, progress=_progress(as_json))
    print(json.dumps({"reference": str(folder)}) if as_json else f"reference: {folder}")


@app.command(epilog="Examples:\n\n`edgekit demo`\n\n`edgekit demo build/arr-coc-tiny --port 8000 --no-open`")
def demo(
    build: BuildFolder = DEFAULT_BUILD,
    port: Annotated[int, typer.Option(help="Port on this machine; 0 takes a free one.", min=0, max=65535)] = 0,
    browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the default browser.")] = True,
) -> None:
    """Serve a build's browser bundle, or a bundle, on this machine until interrupted."""
    from edgekit.serving.static import Server

    server = Server(build if (build / "index.html").is_file() else build / "web", port=port)
    print(f"{server.url}  (Ctrl-C stops)", flush=True)
    if browser:
        import webbrowser

        webbrowser.open(server.url)
    server.serve()


@app.command(
    epilog="Examples:\n\n`edgekit assets android build/arr-coc-tiny --into mobile/android/sample`\n\n"
    "`edgekit assets ios build/arr-coc-tiny --into MyApp --check`"
)
def assets(
    platform: Annotated[str, typer.Argument(help="android or ios.")],
    build: BuildFolder,
    into: Annotated[Path, typer.Option("--into", help="The app: a Gradle app module, or an Xcode or SwiftPM folder.")],
    target: Annotated[
        list[str] | None, typer.Option("-t", "--target", help="Which artifacts; default: all that fit.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit 3 if the app is stale.")] = False,
    as_json: Json = False,
) -> None:
    """Write what a mobile app's build consumes: artifacts, golden vectors, typed constants."""
    from edgekit import apps

    if check:
        stale = apps.check_assets(platform, build, into, tuple(target or ()))
        print(json.dumps({"stale": list(stale)}, indent=2) if as_json else "\n".join(stale) or "up to date")
        sys.exit(REJECTED if stale else CLEAN)
    done = apps.write_assets(platform, build, into, tuple(target or ()))
    if as_json:
        print(json.dumps({"written": done.written, "removed": done.removed, "kept": done.kept, "notes": done.notes}))
        return
    print(f"{len(done.written)} written, {len(done.removed)} removed, {len(done.kept)} unchanged, {done.size} bytes")
    for note in done.notes:
        print(note)


@app.command(epilog="Example: `edgekit explain build/arr-coc-tiny/onnx-int8-static`")
def explain(
    artifact: Annotated[Path, typer.Argument(help="An fp16 or INT8 ONNX artifact in its build.")],
    images: Annotated[int, typer.Option(min=1, help="Evaluation images to run.")] = 8,
    rows: Annotated[int, typer.Option(min=1, help="Modules to list, those with most own noise first.")] = 12,
    as_json: Json = False,
) -> None:
    """Tell in which modules an artifact's error starts and where it grows; writes JSON and a plot beside the build."""
    from edgekit.analysis import attribution

    found = attribution.explain(artifact, images)
    data, plot = attribution.write_attribution(found, artifact.resolve().parent / "cache")
    if as_json:
        print(json.dumps({**found.as_record(), "files": [str(data), str(plot)]}, indent=2))
        return
    from edgekit.cli.console import print_table

    shown = [
        (
            p.module or "(outermost)",
            f"{p.noise_in:.2%}",
            f"{p.noise_out:.2%}",
            f"{p.introduced:.2%}",
            f"{p.growth:.1f}x",
        )
        for p in found.worst(rows)
    ]
    print_table(("module", "noise in", "noise out", "introduced here", "growth"), shown)
    print(f"{data}\n{plot}")


@app.command(epilog="Example: `edgekit doctor --json`")
def doctor(as_json: Json = False) -> None:
    """Show versions, devices, and what can be exported and verified on this host."""
    from edgekit.cli.doctor import examine

    found = examine()
    if as_json:
        print(json.dumps(found, indent=2))
        return
    from edgekit.cli.console import print_table

    for title, rows in found.items():
        print_table((title, ""), [(str(name), str(value)) for name, value in rows.items()])


def _options(given: list[str]) -> dict[str, dict[str, str]]:
    options: dict[str, dict[str, str]] = {}
    for text in given:
        name, equals, value = text.partition("=")
        target, dot, option = name.rpartition(".")
        if not (equals and dot):
            raise UsageError(f"option '{text}' is not of the form TARGET.NAME=VALUE")
        options.setdefault(target, {})[option] = value
    return options


def _progress(as_json: bool) -> Literal["auto", "none"]:
    return "none" if as_json else "auto"


def _conclude(build: Build, as_json: bool, **more: object) -> None:
    if as_json:
        print(json.dumps({**build.as_record(), **more}, indent=2))
    else:
        from edgekit.cli.console import show_build

        show_build(build)
    statuses = {outcome.status for outcome in build.outcomes}
    if "rejected" in statuses:
        sys.exit(REJECTED)
    if "failed" in statuses:
        sys.exit(USER_ERROR)


if __name__ == "__main__":
    main()
