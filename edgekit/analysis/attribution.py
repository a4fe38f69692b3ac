"""Where an artifact's error starts and where it grows, by the names of the PyTorch modules that a user wrote.

The fp32 ONNX artifact and another one answer the same images with their inner tensors tapped. Noise is the root mean
square of a tensor's difference, relative to the tensor's own. A module's noise out is that of what it gives; its noise
in the largest of what it is given; what it bore itself is what is left when the powers are subtracted, since roundings
are independent of each other (Widrow and Kollar, Quantization Noise, 2008, chapter 4).

What SmoothQuant moved from a normalisation into weights is moved back before tensors are compared. What follows top-K
is left out: two rankings gather other rows, and the verdict compares those patch by patch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgekit.artifact.store import read_artifact
from edgekit.errors import ArtifactError, UsageError
from edgekit.model.source import recorded_weights
from edgekit.model.spec import Array
from edgekit.reference.store import reference_of
from edgekit.runtime import ort
from edgekit.storage.files import write_text

if TYPE_CHECKING:
    import onnx

IMAGES = 8
"""Images that are run: noise is a mean over thousands of values, and hardly moves after that."""
SOURCE, ENTRY = "onnx", "model.onnx"
RENAMED = ("{}", "{}_fp16", "{}_dequantized")
"""What a tensor may be called in the artifact; the first that is there in float counts."""


@dataclass(frozen=True)
class Part:
    """One module.

    Attributes:
        module: Its path, as in `named_modules`; empty for what stands in the outermost `forward`.
        noise_in: Of the noisiest tensor that it is given, as a share of that tensor's root mean square.
        noise_out: Of the noisiest tensor that it gives.
        introduced: What it adds itself.
    """

    module: str
    noise_in: float
    noise_out: float
    introduced: float

    @property
    def growth(self) -> float:
        """Noise out over noise in; 1 where nothing comes in."""
        return self.noise_out / self.noise_in if self.noise_in > 0 else 1.0


@dataclass(frozen=True)
class Attribution:
    """What was found: the modules in the order in which they run."""

    target: str
    images: int
    parts: tuple[Part, ...]

    def as_record(self) -> dict[str, object]:
        """What `--json` prints."""
        parts = [{**asdict(part), "growth": part.growth} for part in self.parts]
        return {"target": self.target, "images": self.images, "parts": parts}

    def worst(self, count: int) -> tuple[Part, ...]:
        """The modules in which most noise starts, most first."""
        return tuple(sorted(self.parts, key=lambda part: -part.introduced)[:count])


def explain(folder: Path, images: int = IMAGES) -> Attribution:
    """Attribute the error of an ONNX artifact to modules.

    Args:
        folder: The artifact, in its build: `build/<model>/onnx-int8-static`, for example.
        images: How many evaluation images to run.

    Raises:
        UsageError: If it is not an ONNX artifact that was made from the fp32 one beside it.
        ArtifactError: If either is damaged.
    """
    if images < 1:
        raise UsageError(f"{images} images cannot be run: give 1 or more")
    made = read_artifact(folder)
    source = folder.resolve().parent / SOURCE
    if made.entry != ENTRY or made.target == SOURCE:
        raise UsageError(
            f"'{folder}' is of the target '{made.target}': fp16 and INT8 ONNX artifacts can be explained, against "
            f"'{SOURCE}' beside them"
        )
    if made.source.sha256 != read_artifact(source).sha256:
        raise ArtifactError(f"'{folder}' was made from another fp32 artifact than '{source}': export again")
    import onnx

    right, other = onnx.load(source / ENTRY), onnx.load(folder / ENTRY)
    build = folder.resolve().parent
    batch = reference_of(build / "reference", recorded_weights(build / "model")).batches[0]
    rows = [row for row, _ in zip(batch.rows(), range(images), strict=False)]
    return Attribution(made.target, len(rows), attribute(right, other, rows))


def attribute(right: onnx.ModelProto, other: onnx.ModelProto, rows: Sequence[Mapping[str, Array]]) -> tuple[Part, ...]:
    """Attribute the difference of two graphs of the same model on some inputs to its modules, in running order."""
    return tuple(_parts(right, _noise(right, other, rows)))


def write_attribution(found: Attribution, folder: Path) -> tuple[Path, Path]:
    """Write `explain-<target>.json` and `.svg` into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    data, plot = (folder / f"explain-{found.target}.{suffix}" for suffix in ("json", "svg"))
    write_text(data, json.dumps(found.as_record(), indent=2) + "\n")
    write_text(plot, draw(found))
    return data, plot


