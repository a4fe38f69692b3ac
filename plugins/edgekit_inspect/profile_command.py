"""`edgekit profile`: how quick a model is in each mode, and what compiling costs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgekit.cli.arguments import Json, TrustBuild, print_json
from edgekit.cli.completion import among, model_names
from edgekit.cli.help import epilog

if TYPE_CHECKING:
    from edgekit.artifact.profile import BatchProfile, ModeProfile, Profile, Share


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
    device: Annotated[str, typer.Option(help="cpu or cuda.", autocompletion=among("cpu", "cuda"))] = "cpu",
    batch: Annotated[list[int] | None, typer.Option(min=1, help="Batch size; repeat for more. Default: 1.")] = None,
    mode: Annotated[
        list[str] | None, typer.Option(help="Only this mode, beside eager; repeat for more. Default: all.")
    ] = None,
    module: Annotated[str, typer.Option(help="Profile this module alone, by its path as in named_modules().")] = "",
    rate: Annotated[float, typer.Option(min=0.0, help="Runs a second: how long until compiling has paid.")] = 0.0,
    seconds: Annotated[float, typer.Option(min=0.0, help="How long each mode is timed, at least.")] = 2.0,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Folder for profile.json and profile.svg; of a build its cache/."),
    ] = None,
    trust_build: TrustBuild = False,
    as_json: Json = False,
) -> None:
    """Time a model's modes in turn, and show graph breaks, recompilations, break-even and where the time goes."""
    from edgekit_inspect import api

    done = api.profile(
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
        print_json(done.as_record())
    else:
        _print(done)


def _print(done: Profile) -> None:
    from edgekit.cli.console import print_table

    print(
        f"{done.model} on {done.device}, which reaches {done.peak_flops / 1e9:,.0f} GFLOP/s in an fp32 matrix product "
        f"and {done.peak_bandwidth / 1e9:,.0f} GB/s in a copy"
    )
    for batch in done.batches:
        print(f"\n{_work(batch)}")
        eager = batch.modes[0]
        rows = [_row(row, eager, batch, done) for row in batch.modes if not row.error]
        print_table(
            ("mode", "p50 ms", "p10 to p90", "speed", "of the peak", "first answer", "memory", "pays after", "max abs"),
            rows,
        )
        for row in batch.modes:
            if row.error:
                print(f"{row.mode}: does not run here: {row.error}")
    print(_compiling(done))
    for title, shares in (
        ("modules, eager", done.modules),
        ("kernels" if done.device == "cuda" else "operators", done.operators),
        ("the same, compiled", done.kernels),
    ):
        if shares:
            print()
            print_table((title, "calls", "ms", "share"), _shares(shares))
    for left in done.left_out:
        print(f"not timed: {left}")
    print(f"\n{done.advice}")


def _work(batch: BatchProfile) -> str:
    title = f"batch {batch.batch}" if batch.batch else "one run"
    return f"{title}: {batch.flops / 1e9:.2f} GFLOP in products, {batch.bytes / 1e6:.1f} MB of weights, inputs, outputs"


def _row(row: ModeProfile, eager: ModeProfile, batch: BatchProfile, done: Profile) -> tuple[str, ...]:
    reached = batch.flops / (row.p50 / 1000) / done.peak_flops
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


def _compiling(done: Profile) -> str:
    lines = [""]
    if done.unexplained:
        lines.append(f"graph breaks: PyTorch cannot compile it: {done.unexplained}")
    elif not done.breaks:
        lines.append("graph breaks: none")
    for one in done.breaks:
        lines.append(f"graph break at {one.file}:{one.line}: `{one.text}`: {one.reason}")
    if done.sizes and not done.unexplained:
        lines.append(f"recompilations over {len(done.sizes)} sizes: {len(done.recompilations) or 'none'}")
    for anew in done.recompilations:
        sizes = ", ".join(f"{axis} {size}" for axis, size in anew.sizes.items())
        lines.append(f"  for {sizes}: {anew.guard}")
    return "\n".join(lines)


def _shares(shares: Sequence[Share]) -> list[tuple[str, ...]]:
    whole = sum(one.milliseconds for one in shares)
    return [
        (one.name[:70], str(one.calls), f"{one.milliseconds:.3f}", f"{one.milliseconds / whole:.0%}") for one in shares
    ]
