"""A study -> JSON for machines, Markdown for pull requests and cards, CSV for spreadsheets."""

from __future__ import annotations

import csv
import io
from typing import Any

from edgekit.artifact.result import Measure
from edgekit.report import formats
from edgekit.report.recommendation import Recommendation, recommend
from edgekit.report.study import STATUSES, ReportedArtifact, ReportRow, Study
from edgekit.storage.door import visible
from edgekit.storage.files import dump_json

SCHEMA_VERSION = 2
COLUMNS = (
    "model", "target", "precision", "place", "origin", "verdict", "reason", "device", "size_bytes", "max_abs",
    "spearman", "agreement", "task_drop", "worst_image", "p50_ms", "p95_ms", "baseline", "ratio", "ratio_low",
    "ratio_high", "slower", "too_noisy", "p90_ms", "p99_ms", "runs", "warm_ups", "load", "processor", "evidence",
    "reference_device", "beside_reference",
)  # fmt: skip
MARKS = {
    "verified": "✅",
    "rejected": "❌",
    "over budget": "❌",
    "not verified here": "⚪",
    "not judged yet": "⚪",
    "unreadable": "⚠️",
    "failed": "❌",
    "skipped": "⚪",
    "not installed": "⚪",
}


def to_json(study: Study) -> str:
    """Everything that was read, numbers as they are; `null` where a number is not finite."""
    reference = study.reference
    facts = {
        "missing": reference.missing,
        "device": reference.device,
        "device_kind": reference.host.kind,
        "facts": dict(reference.host.facts),
        "noise": [{"output": n.output, "between": n.between, "value": n.value} for n in reference.noise],
        "latency_ms": [{"batch": s.batch, "mode": s.mode, "p50": s.p50, "p95": s.p95} for s in reference.speeds],
        "metric": {"name": reference.evaluation.metric, "mean": reference.evaluation.mean},
        "sha256": reference.sha256,
    }
    report = {
        "schema_version": SCHEMA_VERSION,
        "name": study.name,
        "counts": {status: study.count(status) for status in STATUSES},
        "run": study.run.model_dump(mode="json"),
        "recommendations": [_advice(one) for one in recommend(study)],
        "reference": facts,
        "artifacts": [_described(study, artifact) for artifact in study.artifacts],
    }
    return dump_json(report)


def to_csv(study: Study) -> str:
    """One line a row. Texts that a spreadsheet would run as a formula get an apostrophe in front."""
    stream = io.StringIO()
    table = csv.writer(stream, lineterminator="\n")
    table.writerow(COLUMNS)
    for row in study.rows:
        table.writerow([_cell(value) for value in _line(study, row)])
    return stream.getvalue()


