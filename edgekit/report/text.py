"""Report as JSON for machines, Markdown for pull requests and cards, CSV for spreadsheets, JUnit XML for CI."""

from __future__ import annotations

import contextlib
import csv
import io
import re
from collections.abc import Callable, Mapping
from typing import Any

from edgekit.artifact.fact import EVALUATION
from edgekit.artifact.metric import NOT_FINITE
from edgekit.artifact.result import Measure
from edgekit.report import formats
from edgekit.report.page import budgets, environment, terms
from edgekit.report.recommendation import Recommendation, deciding_text, recommend
from edgekit.report.study import FAILURES, STATUSES, BuildReport, ReportRow
from edgekit.storage.files import dump_json, finite
from edgekit.storage.verified_io import visible

SCHEMA_VERSION = 2
# Limits that keep the Markdown within 60 lines: rows of the table, reasons, and letters of a reason.
MOST_ROWS, MOST_REASONS, LONGEST_REASON = 32, 6, 200
# Characters that XML 1.0 cannot hold at all.
ILLEGAL = "[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"


def to_json(study: BuildReport) -> str:
    """Return everything that was read, with unrounded numbers; `null` for a number that is not finite."""
    reference = study.reference
    facts = {
        "missing": reference.missing,
        "device": reference.device,
        "device_kind": reference.host.kind,
        "facts": dict(reference.host.facts),
        "noise": [vars(noise) for noise in reference.noise],
        "latency_ms": [vars(speed) for speed in reference.speeds],
        "metric": {"name": reference.evaluation.metric, "mean": reference.evaluation.mean},
        "doubt": reference.evaluation.doubt,
        "sha256": reference.sha256,
    }
    report = {
        "schema_version": SCHEMA_VERSION,
        "name": study.name,
        "counts": {status: study.count(status) for status in STATUSES},
        "run": study.run.model_dump(mode="json"),
        "recommendations": [_advice(recommendation) for recommendation in recommend(study)],
        "reference": facts,
        "artifacts": [
            {
                "target": artifact.target,
                "manifest": artifact.manifest.model_dump(mode="json") if artifact.manifest else None,
                "results": [result.model_dump(mode="json") for result in artifact.results],
                "trials": [finite(trial) for trial in artifact.trials],
                "rows": [{**_row(row), "beside_reference": study.beside_reference(row)} for row in artifact.rows],
            }
            for artifact in study.artifacts
        ],
    }
    return dump_json(report)


def to_csv(study: BuildReport) -> str:
    """Return one line per row. Texts that a spreadsheet would run as a formula get an apostrophe in front."""
    stream = io.StringIO()
    table = csv.writer(stream, lineterminator="\n")
    table.writerow(COLUMNS)
    table.writerows([_cell(column(study, row)) for column in COLUMNS.values()] for row in study.rows)
    return stream.getvalue()


def to_markdown(study: BuildReport) -> str:
    """Return the recommendations, a row per artifact and place of the last run, and reasons."""
    jinja = environment()
    jinja.filters["escaped"] = escape_markdown
    unverified = [row for row in study.current if row.reasons]
    omitted = (len(study.current) - MOST_ROWS, len(unverified) - MOST_REASONS, len(study.further))
    context = {
        "study": study,
        "reference": study.reference,
        "advice": recommend(study),
        "terms": terms(study.current[:MOST_ROWS]),
        "unverified": unverified,
        "budgets": budgets(study),
        "rest": sum(max(count, 0) for count in omitted),
        "most_rows": MOST_ROWS,
        "most_reasons": MOST_REASONS,
        "told": deciding_text,
    }
    return jinja.get_template("report.md.jinja").render(context)


def to_junit(study: BuildReport) -> str:
    """Return JUnit XML for tools that show test results: a suite per artifact, a test case per place.

    A status of rejected, over budget, unreadable or failed is a failure; "not verified here" and unjudged artifacts are
    skipped, with the reason. The output of a case has measures, limits and evidence.
    """
    jinja = environment()
    jinja.filters["legal"] = lambda text: re.sub(ILLEGAL, "\ufffd", text)
    context = {
        "study": study,
        "reference": study.reference,
        "failures": FAILURES,
        "output": _output,
    }
    return jinja.get_template("junit.xml").render(context) + "\n"


def _output(row: ReportRow) -> list[str]:
    verdict = row.verdict
    status = f"{row.status} ({verdict.qualifier})" if verdict.qualifier else row.status
    lines = [f"{status}: {verdict.device}" if verdict.device else status]
    lines += [f"size {formats.sizes(row.size, row.first_visit)}"] if row.size is not None else []
    lines += [formats.protocol(row.timing, row.processor)] if row.timing else []
    lines += [f"{formats.speed(ratio)} as fast as {ratio.baseline}" for ratio in verdict.ratios if not ratio.noisy]
    lines += verdict.evidence.lines if verdict.evidence else ()
    measures = [m for m in verdict.measures if m.limit is not None and (m.batch == EVALUATION or not m.passed)]
    return [*lines, *(f"{m.metric} {m.output} {formats.format_measure(m)} ({formats.limit(m)})" for m in measures)]


