"""The commands that tell of targets and hosts, and that use what a build holds."""

from __future__ import annotations

import io
import socket
import sys
from collections.abc import Mapping
from dataclasses import asdict
from importlib import util
from pathlib import Path
from typing import Annotated

import typer

from edgekit.cli.arguments import (
    CLEAN,
    DEFAULT_BUILD,
    REJECTED,
    BuildFolder,
    Json,
    Key,
    RequireSignature,
    TrustBuild,
    app,
    print_json,
    required,
)
from edgekit.cli.build_commands import progress_style
from edgekit.cli.completion import among, target_names
from edgekit.errors import UsageError, suggestion

LOCAL, EVERY = "127.0.0.1", "0.0.0.0"  # noqa: S104 - only where the user asks for it
OPEN_TO_ALL = (
    "Warning: every device of this network can open the page. Over plain HTTP browsers give other devices no threads, "
    "no WebGPU, no camera and no offline use: serve the folder over HTTPS for these."
)

NO_CODE = "For a QR code of the address: pip install segno"


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
            print_json(asdict(registry.info(name, target)))
        else:
            show_target(name, target)
        return
    loaded, broken = registry.loadable()
    rows = [registry.info(name, target) for name, target in loaded.items()]
    if as_json:
        print_json({"schema_version": 2, "targets": list(map(asdict, rows)), "broken": broken})
        return
    shown = [(row.name, row.summary, row.source, "; ".join(row.missing) or "installed") for row in rows]
    shown += [(name, sentence, "", "broken") for name, sentence in broken.items()]
    print_table(("target", "makes", "from", "state"), shown)


@app.command(
    epilog="Examples:\n\n`edgekit demo`\n\n`edgekit demo build/arr-coc-tiny --port 8000 --no-open`\n\n"
    "`edgekit demo --host 0.0.0.0`"
)
def demo(
    build: BuildFolder = DEFAULT_BUILD,
    port: Annotated[int, typer.Option(help="Port on this machine; 0 takes a free one.", min=0, max=65535)] = 0,
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 lets every device of the network in, such as a phone.")
    ] = LOCAL,
    browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the default browser.")] = True,
) -> None:
    """Serve a build's browser bundle, or a bundle, on this machine until interrupted."""
    from edgekit.serving.static import Server
    from edgekit.stores import local

    build = local(build)
    server = Server(build if (build / "index.html").is_file() else build / "web", host, port)
    for url in _reachable(server.url):
        print(f"{url}  (Ctrl-C stops)", flush=True)
        if sys.stdout.isatty() and not url.startswith(f"http://{LOCAL}:"):
            print(qr_code(url) or NO_CODE, flush=True)
    if host not in ("localhost", LOCAL, "::1"):
        print(OPEN_TO_ALL, file=sys.stderr)
    if browser:
        import webbrowser

        webbrowser.open(server.url)
    server.serve()


def _reachable(url: str) -> tuple[str, ...]:
    """Where a page is, for this machine and, where the server listens on every address, for other devices."""
    from urllib.parse import urlsplit

    address = urlsplit(url)
    if address.hostname != EVERY:
        return (url,)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
        try:
            connection.connect(
                ("192.0.2.1", 9)
            )  # an address of documentation: nothing is sent, the route names our own
            own = connection.getsockname()[0]
        except OSError:  # no network
            own = LOCAL
    return tuple(f"http://{name}:{address.port}/" for name in dict.fromkeys((LOCAL, own)))


