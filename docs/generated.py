"""What the pages show of the code: commands, targets with their options, limits, metrics. Made at every build.

A page has a line `<!-- generated: NAME -->`; the function of that name writes what stands there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import Any

MARK = re.compile(r"^<!-- generated: (\w+) -->$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """MkDocs calls this for each page."""
    return MARK.sub(lambda match: WRITERS[match[1]](), markdown)


def commands() -> str:
    """Every command with its arguments, options and examples, from the Typer app."""
    from typer.main import get_command

    from edgekit.cli.main import app

    group: Any = get_command(app)
    parts = []
    for name, command in group.commands.items():
        parts += [f"## edgekit {name}", "", command.help or "", ""]
        parts += [_table(("argument or option", "default", "meaning"), map(_parameter, command.params)), ""]
        examples = re.findall(r"`(edgekit [^`]*)`", command.epilog or "")
        parts += ["Examples:", "", *(f"    {example}" for example in examples), ""]
    return "\n".join(parts)


def options() -> str:
    """Every target: what it makes, where it is judged, what it needs, its options."""
    from edgekit import registry
    from edgekit.artifact.option import as_text

    targets, _ = registry.loadable()
    parts = []
    for name, target in targets.items():
        places = ", ".join(f"{place.name} ({place.tolerance.name})" for place in target.places)
        needs = ", ".join(f"`{need.install}`" for need in target.needs) or "nothing beyond edgekit"
        facts = (f"- made from: {target.source}", f"- judged in: {places}", f"- needs: {needs}")
        parts += [f"## {name}", "", f"{target.summary}.", "", *facts, ""]
        rows = [(f"`{o.name}`", o.kind, as_text(o.default) or "none", o.possible, o.help) for o in target.options]
        parts += [_table(("option", "type", "default", "possible", "meaning"), rows) if rows else "No options.", ""]
    return "\n".join(parts)


def limits() -> str:
    """The table of limits."""
    from edgekit.judge import tolerance

    rows = (tolerance.FP32, tolerance.FP32_DELEGATED, tolerance.FP16, tolerance.INT8)
    names = [field.name for field in fields(tolerance.Tolerance) if field.name not in ("name", "exact_ranking")]
    used = [name for name in names if any(getattr(row, name) is not None for row in rows)]
    return _table(
        ("precision", *(name.replace("_", " ") for name in used)),
        ((row.name, *("" if (v := getattr(row, name)) is None else f"{v:g}" for name in used)) for row in rows),
    )


def metrics() -> str:
    """The table of metrics."""
    from edgekit.artifact.metric import METRICS

    return _table(
        ("metric", "meaning", "better", "unit"), ((m.name, m.meaning, m.better, m.unit) for m in METRICS.values())
    )


WRITERS: dict[str, Callable[[], str]] = {f.__name__: f for f in (commands, options, limits, metrics)}


def _parameter(parameter: Any) -> tuple[str, str, str]:
    named = parameter.param_type_name == "option"
    name = (
        ", ".join(f"`{o}`" for o in (*parameter.opts, *parameter.secondary_opts)) if named else parameter.name.upper()
    )
    default = parameter.default
    shown = "" if default in (None, False, "", ()) or callable(default) or default is Ellipsis else str(default)
    return name, shown, getattr(parameter, "help", "") or ""


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    lines += [f"| {' | '.join(str(cell).replace('|', '&#124;') for cell in row)} |" for row in rows]
    return "\n".join(lines)