def _advice(recommendation: Recommendation) -> dict[str, Any]:
    best = recommendation.best
    return {
        "audience": recommendation.audience,
        "target": best.row.target if best else None,
        "place": best.row.place if best else None,
        "variant": best.row.verdict.variant if best else "",
        "proved": best.ran_natively if best else False,
        "size": best.size if best else None,
        "times_smaller": best.smaller if best else None,
        "times_as_fast": best.speed.value if best and best.speed else None,
        "against": recommendation.against,
        "sentence": recommendation.sentence,
        "nearest_limit": recommendation.limit,
        "others": list(recommendation.others),
    }


def _row(row: ReportRow) -> dict[str, Any]:
    measures = {name: row.worst(name.replace("_", " ")) for name in ("max_abs", "spearman", "agreement")}
    return {
        **{
            name: getattr(row, name)
            for name in ("target", "precision", "place", "origin", "status", "size", "first_visit")
        },
        "reasons": [reason.as_record() for reason in row.reasons],
        "notes": [note.as_record() for note in row.verdict.notes],
        "device": row.verdict.device,
        **{name: measure.value if measure else None for name, measure in (measures | {"task_drop": row.drop}).items()},
        "p50_ms": row.timing and row.timing.p50,
        "timing_ms": row.timing and row.timing.model_dump(mode="json"),
        "processor": row.processor,
        "ratios": [{**ratio.model_dump(mode="json"), "too_noisy": ratio.noisy} for ratio in row.verdict.ratios],
        "evidence": row.verdict.evidence and row.verdict.evidence.model_dump(mode="json"),
        "slower": row.verdict.slower,
    }


def _value(measure: Measure | None) -> object:
    return None if measure is None else NOT_FINITE if measure.value is None else measure.value


def _timing(name: str) -> Callable[[BuildReport, ReportRow], object]:
    return lambda study, row: row.timing and getattr(row.timing, name)


def _ratio(name: str) -> Callable[[BuildReport, ReportRow], object]:
    return lambda study, row: getattr(row.verdict.ratios[0], name) if row.verdict.ratios else None


COLUMNS: Mapping[str, Callable[[BuildReport, ReportRow], object]] = {
    "model": lambda study, row: study.name,
    "target": lambda study, row: row.target,
    "precision": lambda study, row: row.precision,
    "place": lambda study, row: row.place,
    "origin": lambda study, row: row.origin,
    "verdict": lambda study, row: row.status,
    "reason": lambda study, row: "; ".join(map(str, row.reasons)),
    "device": lambda study, row: row.verdict.device,
    "size_bytes": lambda study, row: row.size,
    "first_visit_bytes": lambda study, row: row.first_visit,
    "max_abs": lambda study, row: _value(row.error),
    "spearman": lambda study, row: _value(row.worst("spearman")),
    "agreement": lambda study, row: _value(row.worst("agreement")),
    "task_drop": lambda study, row: _value(row.drop),
    "worst_image": lambda study, row: next((m.row for m in (*row.failed_measures, row.error) if m), ""),
    "p50_ms": _timing("p50"),
    "p95_ms": _timing("p95"),
    "baseline": _ratio("baseline"),
    "ratio": _ratio("value"),
    "ratio_low": _ratio("low"),
    "ratio_high": _ratio("high"),
    "slower": lambda study, row: "yes" if row.verdict.slower else "",
    "too_noisy": lambda study, row: "yes" if row.verdict.ratios and row.verdict.ratios[0].noisy else "",
    "p90_ms": _timing("p90"),
    "p99_ms": _timing("p99"),
    "runs": _timing("runs"),
    "warm_ups": _timing("warm_ups"),
    "load": _timing("load"),
    "processor": lambda study, row: row.processor,
    "evidence": lambda study, row: row.verdict.evidence,
    "reference_device": lambda study, row: study.reference.device if study.beside_reference(row) else "",
    "beside_reference": lambda study, row: "; ".join(
        f"{mode} {value:.3g}x" for mode, value in study.beside_reference(row).items()
    ),
}


def _cell(value: object) -> str:
    text = "" if value is None else visible(str(value))
    with contextlib.suppress(ValueError):
        float(text)
        return text
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def escape_markdown(text: str) -> str:
    """Return a text so that Markdown shows it as it is: one line without markup."""
    flat = visible(" ".join(text.split())).replace("&", "&amp;")
    return "".join(f"\\{letter}" if letter in "<>|`*_[]\\~" else letter for letter in flat)