def draw(found: Attribution) -> str:
    """The noise along the model as an SVG: a bar a module for its noise out, its red end for what it introduced."""
    from xml.sax.saxutils import escape

    row, left, wide = 16, 300, 420
    top = max((part.noise_out for part in found.parts), default=0.0) or 1.0
    lines = []
    for number, part in enumerate(found.parts):
        y, length = 40 + row * number, wide * part.noise_out / top
        own = wide * min(part.introduced, part.noise_out) / top
        name = escape(part.module or "(outermost)")
        lines.append(f'<text x="{left - 8}" y="{y + 11}" text-anchor="end">{name}</text>')
        lines.append(f'<rect x="{left}" y="{y + 2}" width="{length:.1f}" height="{row - 4}" fill="#9db8d9"/>')
        lines.append(
            f'<rect x="{left + length - own:.1f}" y="{y + 2}" width="{own:.1f}" height="{row - 4}" fill="#b5402a"/>'
        )
        lines.append(f'<text x="{left + length + 6:.1f}" y="{y + 11}">{part.noise_out:.2%}</text>')
    height = 56 + row * len(found.parts)
    title = f"{escape(found.target)}: noise after each module; red is introduced there ({found.images} images)"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + wide + 80} {height}" '
    head += 'font-family="system-ui, sans-serif" font-size="11">'
    ground = '<rect width="100%" height="100%" fill="#fff"/>'
    return "\n".join((head, ground, f'<text x="16" y="24" font-size="14">{title}</text>', *lines, "</svg>")) + "\n"


def _noise(right: onnx.ModelProto, other: onnx.ModelProto, rows: Sequence[Mapping[str, Array]]) -> dict[str, float]:
    """Relative noise of each float tensor that both graphs have."""
    there = {name for node in other.graph.node for name in node.output}
    ranked, smoothed = _after_ranking(right), _smoothed(right, other)
    names = [name for node in right.graph.node for name in node.output if name not in ranked]
    called = {name: [c.format(name) for c in RENAMED if c.format(name) in there] for name in names}
    one, two = ort.tapped(right, names), ort.tapped(other, sorted({c for cs in called.values() for c in cs}))
    signal, error = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
    seen: set[str] = set()
    for row in rows:
        a, b = one.run(row), two.run(row)
        for name in names:
            floats = (b[c] for c in called[name] if b[c].dtype.kind == "f" and b[c].shape == a[name].shape)
            if a[name].dtype.kind == "f" and (got := next(floats, None)) is not None:
                seen.add(name)
                x, y = a[name].astype(np.float64), got * smoothed.get(name, 1.0)
                signal[name] += float((x * x).sum())
                error[name] += float(((x - y) ** 2).sum())
    noise = {name: math.sqrt(error[name] / power) for name, power in signal.items() if power > 0 and name in seen}
    for node in reversed(right.graph.node):  # what was moved as bytes has the noise of where it was moved to
        if node.op_type in ("Reshape", "Transpose") and node.output[0] in noise:
            noise.setdefault(node.input[0], noise[node.output[0]])
    return noise


def _after_ranking(graph: onnx.ModelProto) -> set[str]:
    """Tensors that depend on which patches top-K chose."""
    found: set[str] = set()
    for node in graph.graph.node:
        if node.op_type == "TopK" or found.intersection(node.input):
            found.update(node.output)
    return found


def _smoothed(right: onnx.ModelProto, other: onnx.ModelProto) -> dict[str, Array]:
    """What each normalisation's output, and its reshaped twin, was divided by: the quotient of the two scales."""
    from onnx import numpy_helper

    scales = [{i.name: i for i in graph.graph.initializer} for graph in (right, other)]
    found: dict[str, Array] = {}
    for node in right.graph.node:
        if node.op_type == "LayerNormalization" and all(node.input[1] in held for held in scales):
            one, two = (numpy_helper.to_array(held[node.input[1]]).astype(np.float64) for held in scales)
            if one.shape == two.shape and not np.array_equal(one, two):
                found[node.output[0]] = np.divide(one, two, out=np.ones_like(one), where=two != 0)
        elif node.op_type == "Reshape" and node.input[0] in found:
            found[node.output[0]] = found[node.input[0]]
    return found


def _parts(graph: onnx.ModelProto, noise: Mapping[str, float]) -> Iterable[Part]:
    nodes = graph.graph.node
    module = {name: _module(node) for node in nodes for name in node.output}
    ends = {value.name for value in graph.graph.output}
    given: dict[str, set[str]] = {}
    gives: dict[str, set[str]] = {}
    for node in nodes:
        own = _module(node)
        given.setdefault(own, set()).update(name for name in node.input if module.get(name, own) != own)
        for name in node.input:
            if name in module and module[name] != own:
                gives.setdefault(module[name], set()).add(name)
        gives.setdefault(own, set()).update(set(node.output) & ends)
    for own in dict.fromkeys(map(_module, nodes)):
        out = [noise[name] for name in gives.get(own, ()) if name in noise]
        if not out:
            continue
        before = max((noise[name] for name in given[own] if name in noise), default=0.0)
        yield Part(own, before, max(out), math.sqrt(max(max(out) ** 2 - before**2, 0.0)))


def _module(node: onnx.NodeProto) -> str:
    return node.name.rpartition("/")[0]
