"""What a search tried, kept line by line: a search that was interrupted goes on where it stopped."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from edgekit.storage.door import SEAL, seal_of
from edgekit.storage.files import load_json
from edgekit_targets.onnx.passes.quant_config import QuantConfig
from edgekit_targets.onnx.quantization.evaluator import Quality

LOG = "tried.jsonl"
TABLE = "trials.json"


@dataclass(frozen=True)
class Trial:
    """One recipe and what came of it.

    Attributes:
        recipe: How it was quantized.
        quality: On the samples held back.
        size: Of the file, in bytes.
        work: Share of the multiplications of linear layers and convolutions that stay in float.
    """

    recipe: QuantConfig
    quality: Quality
    size: int
    work: float


@dataclass
class TrialLog:
    """The rows of one search, in a folder; rows that depend on another `context`, a digest, are left out."""

    folder: Path
    context: str
    rows: dict[str, Trial] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Read what an earlier search of the same context found, but for lines that were cut off or changed."""
        log = self.folder / LOG
        try:
            text = log.read_text(errors="replace")
        except OSError:
            return
        if text and not text.endswith("\n"):  # cut off by a kill: what is added begins a line of its own
            with log.open("a") as end:
                end.write("\n")
        for line in text.splitlines():
            try:
                record = load_json(line)
                if record["context"] == self.context and record.get(SEAL) == seal_of(record):
                    row = TypeAdapter(Trial).validate_python(record)
                    self.rows[row.recipe.key] = row
            except (ValueError, KeyError, TypeError):
                continue

    def add(self, row: Trial) -> Trial:
        """Keep a row."""
        self.rows[row.recipe.key] = row
        record = {"context": self.context, **asdict(row)}
        with (self.folder / LOG).open("a") as log:
            log.write(json.dumps({**record, SEAL: seal_of(record)}) + "\n")
        return row


def write_table(
    folder: Path,
    rows: Mapping[str, Trial],
    chosen: Trial,
    milliseconds: Mapping[str, float],
    parts: Collection[str],
    ranked: Sequence[str],
) -> None:
    """Write the table that reports show.

    Args:
        folder: Where.
        rows: By the recipe's key.
        chosen: The row that the artifact is made by.
        milliseconds: Median latency of the recipes that were timed, by key.
        parts: All groups.
        ranked: Keys of the recipes that an artifact may be made by, the best first.
    """
    best = _pareto(list(rows.values()))
    table = [
        {
            "name": display_name(row.recipe, parts),
            "chosen": row.recipe.key == chosen.recipe.key,
            "passed": row.quality.passed,
            "pareto": row.recipe.key in best,
            "size": row.size,
            "measures": {**row.quality.worst, "snr": row.quality.snr_db},
            "float_groups": (
                "all others" if _sensitivity(row.recipe, parts) else ", ".join(row.recipe.floats) or "none"
            ),
            "float_work": f"{row.work:.1%}",
            **({"rank": ranked.index(key)} if key in ranked else {}),
            **({"p50_ms": milliseconds[key]} if key in milliseconds else {}),
        }
        for key, row in rows.items()
    ]
    (folder / TABLE).write_text(json.dumps(table, indent=2) + "\n")


def display_name(recipe: QuantConfig, parts: Collection[str]) -> str:
    """What people are told of a recipe; a pass that measured the sensitivity of one group is called by that group."""
    alone = set(parts) - set(recipe.floats)
    return f"{recipe.method}, only {alone.pop()}" if _sensitivity(recipe, parts) else recipe.name


def _sensitivity(recipe: QuantConfig, parts: Collection[str]) -> bool:
    return len(parts) > 2 and len(recipe.floats) == len(parts) - 1


def _pareto(rows: list[Trial]) -> set[str]:
    """Keys of the rows that no other beats in float work, size and noise at once."""
    costs = {row.recipe.key: (row.work, row.size, -row.quality.snr_db) for row in rows}
    return {
        key
        for key, cost in costs.items()
        if not any(other != cost and all(o <= c for o, c in zip(other, cost, strict=True)) for other in costs.values())
    }