@app.command(
    epilog="Examples:\n\n`edgekit assets android build/arr-coc-tiny --into mobile/android/sample`\n\n"
    "`edgekit assets ios build/arr-coc-tiny --into MyApp --check`\n\n"
    "`edgekit assets ios build/arr-coc-tiny --into MyApp --deployment-target 27`\n\n"
    "`edgekit assets ios build/arr-coc-tiny --into MyApp --key release.pub --require-signature`\n\n"
    "`edgekit assets ios s3://bucket/arr-coc-tiny@0123456789abcdef --into MyApp --key release.pub`"
)
def assets(
    platform: Annotated[str, typer.Argument(help="android or ios.", autocompletion=among("android", "ios"))],
    build: BuildFolder,
    into: Annotated[Path, typer.Option("--into", help="The app: a Gradle app module, or an Xcode or SwiftPM folder.")],
    target: Annotated[
        list[str] | None,
        typer.Option("-t", "--target", help="Which artifacts; default: all that fit.", autocompletion=target_names),
    ] = None,
    deployment_target: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="VERSION", help="Oldest iOS that the app runs on; default: 17. From 27 on it gets Core AI."
        ),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit 3 if the app is stale.")] = False,
    trust_build: TrustBuild = False,
    key: Key = None,
    require_signature: RequireSignature = False,
    as_json: Json = False,
) -> None:
    """Write what a mobile app's build consumes: artifacts, golden vectors, typed constants."""
    from edgekit import apps
    from edgekit.stores import local

    key = required(key, require_signature)
    folder = local(build, progress=progress_style(as_json))
    request = (platform, folder, into, tuple(target or ()), trust_build, key, deployment_target)
    if check:
        stale = apps.check_assets(*request)
        if as_json:
            print_json({"stale": list(stale)})
        else:
            print("\n".join(stale) or "up to date")
        sys.exit(REJECTED if stale else CLEAN)
    done = apps.write_assets(*request)
    if as_json:
        print_json({"written": done.written, "removed": done.removed, "kept": done.kept, "notes": done.notes})
        return
    print(f"{len(done.written)} written, {len(done.removed)} removed, {len(done.kept)} unchanged, {done.size} bytes")
    for note in done.notes:
        print(note)


@app.command(epilog="Example: `edgekit explain build/arr-coc-tiny/onnx-int8-static`")
def explain(
    artifact: Annotated[Path, typer.Argument(help="An fp16 or INT8 ONNX artifact in its build.")],
    images: Annotated[int, typer.Option(min=1, help="Evaluation images to run.")] = 8,
    rows: Annotated[int, typer.Option(min=1, help="Modules to list, those that introduce most first.")] = 12,
    as_json: Json = False,
) -> None:
    """Tell in which modules an artifact's error starts and which pass it on; writes JSON and a plot."""
    from edgekit.analysis import attribution
    from edgekit.stores import local

    artifact = local(artifact, writable=True, progress=progress_style(as_json))
    explanation = attribution.explain(artifact, images)
    data, plot = attribution.write_attribution(explanation, artifact.resolve().parent / "cache")
    if as_json:
        print_json({**explanation.as_record(), "files": [str(data), str(plot)]})
        return
    from edgekit.cli.console import print_table

    shown = [
        (
            p.module or "(outermost)",
            f"{p.noise_in:.2%}",
            f"{p.noise_out:.2%}",
            f"{p.introduced:.2%}",
            f"{p.carried:.2%}",
        )
        for p in explanation.worst(rows)
    ]
    print_table(("module", "noise in", "noise out", "introduced here", "carried through"), shown)
    print(f"{data}\n{plot}")


