"""A study -> JUnit XML for what shows test results: a suite an artifact, a test case a place.

An artifact that is rejected, over budget or unreadable is a failure; what was not verified here and what nobody judged
is skipped, with the reason. Numbers, limits and what was asked stand in the output of the case.
"""

from __future__ import annotations

from xml.etree import ElementTree

from edgekit.report import formats
from edgekit.report.study import ReportedArtifact, ReportRow, Study

FAILURES = ("rejected", "over budget", "unreadable", "failed")


def to_junit(study: Study) -> str:
    """The XML; the same build gives the same bytes."""
    root = ElementTree.Element("testsuites", _counts(study.name, study.rows))
    for artifact in study.artifacts:
        root.append(_suite(study, artifact))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _suite(study: Study, artifact: ReportedArtifact) -> ElementTree.Element:
    suite = ElementTree.Element("testsuite", _counts(artifact.target, artifact.rows))
    suite.set("skipped", str(sum(_skipped(row) for row in artifact.rows)))
    properties = ElementTree.SubElement(suite, "properties")
    facts = {"reference": study.reference.missing or study.reference.device}
    if artifact.manifest is not None:
        facts |= {"precision": artifact.manifest.precision, "model sha256": artifact.manifest.export.model_sha256}
    for name, value in facts.items():
        ElementTree.SubElement(properties, "property", name=name, value=_legal(value))
    suite.extend(_case(study, row) for row in artifact.rows)
    return suite


def _case(study: Study, row: ReportRow) -> ElementTree.Element:
    name = " · ".join(part for part in (row.place, row.origin) if part) or "not judged"
    case = ElementTree.Element("testcase", name=_legal(name), classname=_legal(f"{study.name}.{row.target}"))
    reasons = [str(reason) for reason in row.reasons] or [row.status]
    if row.status in FAILURES or _skipped(row):
        kind = "skipped" if _skipped(row) else "failure"
        element = ElementTree.SubElement(case, kind, message=_legal(reasons[0]), type=row.status)
        element.text = _legal("\n".join(reasons))
    ElementTree.SubElement(case, "system-out").text = _legal("\n".join(_output(row)))
    return case


def _output(row: ReportRow) -> list[str]:
    lines = [f"{row.status}: {row.device}" if row.device else row.status]
    lines += [f"size {formats.size(row.size)}"] if row.size is not None else []
    lines += [formats.protocol(row.timing, row.processor)] if row.timing else []
    lines += [f"{formats.speed(ratio)} as fast as {ratio.baseline}" for ratio in row.ratios]
    lines += [str(row.found.evidence)] if row.found is not None and row.found.evidence else []
    judged = [m for m in row.measures if m.limit is not None and (m.batch == "evaluation" or not m.passed)]
    return [*lines, *(f"{m.metric} {m.output} {formats.measured(m)} ({formats.limit(m)})" for m in judged)]


def _skipped(row: ReportRow) -> bool:
    return row.status not in (*FAILURES, "verified")


def _counts(name: str, rows: tuple[ReportRow, ...]) -> dict[str, str]:
    failures = sum(row.status in FAILURES for row in rows)
    return {"name": _legal(name), "tests": str(len(rows)), "failures": str(failures), "errors": "0"}


def _legal(text: str) -> str:
    """A text without the characters that XML 1.0 cannot hold at all."""
    return "".join(letter if letter in "\t\n\r" or _holds(ord(letter)) else "\ufffd" for letter in text)


def _holds(code: int) -> bool:
    return 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or code >= 0x10000
