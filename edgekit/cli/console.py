"""Display of results: tables on standard output. Piped output has tabs and no colours."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgekit.artifact.fact import Code
from edgekit.artifact.option import as_text
from edgekit.storage.verified_io import visible

if TYPE_CHECKING:
    from edgekit.pipeline.outcome import Build, TargetOutcome
    from edgekit.target import Target

# Characters of a line of text in a pipe.
WIDTH = 120
INT8 = "int8"
# Notes of a verified target that are printed.
SHOWN_NOTES = (Code.SLOWER, Code.FRESH_INPUTS, Code.MADE_INPUTS)
# Most reasons of one target; the report has all.
MOST_REASONS = 2


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: with Rich on a terminal, as tab-separated lines in a pipe."""
    if not sys.stdout.isatty():
        for row in rows:
            print("\t".join(map(visible, row)))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for head in heads:
        table.add_column(head)
    for row in rows:
        table.add_row(*(_add_colour(visible(cell)) for cell in row))
    Console().print(table)


def show_build(build: Build, quiet: bool = False, verbose: bool = False) -> None:
    """Print a row per target, reasons, recommendations and next commands; if quiet, only targets not verified.

    Args:
        build: Outcome of a run.
        quiet: True to print only targets that are not verified.
        verbose: True to print the evidence for each verdict and all notes, as in the report.
    """
    for name, part in build.parts.items():
        _print_wrapped(f"part '{name}':")
        show_build(part, quiet, verbose)
    if build.parts:
        print("the whole:")
    if build.doubt:
        _print_wrapped(f"warning: {build.doubt}")
    outcomes = [o for o in build.outcomes if not quiet or o.status != "verified"]
    if quiet and not outcomes:
        return
    heads = ("target", "verdict", "size", "times as fast as", "nearest its limit")
    print_table(heads, [_cells(outcome) for outcome in outcomes])
    for outcome in outcomes:
        if outcome.part_of and not outcome.left_out:
            _print_wrapped(f"{outcome.target}: exported as a part of '{outcome.part_of}'")
        # The exporter's own notes say, for example, what calibrated INT8.
        notes = outcome.manifest.notes if outcome.manifest is not None else ()
        for sentence in (*outcome.sentences, *notes) if verbose else _reasons(outcome):
            _print_wrapped(f"{outcome.target}: {sentence}")
    if build.note:
        _print_wrapped(build.note)
    if quiet:
        return
    _print_wrapped(f"reference: {build.reference}")
    target = outcomes[0].target if len(outcomes) == 1 else "TARGET"
    print(f"artifacts: {build.path / 'PART' / 'TARGET' if build.parts else build.path / target}")
    if build.report.is_file():
        print(f"report: {build.report}")
    if build.report.is_file() and not build.parts:
        _show_next(build)


def _show_next(build: Build) -> None:
    """Print the recommendations, and the commands for them; without any, what the task metric says."""
    from edgekit.report import formats
    from edgekit.report.recommendation import next_commands, recommend
    from edgekit.report.rows import read_study

    study = read_study(build.path)
    advice = recommend(study)
    for recommendation in advice:
        _print_wrapped(f"{recommendation.audience}: {recommendation.sentence}")
        # Who asked for INT8 and is told to ship something else wants to know why.
        if recommendation.best is not None and recommendation.best.row.precision != INT8:
            for other in recommendation.others:
                if INT8 in other.partition(":")[0]:
                    _print_wrapped(f"  not {other}")
    evaluation = study.reference.evaluation
    for row in () if advice else study.current:
        if text := formats.task(evaluation.metric, evaluation.mean, row.drop):
            _print_wrapped(f"{row.label}: {text} on {len(evaluation.values)} of your inputs")
    for command in next_commands(build.path, study, advice):
        print(f"next: {command}")


def _cells(outcome: TargetOutcome) -> tuple[str, ...]:
    """Return a target's row: its status, size, speed and the measure that decided, with its limit."""
    from edgekit.report.formats import beside_baseline, sizes
    from edgekit.report.recommendation import deciding_text, decisive, decisive_share

    places = outcome.places
    # The speed is of the first place with a baseline, else of the first timed place.
    timed = [place for place in places if place.ratios] or [place for place in places if place.timings]
    # Of several places, the one nearest to its limit.
    decided = max((place for place in places if decisive(place) is not None), key=decisive_share, default=None)
    where = f"{decided.place}: " if decided is not None and len(places) > 1 else ""
    return (
        outcome.target,
        outcome.status_text + ", unchanged" * outcome.reused,
        sizes(outcome.size, outcome.first_visit) if outcome.size is not None else "",
        beside_baseline(timed[0]) if timed else "",
        where + deciding_text(decided) if decided is not None else "",
    )


def _reasons(outcome: TargetOutcome) -> list[str]:
    """Return a few reasons why a target is not verified; for a verified one, the notes that users need."""
    if outcome.status == "verified":
        return [str(note.fact) for note in outcome.notes if note.fact.code in SHOWN_NOTES]
    from edgekit.report.recommendation import join_reasons

    first = outcome.sentences[: bool(outcome.error) + outcome.left_out]
    reasons = [f"{place.place}: {text}" for place in outcome.places for text in join_reasons(place.reasons)]
    lines = [*first, *map(str, outcome.over), *reasons]
    rest = len(lines) - MOST_REASONS
    return [*lines[:MOST_REASONS], *([f"{rest} more reasons in the report, or with -v"] if rest > 0 else [])]


def _print_wrapped(text: str) -> None:
    """Print a sentence wrapped to the terminal's width, or to WIDTH letters in a pipe; a traceback keeps its lines."""
    width = shutil.get_terminal_size((WIDTH, 0)).columns if sys.stdout.isatty() else WIDTH
    # Paths and commands stay intact, so that users can copy them.
    for number, line in enumerate(text.splitlines()):
        wrapper = textwrap.TextWrapper(width, "  " if number else "", "  ", break_long_words=False)
        wrapper.break_on_hyphens = False
        print(wrapper.fill(visible(line)))


def show_target(name: str, target: Target) -> None:
    """Print one target: its source, its places, its requirements and its options."""
    facts = [("makes", target.summary), ("from", target.source), ("groups", ", ".join(target.groups) or "none")]
    facts += [("places", ", ".join(f"{place.name} ({'; '.join(place.tolerances)})" for place in target.places))]
    texts = (
        ("use it for", target.about.use_case),
        ("verified in", target.about.proved_by),
        ("not covered", target.about.not_covered),
    )
    facts += [(label, text) for label, text in texts if text]
    facts += [("needs", command) for command in dict.fromkeys(need.install for need in target.needs)]
    print_table((name, ""), facts)
    print()
    if not target.options:
        print("no options")
        return
    rows = [(f"{name}.{o.name}", o.kind, as_text(o.default) or "-", o.possible, o.help) for o in target.options]
    print_table(("option", "type", "default", "possible", "meaning"), rows)


def show_notes(notes: Sequence[str]) -> None:
    """Print an exporter's notes on its artifact."""
    for note in notes:
        _print_wrapped(note)


def _add_colour(cell: str) -> str:
    from rich.markup import escape

    from edgekit.progress import COLOURS

    colour = COLOURS.get(cell.removesuffix(", unchanged"))
    return f"[{colour}]{escape(cell)}[/]" if colour else escape(cell)