@app.command(
    epilog="Examples:\n\n`edgekit inspect build/arr-coc-tiny/onnx-int8-static`\n\n"
    "`edgekit inspect build/arr-coc-tiny/onnx-int8-static --html beside.html`\n\n"
    "`edgekit inspect build/arr-coc-tiny/onnx --provider nnapi`"
)
def inspect(
    artifact: Annotated[Path, typer.Argument(help="An ONNX artifact in its build.")],
    rows: Annotated[int, typer.Option(min=1, help="Layers to list, those with most multiplications first.")] = 12,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write a page: this graph beside the fp32 one of its build.")
    ] = None,
    provider: Annotated[
        str, typer.Option(help="Show instead what it would take: nnapi, coreml, xnnpack, qnn or tensorrt.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Show what an ONNX artifact computes, and how much of it in INT8 and in float: by operator and by layer."""
    from edgekit.analysis import inspection
    from edgekit.stores import local

    artifact = local(artifact, progress=progress_style(as_json))
    if provider:
        show_provider(artifact, provider, html is not None, as_json)
        return
    found = inspection.inspect(artifact)
    if html is not None:
        inspection.write_page(inspection.inspect(artifact.resolve().parent / "onnx"), found, html)
    if as_json:
        print_json(found.as_record())
        return
    from edgekit.cli.console import print_table

    def cells(work: int, size: int) -> tuple[str, str, str]:
        return f"{work:,}", f"{work / max(found.multiplications, 1):.1%}", f"{size:,}"

    at = ", ".join(f"{axis} {size}" for axis, size in found.sizes.items())
    nodes = ", ".join(f"{count} {name}" for name, count in found.operators.items())
    print(f"{found.target}: {found.precision}, {found.size:,} bytes, {sum(found.operators.values())} nodes")
    print(f"{found.multiplications:,} multiplications{f' at {at}' if at else ''}\n")
    kinds = found.by_arithmetic().items()
    print_table(
        ("operator", "arithmetic", "nodes", "multiplications", "share", "weight bytes"),
        [(name, kind, str(count), *cells(work, size)) for (name, kind), (count, work, size) in kinds],
    )
    print()
    print_table(
        ("layer", "arithmetic", "multiplications", "share", "weight bytes"),
        [(one.name, one.arithmetic, *cells(one.multiplications, one.weight_bytes)) for one in found.largest(rows)],
    )
    if len(found.layers) > rows:
        print(f"{len(found.layers) - rows} more layers: --rows {len(found.layers)}")
    if found.passes:
        print()
        print_table(("pass", "made", "removed"), [one.cells() for one in found.passes])
    say_uncounted(found.uncounted)
    print(f"\nnodes: {nodes}")
    print(f"graph: {artifact / inspection.ENTRY}, which Netron opens")
    if html is not None:
        print(f"page: {html}")


def show_provider(artifact: Path, provider: str, html: bool, as_json: bool) -> None:
    """Print what a provider would take of an artifact, and why it leaves the rest.

    Raises:
        UsageError: If there is no such provider, or a page is asked for.
    """
    from edgekit.analysis import providers
    from edgekit.cli.console import print_table
    from edgekit.model.input_rows import BATCH

    if provider not in providers.PROVIDERS:
        hint = suggestion(provider, providers.PROVIDERS)
        raise UsageError(f"no provider '{provider}': {hint}possible are {', '.join(providers.PROVIDERS)}")
    if html:
        raise UsageError("--html shows two graphs and --provider one: name one of them")
    told = providers.would_take(artifact, provider)
    if as_json:
        print_json(told.as_record())
        return
    print(f"{told.target} in {provider}, not verified here: by {told.said_by}\n")
    rows = [
        (
            f"fixed at {', '.join(f'{axis} {size}' for axis, size in one.sizes.items())}" if one.sizes else "as it is",
            f"{one.taken} of {one.nodes}",
            f"{one.share:.1%}",
            str(one.partitions),
        )
        for one in told.found
    ]
    print_table(("sizes", "nodes taken", "of the multiplications", "partitions"), rows)
    last = told.found[-1]
    if last.left:
        print()
        print_table(
            (f"left{', at fixed sizes' if last.sizes else ''}", "because"),
            [(", ".join(f"{n} {name}" for name, n in one.operators.items()), one.reason) for one in last.left],
        )
    say_uncounted(last.uncounted)
    if last.unchecked:
        print(f"\nnot checked: {'; '.join(last.unchecked)}")
    if told.largest is not None:
        value, tensor = told.largest
        held = "within" if value <= providers.HALF_MAX else "beyond"
        print(f"\nlargest inner value of one input: {value:,.4g} in {tensor}, {held} fp16's 65504")
    if last.share > told.found[0].share:
        several = set(last.sizes) - {BATCH}
        next_one = "onnx-buckets  # files of fixed sizes" if several else "onnx -O onnx.shapes=static  # one fixed size"
        print(f"next: edgekit export -t {next_one}")


def say_uncounted(nodes: Mapping[str, int]) -> None:
    """Print which nodes multiply and are not counted, by operator."""
    if nodes:
        print(f"\nnot among the multiplications: {', '.join(f'{count} {name}' for name, count in nodes.items())}")


@app.command(epilog="Example: `edgekit doctor --json`")
def doctor(as_json: Json = False) -> None:
    """Show versions, devices, and what can be exported and verified on this host."""
    from edgekit.cli.doctor import examine

    facts = examine()
    if as_json:
        print_json(facts)
        return
    from edgekit.cli.console import print_table

    for title, rows in facts.items():
        print_table((title, ""), [(str(name), str(value)) for name, value in rows.items()])


def qr_code(url: str) -> str:
    """A QR code of an address, in block characters; empty where segno is not installed."""
    if util.find_spec("segno") is None:
        return ""
    import segno

    drawn = io.StringIO()
    segno.make(url, error="m", micro=False).terminal(out=drawn, compact=True)
    return drawn.getvalue()
