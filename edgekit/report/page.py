"""A study -> one HTML file that needs nothing else: no network, no font, and no script but the one that sorts.

Everything that came from outside goes through Jinja's escaping, and a content security policy in the page forbids all
that is not its own style or a picture inside it.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from edgekit.artifact.fact import EVALUATION
from edgekit.artifact.metric import metric_info, task_meaning
from edgekit.artifact.result import Measure
from edgekit.report import formats, pictures, plots
from edgekit.report.recommendation import decisive, recommend, share_of_limit
from edgekit.report.study import STATUSES, ReportedArtifact, ReportRow, Study
from edgekit.storage.door import visible

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

SORTER = Path(__file__).with_name("sort.js")
LONGEST_REASON = 64  # letters in the table; the whole of it is one click away
MOST_FAILURES = 40  # of one row, in the page; all of them are in report.json


class Limit(NamedTuple):
    """One limit that was used: of the table, from noise, and the one that counted."""

    output: str
    metric: str
    table: str
    noise: str
    used: str
    widened: bool


def render(study: Study) -> str:
    """The page."""
    return environment().get_template("page.html").render(context(study))


def environment() -> Environment:
    """Jinja with what the templates of this room use: all that comes from outside is escaped in HTML."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

    jinja = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=select_autoescape(("html", "xml")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_visible,
    )
    jinja.filters["prose"] = prose
    jinja.globals |= {
        "n": formats,
        "statuses": STATUSES,
        "strip": plots.STRIP,
        "displayed": displayed,
        "brief": lambda reason: formats.brief(str(reason), LONGEST_REASON),
        "decisive": decisive,
        "share_of_limit": share_of_limit,
        "task_meaning": task_meaning,
        "meaning": lambda metric: metric_info(metric).meaning,
        "heat": pictures.HEAT,
        "lower": pictures.LOWER,
        "higher": pictures.HIGHER,
        "veil": pictures.veil,
        "proof": proof,
        "most": MOST_FAILURES,
    }
    return jinja


def context(study: Study) -> dict[str, Any]:
    """What the template shows."""
    recorded = study.recorded()
    cards = pictures.cards(study, recorded)
    advice = recommend(study)
    return {
        "advice": advice,
        "terms": terms(study.current),
        "tradeoffs": plots.plot_tradeoffs(study, advice),
        "timings": {row: plots.plot_latency(row) for row in study.rows},
        "reference_speeds": plots.plot_reference(study.reference),
        "sorter_hash": script_hash(SORTER.read_text().removesuffix("\n")),  # Jinja includes it without
        "study": study,
        "reference": study.reference,
        "counts": [(status, study.count(status)) for status in STATUSES if study.count(status)],
        "lead": lead(study),
        "accuracy": plots.plot_accuracy(study, recorded),
        "cards": cards,
        "anchors": {card.name: card.anchor for card in cards},
        "homes": {row: f"a-{number}" for number, each in enumerate(study.artifacts, 1) for row in each.rows},
        "limits": limits(study.rows),
        "hosts": hosts(study.artifacts),
    }


def terms(rows: Iterable[ReportRow]) -> list[tuple[str, str]]:
    """What each number means that decided a verdict, once."""
    deciding = (decisive(row.verdict) for row in rows)
    names = sorted({measure.metric for measure in deciding if measure is not None})
    return [(name, info.meaning) for name in names if (info := metric_info(name)).meaning != name]


def lead(study: Study) -> str:
    """What came out, in a sentence."""
    rows = len(study.rows)
    summary = f"{study.count('verified')} of {rows} {'verdict is' if rows == 1 else 'verdicts are'} verified"
    others = [(status, study.count(status)) for status in STATUSES if status != "verified"]
    rest = [f"{count} {'is' if count == 1 else 'are'} {status}" for status, count in others if count]
    return f"{summary}; {', '.join(rest)}." if rest else f"{summary}."


def limits(rows: Iterable[ReportRow]) -> list[tuple[Limit, list[str], tuple[str, ...]]]:
    """Every limit that was used, once, with the inputs and the rows that it was used for."""
    users: dict[tuple[Limit, str], dict[str, None]] = {}  # dictionaries of nothing: sets that keep their order
    for row in rows:
        for m in row.verdict.measures:
            if m.limit is not None:
                widened = m.table is not None and m.limit != m.table
                limit = Limit(m.output, m.metric, formats.table_limit(m), formats.noise(m), formats.limit(m), widened)
                users.setdefault((limit, _kind(m.batch)), {})[row.label] = None
    batches: dict[tuple[Limit, tuple[str, ...]], list[str]] = {}
    for (limit, batch), labels in users.items():
        batches.setdefault((limit, tuple(labels)), []).append(batch)
    used = [(limit, kinds, labels) for (limit, labels), kinds in batches.items()]
    return sorted(used, key=lambda one: (one[0].output == "", one[0].output, one[0].metric, one[0].used))


def _kind(batch: str) -> str:
    return batch if batch in (EVALUATION, "stress") else "grid of shapes"


def displayed(row: ReportRow) -> dict[str, list[Measure]]:
    """A row's measures for its table: real and stress inputs whole, of the grid the one nearest its limit a metric."""
    groups: dict[str, list[Measure]] = {}
    for measure in row.verdict.measures:
        groups.setdefault(_kind(measure.batch), []).append(measure)
    return {kind: _nearest(of) if kind == "grid of shapes" else of for kind, of in groups.items()}


def _nearest(measures: Sequence[Measure]) -> list[Measure]:
    def pressure(measure: Measure) -> float:
        return math.inf if measure.value is None else metric_info(measure.metric).sign * measure.value

    worst: dict[tuple[str, str], Measure] = {}
    for measure in measures:
        key = measure.output, measure.metric
        worst[key] = max(worst.get(key, measure), measure, key=pressure)
    return list(worst.values())


def proof(shapes: Sequence[Mapping[str, int]]) -> str:
    """The proved shapes in a line: every size of each axis that was tried."""
    axes: dict[str, set[int]] = {}
    for shape in shapes:
        for axis, size in shape.items():
            axes.setdefault(axis, set()).add(size)
    return " · ".join(f"{axis} {', '.join(map(str, sorted(sizes)))}" for axis, sizes in axes.items())


def hosts(artifacts: Sequence[ReportedArtifact]) -> list[tuple[dict[str, str], list[str]]]:
    """Each host once, and which artifacts it judged."""
    judged: dict[tuple[tuple[str, str], ...], dict[str, None]] = {}
    for result in (result for each in artifacts for result in each.results if result.host):
        label = f"{result.target} ({', '.join(place.place for place in result.places)})"
        judged.setdefault(tuple(sorted(result.host.items())), {})[label] = None
    return [(dict(host), list(labels)) for host, labels in judged.items()]


def script_hash(text: str) -> str:
    """What a content security policy names a script by, so that this one runs and no other."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def prose(text: object) -> Markup:
    """A sentence with its `commands` set as code, and everything escaped."""
    from markupsafe import Markup, escape

    parts = visible(str(text), "\n").split("`")
    if len(parts) % 2 == 0:
        return escape("`".join(parts))
    return Markup("").join(Markup("<code>{}</code>").format(p) if i % 2 else escape(p) for i, p in enumerate(parts))


def _visible(value: object) -> object:
    """What a template writes; markup was made from texts that are visible already."""
    return visible(value, "\n") if isinstance(value, str) and not hasattr(value, "__html__") else value
