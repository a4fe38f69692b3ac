"""What a person sees of results: tables on standard output. Piped output has tabs and no colours."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgekit.artifact.fact import Code
from edgekit.artifact.option import as_text
from edgekit.storage.door import visible

if TYPE_CHECKING:
    from edgekit.pipeline.outcome import Build, TargetOutcome
    from edgekit.report.trials import TrialRow
    from edgekit.target import Target


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: with Rich on a terminal, as tab-separated lines in a pipe."""
    if not sys.stdout.isatty():
        for row in rows:
            print("\t".join(map(visible, row)))
        return
    from rich.console import Console
    from rich.table import Table

    drawn = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for head in heads:
        drawn.add_column(head)
    for row in rows:
        drawn.add_row(*(_coloured(visible(cell)) for cell in row))
    Console().print(drawn)


def show_build(build: Build, quiet: bool = False) -> None:
    """Print what became of each target, why, and where the artifacts and the report are; quiet: of those not verified.

    A terminal gets a table that fits into 60 columns, with the sentences and the paths on lines of their own; what was
    asked stands in the report. A pipe gets the fields target, verdict, path and sentence.
    """
    outcomes = [o for o in build.outcomes if not quiet or o.status != "verified"]
    if quiet and not outcomes:
        return
    if sys.stdout.isatty():
        heads = ("target", "verdict", "size", "p50")
        print_table(heads, [(o.target, _state(o), _size(o), _p50(o)) for o in outcomes])
        for outcome in outcomes:
            questions = {str(note) for note in outcome.notes if note.fact.code is Code.ASKED}
            for sentence in (sentence for sentence in outcome.sentences if sentence not in questions):
                print(f"{outcome.target}: {visible(sentence)}")
        print(f"artifacts: {build.path / '<target>'}")
    else:
        for outcome in outcomes:
            print_table((), _fields(outcome))
    if quiet:
        return
    print(f"reference: {visible(build.reference)}")
    if build.report.is_file():
        print(f"report: {build.report}")


def _fields(outcome: TargetOutcome) -> list[tuple[str, ...]]:
    sentences = outcome.sentences
    first = 0 if outcome.status == "verified" else 1  # beside "verified" stands nothing else
    row = (outcome.target, _state(outcome), str(outcome.path), *(sentences[:first] or ("",)))
    return [row, *(("", "", "", sentence) for sentence in sentences[first:])]


def _state(outcome: TargetOutcome) -> str:
    return f"{outcome.told} (unchanged)" if outcome.reused else outcome.told


def _size(outcome: TargetOutcome) -> str:
    if outcome.size is None:
        return ""
    visit = f", first visit {outcome.first_visit / 1e6:.2f}" if outcome.first_visit is not None else ""
    return f"{outcome.size / 1e6:.2f} MB{visit}"


def _p50(outcome: TargetOutcome) -> str:
    return next((f"{timing.p50:.2f} ms" for timing in outcome.latency.values()), "")


def show_target(name: str, target: Target) -> None:
    """Print one target: what it is made from, where it is judged, what it needs, and its options."""
    facts = [("makes", target.summary), ("from", target.source), ("groups", ", ".join(target.groups) or "none")]
    facts += [("places", ", ".join(f"{place.name} ({'; '.join(place.tolerances)})" for place in target.places))]
    texts = (
        ("choose it for", target.about.choose_for),
        ("proved by", target.about.proved_by),
        ("not proved", target.about.not_proved),
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


def show_trials(trials: Sequence[TrialRow], notes: Sequence[str]) -> None:
    """Print what a search tried and what the exporter says of the recipe it took."""
    heads = ("", "recipe", "p50", "size", "worst sample", "in float")
    if trials:
        print_table(heads, [(t.mark, t.name, t.p50, t.size, t.measures, t.float_groups) for t in trials])
    for note in notes:
        print(visible(note))


def _coloured(cell: str) -> str:
    from rich.markup import escape

    from edgekit.progress import COLOURS

    colour = COLOURS.get(cell.removesuffix(" (unchanged)"))
    return f"[{colour}]{escape(cell)}[/]" if colour else escape(cell)