def to_markdown(study: Study) -> str:
    """The summary table, the reasons and the notes."""
    reference = study.reference
    judge = reference.missing or f"{reference.device}, fp32"
    lines = [f"# {escaped(study.name)}: edgekit report", "", f"Reference: **{escaped(judge)}**.", ""]
    if reference.host.kind == "cpu":
        lines += ["> The reference was made on a **CPU**: no GPU has confirmed these verdicts.", ""]
    advice = recommend(study)
    if advice:
        lines += [f"- **{one.audience}**: {escaped(one.sentence)}" for one in advice] + [""]
    lines += [
        "| | artifact | precision | place | size | max abs | Spearman | top-K | task drop | p50 | against |",
        "|---|---|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [_summary(row) for row in study.rows]
    timed = [
        (row, formats.protocol(row.timing, row.processor) + _beside(study, row)) for row in study.rows if row.timing
    ]
    if timed:
        lines += ["", "## Latency", "", *(f"- **{escaped(row.label)}**: {escaped(told)}" for row, told in timed)]
    sentences = [(row, text) for row in study.rows for text in (*map(str, row.reasons), *map(str, row.notes))]
    if sentences:
        lines += ["", "## What to know", ""]
        lines += [f"- {MARKS[row.status]} **{escaped(row.label)}**: {escaped(text)}" for row, text in sentences]
    exporters = [
        (artifact.target, note) for artifact in study.artifacts if artifact.manifest for note in artifact.manifest.notes
    ]
    if exporters:
        lines += ["", "## What the exporters say", ""]
        lines += [f"- **{escaped(target)}**: {escaped(note)}" for target, note in exporters]
    if study.run.began:
        command = f" with `{study.run.command}`" if study.run.command and "`" not in study.run.command else ""
        lines += ["", f"Made by edgekit {escaped(study.run.edgekit)} on {escaped(study.run.began)}{command}."]
    noise = [f"{escaped(n.output)} {escaped(n.between)} {formats.plain(n.value)}" for n in reference.noise]
    if noise:
        lines += ["", f"The reference's own noise, largest absolute difference: {', '.join(noise)}."]
    return "\n".join(lines) + "\n"


def _advice(one: Recommendation) -> dict[str, Any]:
    best = one.best
    return {
        "audience": one.audience,
        "target": best.row.target if best else None,
        "place": best.row.place if best else None,
        "variant": best.row.found.variant if best and best.row.found else "",
        "proved": best.proved if best else False,
        "size": best.size if best else None,
        "times_smaller": best.smaller if best else None,
        "times_as_fast": best.speed.value if best and best.speed else None,
        "against": one.against,
        "sentence": one.sentence,
        "nearest_limit": one.limit,
        "others": list(one.others),
    }


def _described(study: Study, artifact: ReportedArtifact) -> dict[str, Any]:
    return {
        "target": artifact.target,
        "manifest": artifact.manifest.model_dump(mode="json") if artifact.manifest else None,
        "results": [result.model_dump(mode="json") for result in artifact.results],
        "trials": [_finite(trial) for trial in artifact.trials],
        "rows": [{**_row(row), "beside_reference": study.beside_reference(row)} for row in artifact.rows],
    }


def _row(row: ReportRow) -> dict[str, Any]:
    measures = {"max_abs": row.worst("max abs"), "spearman": row.worst("spearman"), "agreement": row.worst("agreement")}
    return {
        "target": row.target,
        "precision": row.precision,
        "place": row.place,
        "origin": row.origin,
        "status": row.status,
        "reasons": [reason.as_record() for reason in row.reasons],
        "notes": [note.as_record() for note in row.notes],
        "device": row.device,
        "size": row.size,
        **{name: measure.value if measure else None for name, measure in (measures | {"task_drop": row.drop}).items()},
        "p50_ms": row.timing.p50 if row.timing else None,
        "timing_ms": row.timing.model_dump(mode="json") if row.timing else None,
        "processor": row.processor,
        "ratios": [{**ratio.model_dump(mode="json"), "too_noisy": ratio.noisy} for ratio in row.ratios],
        "evidence": row.found.evidence.model_dump(mode="json") if row.found and row.found.evidence else None,
        "slower": row.slower,
    }


def _line(study: Study, row: ReportRow) -> list[object]:
    measures = [row.error, row.worst("spearman"), row.worst("agreement"), row.drop]
    values = ["" if m is None else formats.NOT_FINITE if m.value is None else repr(m.value) for m in measures]
    times = [repr(row.timing.p50), repr(row.timing.p95)] if row.timing else ["", ""]
    first = row.ratios[0] if row.ratios else None
    ratio = [first.baseline, repr(first.value), repr(first.low), repr(first.high)] if first else [""] * 4
    worst = row.failed[0].row if row.failed else row.error.row if row.error else ""
    facts: list[object] = [study.name, row.target, row.precision, row.place, row.origin, row.status]
    facts += ["; ".join(map(str, row.reasons)), row.device, row.size if row.size is not None else ""]
    slower, noisy = "yes" if row.slower else "", "yes" if first and first.noisy else ""
    return [
        *facts,
        *values,
        worst,
        *times,
        *ratio,
        slower,
        noisy,
        *_timing(row),
        row.processor,
        _evidence(row),
        *_reference(study, row),
    ]


def _timing(row: ReportRow) -> list[object]:
    timing = row.timing
    if timing is None:
        return [""] * 5
    optional = ["" if value is None else repr(value) for value in (timing.warm_ups, timing.load)]
    return [repr(timing.p90), repr(timing.p99), timing.runs, *optional]


def _beside(study: Study, row: ReportRow) -> str:
    """How fast the row is beside the model itself on the reference's device; empty where that is not known."""
    device, times = _reference(study, row)
    return f"; beside PyTorch on {device}: {times}" if times else ""


def _reference(study: Study, row: ReportRow) -> list[str]:
    times = "; ".join(f"{mode} {value:.3g}x" for mode, value in study.beside_reference(row).items())
    return [study.reference.device if times else "", times]


def _evidence(row: ReportRow) -> str:
    return str(row.found.evidence) if row.found and row.found.evidence else ""


def _cell(value: object) -> str:
    text = visible(str(value))
    formula = text[:1] in ("=", "+", "-", "@", "\t", "\r") and not _is_number(text)
    return f"'{text}" if formula else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _summary(row: ReportRow) -> str:
    measures = (row.error, row.worst("spearman"), row.worst("agreement"), row.drop)
    against = f"{formats.speed(row.ratios[0])} {escaped(row.ratios[0].baseline)}" if row.ratios else formats.NONE
    cells = [
        f"{MARKS[row.status]} {row.status}{f' ({row.qualifier})' if row.qualifier else ''}",
        escaped(row.target),
        escaped(row.precision),
        escaped(formats.where(row)),
        formats.size(row.size),
        *(_limited(measure) for measure in measures),
        formats.milliseconds(row.timing.p50 if row.timing else None),
        against + (" (slower)" if row.slower else ""),
    ]
    return f"| {' | '.join(cells)} |"


def _limited(measure: Measure | None) -> str:
    """A value, and its limit where there is one."""
    limit = formats.limit(measure) if measure else ""
    return f"{formats.measured(measure)} ({limit})" if limit else formats.measured(measure)


def escaped(text: str) -> str:
    """A text as Markdown shows it, whatever is in it: one line, nothing that is markup."""
    flat = visible(" ".join(text.split())).replace("&", "&amp;")
    return "".join(f"\\{letter}" if letter in "<>|`*_[]\\~" else letter for letter in flat)


def _finite(value: Any) -> Any:
    """JSON has no NaN."""
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not abs(value) < float("inf") else value
