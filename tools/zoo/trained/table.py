"""The page of trained networks: its table, what it holds, and what fell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tools.zoo.trained.measure import DYNAMIC, NNCF, PLAIN, STATIC, Line

POINT = 0.01
"""How far an INT8 file's metric may be below fp32's to count as good."""
EVEN = 0.97
"""Share of a plain tool's speed that counts as the same: two runs of one file differ by so much."""
TOLERANCE = 0.015
"""How far a figure may fall, unless the TOML file has another tolerance."""
PLAIN_INT8 = (DYNAMIC, STATIC, NNCF)
VERIFIED = "verified"
WORDS = {True: "yes", False: "no", None: "nothing to compare"}
HEADS = ("network", "file", "verdict", "metric", "bytes", "speed")
PAGE = """# Trained networks

Each network below has trained weights that a package ships, or that are trained here on a package's data. Every file is
scored by the network's users' metric on held-out data, which neither calibration nor any search has seen. The reference
figure is that of the plain fp32 file: `torch.onnx.export` with its defaults, or the ONNX file that the package ships.
Beside it are ONNX Runtime's `quantize_dynamic` (a scale per channel), its `quantize_static` (QDQ, a scale per channel,
128 calibration samples), and NNCF's `quantize` on the same samples, in OpenVINO.

Speed is a ratio of processor time: that of the plain fp32 file in ONNX Runtime over the file's own. All files of a
network are opened in one process with one thread and take turns, 15 rounds of at least 40 ms each, every other round
backwards; the ratio is the median over the rounds. So a ratio holds for one kind of processor, here {processor}, and
differs by a few percent from run to run. `tools/zoo/trained.toml` lists packages, versions and the figures that
`python -m tools.zoo.trained --check` expects.

Made by `python -m tools.zoo.trained --out docs/trained.md`; voices need `apt-get install espeak-ng`, text needs
`fonts-dejavu` and `fonts-liberation`.

"""


def page(networks: Mapping[str, Mapping[str, Any]], results: Mapping[str, Sequence[Line]], processor: str) -> str:
    """Return the page in Markdown."""
    rows = [" | ".join(HEADS), " | ".join("---" for _ in HEADS)]
    for name, lines in results.items():
        rows += [" | ".join((name, *cells(line))) for line in lines]
    table = "".join(f"| {row} |\n" for row in rows)
    measured = "".join(
        f"| {name} | {entry['metric']} | {entry['data']} | {', '.join(entry.get('packages', ())) or 'none'} |\n"
        for name, entry in networks.items()
        if name in results
    )
    verdicts = [(name, *held(results[name])) for name in networks if name in results]
    compared = [holds for _, holds, _ in verdicts if holds is not None]
    text = PAGE.format(processor=processor)
    text += f"## What is measured\n\n| network | metric | data | packages |\n| --- | --- | --- | --- |\n{measured}\n"
    text += (
        "## Beside plain INT8\n\n"
        "A network holds if a verified INT8 artifact of edgekit's is within one point of fp32 and at least as fast "
        f"(within {1 - EVEN:.0%}) as the fastest plain INT8 file that is within one point. {sum(compared)} "
        f"of {len(compared)} networks with such a plain file hold.\n\n| network | holds | why |\n| --- | --- | --- |\n"
    )
    for name, holds, why in verdicts:
        reason = networks[name].get("misses", "") if holds is False else ""
        text += f"| {name} | {WORDS[holds]} | {why}{'. ' if reason else ''}{reason} |\n"
    absent = [name for name in networks if name not in results]
    if absent:
        text += f"\nNot measured here: {', '.join(absent)}.\n"
    return f"{text}\n## Every file\n\n{table}"


def cells(line: Line) -> tuple[str, ...]:
    """Return the cells of a file's row behind the network's name."""
    verdict = line.status + (f": {line.reason.replace('|', ' ')}" if line.reason else "")
    figure = "" if line.figure is None else f"{line.figure:.4f}"
    speed = "" if line.speed is None else f"{line.speed:.2f}"
    return line.tool, verdict, figure, f"{line.size:,}" if line.size else "", speed


def held(lines: Sequence[Line]) -> tuple[bool | None, str]:
    """Return whether edgekit's best INT8 is as good and fast as the best plain one (None: there is none), and why."""
    reference = next(line.figure for line in lines if line.tool == PLAIN)
    assert reference is not None

    def good(line: Line) -> bool:
        return line.speed is not None and line.figure is not None and line.figure >= reference - POINT

    def speed(line: Line) -> float:
        return line.speed or 0.0

    plain = max((line for line in lines if line.tool in PLAIN_INT8 and good(line)), key=speed, default=None)
    own = [line for line in lines if "int8" in line.tool and line.status == VERIFIED and good(line)]
    best = max(own, key=speed, default=None)
    text = f"{best.tool} {best.speed:.2f}" if best is not None else "no verified INT8 artifact within one point"
    if plain is None:
        return None, f"{text}; no plain INT8 file is within one point"
    return best is not None and speed(best) >= EVEN * speed(plain), f"{text}; {plain.tool} {plain.speed:.2f}"


def expectations(lines: Sequence[Line]) -> str:
    """Return the figures of verified artifacts as an inline table of the TOML file."""
    figures = [f"{x.tool} = {x.figure:.4f}" for x in lines if x.status == VERIFIED and x.figure is not None]
    return f"{{ {', '.join(figures)} }}"


def fallen(networks: Mapping[str, Mapping[str, Any]], results: Mapping[str, Sequence[Line]]) -> list[str]:
    """Return a sentence for each expected figure that is lower, or that no verified artifact has."""
    problems = []
    for name, entry in networks.items():
        if name not in results:
            problems += [f"{name} was not measured, and has expected figures"] if "expected" in entry else []
            continue
        lines, least = {line.tool: line for line in results[name]}, entry.get("tolerance", TOLERANCE)
        expected = {PLAIN: entry["reference"]} if "reference" in entry else {}
        for tool, figure in (expected | entry.get("expected", {})).items():
            line = lines.get(tool)
            if line is None or line.figure is None:
                problems.append(f"{name}, {tool}: no figure, {figure:.4f} was expected")
            elif tool != PLAIN and line.status != VERIFIED:
                problems.append(f"{name}, {tool}: {line.status}, and was verified: {line.reason}")
            elif line.figure < figure - least:
                problems.append(f"{name}, {tool}: {line.figure:.4f}, {figure:.4f} was expected (tolerance {least})")
    return problems
