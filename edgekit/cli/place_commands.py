"""Commands for further places (list, pack, import) and for environments."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from edgekit.cli.arguments import DEFAULT_BUILD, BuildFolder, Chosen, Images, Json, TrustBuild, print_answer, print_json
from edgekit.cli.build_commands import conclude, progress_style
from edgekit.cli.completion import among, place_names
from edgekit.cli.help import App, epilog
from edgekit.errors import UsageError
from edgekit.storage import environment

env = App(name="env", help="Install and list environments that some places and targets need.", no_args_is_help=True)


@epilog("Examples:\n\n`edgekit places`\n\n`edgekit places --json`")
def places(as_json: Json = False) -> None:
    """List the places that `--place` takes: runtimes for all artifacts of a format, and targets' own places."""
    from edgekit import doors
    from edgekit.cli.console import print_table
    from edgekit.hosts.catalogue import own_places

    runtimes, _ = doors.places.load_all()

    own = {name: f"own place of {', '.join(targets)}" for name, targets in own_places().items() if name not in runtimes}
    if as_json:
        rows = [
            {"name": n, "summary": r.summary, "opens": r.opens, "settings": dict(r.settings), "install": r.install}
            for n, r in runtimes.items()
        ]
        more = [{"name": n, "summary": what, "opens": (), "settings": {}, "install": ""} for n, what in own.items()]
        print_json({"schema_version": 1, "places": rows + more})
        return
    lines = [(n, r.summary, ", ".join(r.opens), r.install) for n, r in runtimes.items()]
    print_table(("place", "what", "opens", "install"), [*lines, *((n, what, "", "") for n, what in own.items())])


@epilog(
    "Examples:\n\n`edgekit pack --place ort-cuda`\n\n"
    "`edgekit pack build/arr-coc-tiny -t onnx --place ort-cuda --images 16 -o pack.zip`\n\n"
    "On the other host: unzip it, run `python -m edgekit.evaluate` in the folder, and pass result.zip to `edgekit "
    "import`."
)
def pack(
    build: BuildFolder = DEFAULT_BUILD,
    place: Annotated[
        list[str] | None,
        typer.Option("--place", help="Runtime on the other host; repeat for more.", autocompletion=place_names),
    ] = None,
    target: Chosen = None,
    images: Images = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="The zip file to write.")] = Path("pack.zip"),
    trust_build: TrustBuild = False,
    as_json: Json = False,
) -> None:
    """Pack artifacts, inputs and a runner for a host that cannot be reached from here."""
    from edgekit import api

    if not place:
        raise UsageError(
            "name the runtime on the other host with --place, for example --place ort-cuda. Run `edgekit places` for "
            "the list"
        )
    packed = api.pack(
        build,
        output,
        places=place,
        images=images,
        targets=target or (),
        trust_build=trust_build,
        progress=progress_style(as_json),
    )
    if as_json:
        print_json({"pack": str(output), "targets": packed, "bytes": output.stat().st_size})
        return
    print(f"{output}: {', '.join(packed)}, {output.stat().st_size / 1e6:.1f} MB")
    print(
        "on the other host: unzip it, run `python -m edgekit.evaluate` in the folder, and pass result.zip to `edgekit "
        "import`"
    )


@epilog(
    "Examples:\n\n`edgekit import result.zip`\n\n`edgekit import result.zip build/arr-coc-tiny`\n\n"
    "`edgekit import result.json build/arr-coc-tiny --name pixel-8-onnx`",
)
def import_(
    result: Annotated[Path, typer.Argument(help="The result.zip of a pack's runner, or the result.json of a phone.")],
    build: BuildFolder = DEFAULT_BUILD,
    name: Annotated[
        str | None, typer.Option("--name", help="Name of a phone's result in the report, for example pixel-8-onnx.")
    ] = None,
    trust_build: TrustBuild = False,
    as_json: Json = False,
) -> None:
    """Judge what a pack's runner returned, or check a phone's result, and show it in the build's report."""
    from edgekit import api
    from edgekit.report import imports

    # A phone writes one result.json; a pack's runner returns a zip of raw outputs to judge here.
    if result.suffix != ".json":
        if name is not None:
            raise UsageError(
                "--name applies only to a phone's result.json: a pack's result has the names of its places"
            )
        outcome = api.import_result(build, result, trust_build=trust_build, progress=progress_style(as_json))
        conclude(outcome, as_json)
        return
    if name is None:
        raise UsageError("a phone's result needs a name for the report. Add --name, for example --name pixel-8-onnx")
    folder = imports.add_result(build, result, name)
    print_answer(as_json, {"imported": str(folder)}, [folder])


@env.command(epilog="Example: `edgekit env add litert`")
def add(
    name: Annotated[
        str,
        typer.Argument(
            help="litert: for the targets of LiteRT.",
            autocompletion=among(*environment.LOCKED),
        ),
    ],
) -> None:
    """Download an environment, check it, and put it into the user's cache."""
    if name not in environment.LOCKED:
        raise UsageError(f"unknown environment '{name}'. Environments: {', '.join(environment.LOCKED)}")

    def progress(text: str) -> None:
        print(text, file=sys.stderr)

    print(environment.install(name, progress))


@env.command("list", epilog="Example: `edgekit env list`")
def list_() -> None:
    """List the environments, their folders, and missing ones."""
    from edgekit.cli.console import print_table
    from edgekit.cli.target_commands import environments

    rows = [(name, str(environment.folder(name)), state) for name, state in environments().items()]
    print_table(("environment", "folder", "state"), rows)
