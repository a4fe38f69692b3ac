"""A study -> one HTML file that needs nothing else: no network, no font, and no script but the one that sorts.

Everything that came from outside goes through Jinja's escaping, and a content security policy in the page forbids all
that is not its own style or a picture inside it.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from edgekit.artifact.fact import EVALUATION, Code, Fact
from edgekit.artifact.metric import metric_info
from edgekit.artifact.result import Measure, Result
from edgekit.report import formats, pictures, plots, trials
from edgekit.report.recommendation import recommend
from edgekit.report.study import STATUSES, ReportedArtifact, ReportRow, Study
from edgekit.storage.door import visible

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

GLYPHS = {
    "verified": "✓",
    "rejected": "✕",
    "over budget": "!",
    "not verified here": "?",
    "not judged yet": "…",
    "unreadable": "!",
    "failed": "!",
    "skipped": "–",
    "not installed": "–",
}
SORTER = Path(__file__).with_name("sort.js")
MOST_FAILURES = 40  # of one row, in the page; all of them are in report.json


@dataclass(frozen=True)
class Limit:
    """One limit that was used, on which inputs, and by which rows."""

    metric: str
    output: str
    table: str
    noise: str
    used: str
    widened: bool
    batches: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()


def render(study: Study) -> str:
    """The page."""
    return environment().get_template("page.html").render(context(study))


def environment() -> Environment:
    """Jinja with what the templates of this room use: all that comes from outside is escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(Path(__file__).parent)
    jinja = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_visible,
    )
    jinja.globals |= {
        "n": formats,
        "glyphs": GLYPHS,
        "strip": plots.STRIP,
        "slug": slug,
        "displayed": displayed,
        "other_reasons": other_reasons,
        "link": link,
    }
    jinja.filters["prose"] = prose
    jinja.globals |= {
        "heat": pictures.HEAT,
        "lower": pictures.LOWER,
        "higher": pictures.HIGHER,
        "veil": pictures.veil,
    }
    jinja.globals |= {"proof": proof, "most": MOST_FAILURES}
    return jinja


def context(study: Study) -> dict[str, Any]:
    """What the template shows."""
    outputs = sorted({name for row in study.rows for name in row.scores})
    recorded = study.reference.outputs(outputs)
    cards = pictures.cards(study, recorded)
    advice = recommend(study)
    best = [one.best.row for one in advice if one.best is not None]
    return {
        "advice": advice,
        "tradeoff": plots.plot_tradeoff(study, best),
        "sorter_hash": script_hash(SORTER.read_text().removesuffix("\n")),  # Jinja includes it without
        "study": study,
        "reference": study.reference,
        "counts": [(status, study.count(status)) for status in STATUSES if study.count(status)],
        "lead": lead(study),
        "accuracy": plots.plot_accuracy(study, recorded),
        "panels": plots.plot_latency(study),
        "cards": cards,
        "anchors": {card.name: card.anchor for card in cards},
        "limits": limits(study.rows),
        "hosts": hosts(study.artifacts),
        "trials": [
            (artifact.target, trials.trial_rows(artifact.trials)) for artifact in study.artifacts if artifact.trials
        ],
    }


def lead(study: Study) -> str:
    """What came out, in a sentence."""
    rows, good = len(study.rows), study.count("verified")
    summary = f"{good} of {rows} {'verdict is' if rows == 1 else 'verdicts are'} verified"
    others = [(status, study.count(status)) for status in STATUSES if status != "verified"]
    rest = [f"{count} {'is' if count == 1 else 'are'} {status}" for status, count in others if count]
    return f"{summary}; {', '.join(rest)}." if rest else f"{summary}."


def limits(rows: Iterable[ReportRow]) -> tuple[Limit, ...]:
    """Every limit that was used, once, with the inputs and the rows that it was used for."""
    users: dict[tuple[Limit, str], dict[str, None]] = {}  # dictionaries of nothing: sets that keep their order
    for row in rows:
        for measure in row.measures:
            if measure.limit is not None:
                users.setdefault((_limit(measure), _kind(measure.batch)), {})[row.label] = None
    batches: dict[tuple[Limit, tuple[str, ...]], list[str]] = {}
    for (limit, batch), labels in users.items():
        batches.setdefault((limit, tuple(labels)), []).append(batch)
    used = [replace(limit, batches=tuple(of), rows=labels) for (limit, labels), of in batches.items()]
    return tuple(sorted(used, key=lambda limit: (limit.output == "", limit.output, limit.metric, limit.used)))


def _limit(measure: Measure) -> Limit:
    return Limit(
        metric=measure.metric,
        output=measure.output,
        table=formats.table_limit(measure) if measure.table is not None else "",
        noise=formats.plain(measure.noise) if measure.noise is not None else "",
        used=formats.limit(measure),
        widened=measure.table is not None and measure.limit != measure.table,
    )


def _kind(batch: str) -> str:
    return batch if batch in (EVALUATION, "stress") else "grid of shapes"


def other_reasons(row: ReportRow) -> tuple[Fact, ...]:
    """The reasons that are not a failed number, which the page shows in its own way."""
    return tuple(reason for reason in row.reasons if reason.code is not Code.LIMIT_EXCEEDED)


def displayed(row: ReportRow) -> tuple[tuple[str, tuple[Measure, ...]], ...]:
    """A row's measures for its table: real and stress inputs whole, of the grid the one nearest its limit a metric."""
    groups: dict[str, list[Measure]] = {}
    for measure in row.measures:
        groups.setdefault(_kind(measure.batch), []).append(measure)
    return tuple(
        (kind, _nearest(measures) if kind == "grid of shapes" else tuple(measures)) for kind, measures in groups.items()
    )


def _nearest(measures: Sequence[Measure]) -> tuple[Measure, ...]:
    worst: dict[tuple[str, str], Measure] = {}
    for measure in measures:
        key = measure.output, measure.metric
        if key not in worst or _pressure(measure) > _pressure(worst[key]):
            worst[key] = measure
    return tuple(worst.values())


def _pressure(measure: Measure) -> float:
    if measure.value is None:
        return math.inf
    return metric_info(measure.metric).sign * measure.value


def proof(shapes: Sequence[Mapping[str, int]]) -> str:
    """The proved shapes in a line: every size of each axis that was tried."""
    axes: dict[str, set[int]] = {}
    for shape in shapes:
        for axis, size in shape.items():
            axes.setdefault(axis, set()).add(size)
    return " · ".join(f"{axis} {', '.join(map(str, sorted(sizes)))}" for axis, sizes in axes.items())


def hosts(artifacts: Sequence[ReportedArtifact]) -> tuple[tuple[Mapping[str, str], tuple[str, ...]], ...]:
    """Each host once, and which artifacts it judged."""
    labels: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for each in artifacts:
        for result in each.results:
            label = labels.setdefault(tuple(sorted(result.host.items())), [])
            label += [] if _judged(result) in label else [_judged(result)]
    return tuple((dict(host), tuple(names)) for host, names in labels.items() if host)


def _judged(result: Result) -> str:
    return f"{result.target} ({', '.join(place.place for place in result.places)})"


def script_hash(text: str) -> str:
    """What a content security policy names a script by, so that this one runs and no other."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def link(target: str, path: str) -> str:
    """The address of an artifact's file from the report, which lies beside the artifacts."""
    return quote(f"{target}/{path}")


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


def slug(text: str) -> str:
    """A text as an anchor: what is no letter or digit becomes a dash."""
    return "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in text.lower())
