"""`edgekit explain` and `edgekit inspect`: where an artifact's error starts, and what it computes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgekit.cli.arguments import Json, print_json
from edgekit.cli.build_commands import progress_style
from edgekit.cli.help import epilog
from edgekit.errors import UsageError, suggestion


@epilog("Example: `edgekit explain build/arr-coc-tiny/onnx-int8-static`")
def explain(
    artifact: Annotated[Path, typer.Argument(help="An fp16 or INT8 ONNX artifact in its build.")],
    images: Annotated[int, typer.Option(min=1, help="Evaluation images to run.")] = 8,
    rows: Annotated[int, typer.Option(min=1, help="Modules to list, those that introduce most first.")] = 12,
    as_json: Json = False,
) -> None:
    """Tell in which modules an artifact's error starts and which pass it on; writes JSON and a plot."""
    from edgekit.api import local
    from edgekit_inspect import attribution

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


@epilog(
    "Examples:\n\n`edgekit inspect build/arr-coc-tiny/onnx-int8-static`\n\n"
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
        str, typer.Option(help="Show instead what ONNX Runtime predicts that nnapi or coreml takes.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Show what an ONNX artifact computes, and how much of it in INT8 and in float: by operator and by layer."""
    from edgekit.api import local
    from edgekit_inspect import inspection

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
    if found.uncounted:
        uncounted = ", ".join(f"{count} {name}" for name, count in found.uncounted.items())
        print(f"\nnot among the multiplications: {uncounted}")
    print(f"\nnodes: {nodes}")
    print(f"graph: {artifact / inspection.ENTRY}, which Netron opens")
    if html is not None:
        print(f"page: {html}")


def show_provider(artifact: Path, provider: str, html: bool, as_json: bool) -> None:
    """Print what ONNX Runtime predicts of an artifact in a provider.

    Raises:
        UsageError: If there is no such provider, or a page is asked for.
    """
    from edgekit.cli.console import print_table
    from edgekit_inspect.inspection import PROVIDERS, predict_provider

    if provider not in PROVIDERS:
        hint = suggestion(provider, PROVIDERS)
        raise UsageError(f"no provider '{provider}': {hint}possible are {', '.join(PROVIDERS)}")
    if html:
        raise UsageError("--html shows two graphs and --provider one: name one of them")
    answer = predict_provider(artifact, provider)
    if as_json:
        print_json(answer)
        return
    print(f"{answer['target']} in {provider}: predicted by ONNX Runtime {answer['onnxruntime']}, not verified\n")
    sizes = (("open sizes, as it is", answer["open"]), ("if all sizes were fixed", answer["fixed"]))
    rows = [(label, f"{count['nodes']} of {answer['nodes']}", str(count["partitions"])) for label, count in sizes]
    print_table(("sizes", "nodes taken", "partitions"), rows)
    if answer["unsupported"]:
        print(f"\nnot taken: {', '.join(answer['unsupported'])}")
    if answer["unchecked"]:
        print(f"\nnot checked: {'; '.join(answer['unchecked'])}")
