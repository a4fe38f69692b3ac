"""The records of edgekit's own commands."""

from __future__ import annotations

from edgekit.doors import Command, Panel


def _command(name: str, panel: Panel, summary: str, module: str, function: str = "") -> Command:
    return Command(name=name, panel=panel, summary=summary, function=f"edgekit.cli.{module}:{function or name}")


EXPORT = _command(
    "export",
    "Export",
    "Export a model, verify each artifact against the model, and write the report.",
    "build_commands",
)
QUANTIZE = _command("quantize", "Export", "Search for a static INT8 recipe, and verify the result.", "build_commands")
VERIFY = _command("verify", "Export", "Check, run and judge a build's artifacts again.", "build_commands")
REFERENCE = _command(
    "reference", "Export", "Record a model's outputs, noise and latency on a device.", "build_commands"
)
TARGETS = _command("targets", "Export", "List the targets, or show one with its options.", "target_commands")
REPORT = _command("report", "Understand", "Write a build's report again.", "report_commands")
DIFF = _command("diff", "Understand", "Show what changed between two builds.", "report_commands")
DOCTOR = _command("doctor", "Understand", "Show what can be exported and verified on this host.", "target_commands")
PLACES = _command("places", "Other machines", "List the places in which artifacts can be judged.", "place_commands")
PACK = _command(
    "pack", "Other machines", "Pack artifacts for a host that cannot be reached from here.", "place_commands"
)
IMPORT = _command("import", "Other machines", "Judge what a pack's runner brought back.", "place_commands", "import_")
ENV = _command("env", "Other machines", "Make and show the environments that some targets need.", "place_commands")
