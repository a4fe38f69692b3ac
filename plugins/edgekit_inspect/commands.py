"""The commands `explain`, `inspect` and `profile`: an artifact's error, its arithmetic, and a model's speed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgekit.cli.arguments import Device, Json, TrustBuild, print_json
from edgekit.cli.build_commands import progress_style
from edgekit.cli.completion import model_names
from edgekit.cli.help import epilog
from edgekit.errors import UsageError, suggestion

if TYPE_CHECKING:
    from edgekit.artifact.profile import BatchProfile, ModeProfile, Profile


@epilog("Example: `edgekit explain build/arr-coc-tiny/onnx-int8-static`")
def explain(
    artifact: Annotated[Path, typer.Argument(help="An fp16 or INT8 ONNX artifact in its build.")],
    images: Annotated[int, typer.Option(min=1, help="Evaluation images to run.")] = 8,
    rows: Annotated[int, typer.Option(min=1, help="Modules to list, most introduced error first.")] = 12,
    as_json: Json = False,
) -> None:
    """Show which modules introduce an artifact's error and which propagate it; write JSON and a plot."""
    from edgekit.api import local
    from edgekit_inspect import attribution

    artifact = local(artifact, writable=True, progress=progress_style(as_json))
    explanation = attribution.explain(artifact, images)
    data, plot = attribution.write_attribution(explanation, artifact.resolve().parent / "cache")
    if as_json:
        print_json({**explanation.as_record(), "files": [str(data), str(plot)]})
        return
    from edgekit.cli.console import print_table

    table = [
        (
            p.module or "(outermost)",
            f"{p.noise_in:.2%}",
            f"{p.noise_out:.2%}",
            f"{p.introduced:.2%}",
            f"{p.propagated_noise:.2%}",
        )
        for p in explanation.worst(rows)
    ]
    print_table(("module", "noise in", "noise out", "introduced here", "carried through"), table)
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
        Path | None,
        typer.Option("--html", help="Write a page that compares this graph with its build's fp32 one."),
    ] = None,
    provider: Annotated[
        str, typer.Option(help="Show ONNX Runtime's prediction for a provider instead: nnapi or coreml.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Show what an ONNX artifact computes, and how much of it in INT8 and in float, by operator and by layer."""
    from edgekit.api import local
    from edgekit_inspect import inspection

    artifact = local(artifact, progress=progress_style(as_json))
    if provider:
        show_provider(artifact, provider, html is not None, as_json)
        return
    result = inspection.inspect(artifact)
    if html is not None:
        inspection.write_page(inspection.inspect(artifact.resolve().parent / "onnx"), result, html)
    if as_json:
        print_json(result.as_record())
        return
    from edgekit.cli.console import print_table

    def cells(work: int, size: int) -> tuple[str, str, str]:
        return f"{work:,}", f"{work / max(result.multiplications, 1):.1%}", f"{size:,}"

    at = ", ".join(f"{axis} {size}" for axis, size in result.sizes.items())
    nodes = ", ".join(f"{count} {name}" for name, count in result.operators.items())
    print(f"{result.target}: {result.precision}, {result.size:,} bytes, {sum(result.operators.values())} nodes")
    print(f"{result.multiplications:,} multiplications{f' at {at}' if at else ''}\n")
    kinds = result.by_arithmetic().items()
    print_table(
        ("operator", "arithmetic", "nodes", "multiplications", "share", "weight bytes"),
        [(name, kind, str(count), *cells(work, size)) for (name, kind), (count, work, size) in kinds],
    )
    print()
    print_table(
        ("layer", "arithmetic", "multiplications", "share", "weight bytes"),
        [
            (layer.name, layer.arithmetic, *cells(layer.multiplications, layer.weight_bytes))
            for layer in result.largest(rows)
        ],
    )
    if len(result.layers) > rows:
        print(f"{len(result.layers) - rows} more layers: --rows {len(result.layers)}")
    if result.passes:
        print()
        print_table(("pass", "made", "removed"), [pass_.cells() for pass_ in result.passes])
    if result.uncounted:
        uncounted = ", ".join(f"{count} {name}" for name, count in result.uncounted.items())
        print(f"\nnot included in the multiplications: {uncounted}")
    print(f"\nnodes: {nodes}")
    print(f"graph: {artifact / inspection.ENTRY}, which Netron opens")
    if html is not None:
        print(f"page: {html}")


def show_provider(artifact: Path, provider: str, html: bool, as_json: bool) -> None:
    """Print ONNX Runtime's prediction for an artifact in a provider.

    Raises:
        UsageError: If the provider is unknown, or the user requests a page.
    """
    from edgekit.cli.console import print_table
    from edgekit_inspect.inspection import PROVIDERS, predict_provider

    if provider not in PROVIDERS:
        hint = suggestion(provider, PROVIDERS)
        raise UsageError(f"no provider '{provider}'. {hint}Possible: {', '.join(PROVIDERS)}")
    if html:
        raise UsageError("--html shows two graphs and --provider one. Use only one of them")
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


@epilog(
    "Examples:\n\n`edgekit profile arr-coc-tiny`\n\n`edgekit profile build/arr-coc-tiny --batch 1 --batch 8`\n\n"
    "`edgekit profile mypackage.models:make --module head --rate 20`\n\n"
    "`edgekit profile build/arr-coc-tiny --device cuda --trust-build --json`"
)
def profile(
    model: Annotated[
        str,
        typer.Argument(
            help="A build's folder, whose verified artifacts are timed too; a preset, a checkpoint, or "
            "package.module:factory.",
            autocompletion=model_names,
        ),
    ] = "arr-coc-tiny",
    device: Device = "cpu",
    batch: Annotated[list[int] | None, typer.Option(min=1, help="Batch size; repeat for more. Default: 1.")] = None,
    mode: Annotated[
        list[str] | None, typer.Option(help="Only this mode, in addition to eager; repeatable. Default: all.")
    ] = None,
    module: Annotated[str, typer.Option(help="Profile only this module, by its path as in named_modules().")] = "",
    rate: Annotated[float, typer.Option(min=0.0, help="Runs per second, for the time until compiling pays off.")] = 0.0,
    seconds: Annotated[float, typer.Option(min=0.0, help="Minimum timing of each mode.")] = 2.0,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Folder for profile.json and profile.svg; for a build its cache/."),
    ] = None,
    trust_build: TrustBuild = False,
    as_json: Json = False,
) -> None:
    """Time a model's modes in turn; show graph breaks, recompilations, break-even and time by module and operator."""
    from edgekit_inspect import api

    result = api.profile(
        model,
        device=device,
        batches=batch or (1,),
        modes=mode or (),
        module=module,
        rate=rate,
        seconds=seconds,
        output=output,
        trust_build=trust_build,
        progress="none" if as_json else "auto",
    )
    if as_json:
        print_json(result.as_record())
    else:
        _print(result)


def _print(result: Profile) -> None:
    from edgekit.cli.console import print_table

    print(
        f"{result.model} on {result.device}, which reaches {result.peaks.flops / 1e9:,.0f} GFLOP/s in an fp32 matrix "
        f"product and {result.peaks.bandwidth / 1e9:,.0f} GB/s in a copy"
    )
    for batch in result.batches:
        title = f"batch {batch.batch}" if batch.batch else "one run"
        work = f"{batch.flops / 1e9:.2f} GFLOP in products, {batch.bytes / 1e6:.1f} MB of weights, inputs, outputs"
        print(f"\n{title}: {work}")
        eager = batch.modes[0]
        rows = [_row(row, eager, batch, result) for row in batch.modes if not row.error]
        print_table(
            ("mode", "p50 ms", "p10 to p90", "speed", "of the peak", "first answer", "memory", "pays after", "max abs"),
            rows,
        )
        for row in batch.modes:
            if row.error:
                print(f"{row.mode}: does not run here: {row.error}")
    print(_compiling(result))
    for title, shares in (
        ("modules, eager", result.modules),
        ("kernels" if result.device == "cuda" else "operators", result.operators),
        ("the same, compiled", result.kernels),
    ):
        if shares:
            print()
            total = sum(share.milliseconds for share in shares)
            print_table(
                (title, "calls", "ms", "share"),
                [(s.name[:70], str(s.calls), f"{s.milliseconds:.3f}", f"{s.milliseconds / total:.0%}") for s in shares],
            )
    for mode in result.left_out:
        print(f"not timed: {mode}")
    print(f"\n{result.advice}")


def _row(row: ModeProfile, eager: ModeProfile, batch: BatchProfile, result: Profile) -> tuple[str, ...]:
    reached = batch.flops / (row.p50 / 1000) / result.peaks.flops
    pays = "" if row is eager else "never" if row.break_even is None else f"{row.break_even:,} runs"
    return (
        row.mode,
        f"{row.p50:.3g}",
        f"{row.p10:.3g} to {row.p90:.3g}",
        f"{eager.p50 / row.p50:.2f}",
        f"{reached:.0%}",
        f"{row.first_ms / 1000:.2f} s",
        "" if row.memory is None else f"{row.memory / 1e6:.0f} MB",
        "at once" if row.break_even == 0 else pays,
        "" if row.max_abs is None else f"{row.max_abs:.1e}",
    )


def _compiling(result: Profile) -> str:
    lines = [""]
    if result.unexplained:
        lines.append(f"graph breaks: PyTorch cannot compile it: {result.unexplained}")
    elif not result.breaks:
        lines.append("graph breaks: none")
    for graph_break in result.breaks:
        lines.append(
            f"graph break at {graph_break.file}:{graph_break.line}: `{graph_break.text}`: {graph_break.reason}"
        )
    if result.sizes and not result.unexplained:
        lines.append(f"recompilations over {len(result.sizes)} sizes: {len(result.recompilations) or 'none'}")
    for anew in result.recompilations:
        sizes = ", ".join(f"{axis} {size}" for axis, size in anew.sizes.items())
        lines.append(f"  for {sizes}: {anew.guard}")
    return "\n".join(lines)
