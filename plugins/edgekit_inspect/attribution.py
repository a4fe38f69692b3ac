"""Where an artifact's error starts and what is carried through, by the names of the PyTorch modules that a user wrote.

The fp32 ONNX artifact and another one answer the same images. Noise is the root mean square of a tensor's difference,
relative to the tensor's own, of the noisiest tensor that a module gives. Each module of the artifact is run twice:

- on what the fp32 modules before it give (pair.py): that noise is introduced there, and amplifies nothing;
- in its place in the artifact: what is left of its noise out when the powers are subtracted is carried through, since
  roundings are independent of each other (Widrow and Kollar, Quantization Noise, 2008, chapter 4).

What SmoothQuant moved from a normalisation into weights is moved back before tensors are compared. Two
rankings gather other rows: the artifact gathers by the fp32 graph's ranking, and what follows is compared row by row.

The modules of an fp32 graph, by the names of its nodes: what each reads of others, and what others read of it.

A node belongs to the module that its name begins with. A layer whose name is another's, as that of a convolution into
which a batch norm was folded is, belongs to the module of its weight. A module of which only constants are left, as of
a table of positions that another module adds, gives these.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from edgekit.artifact.store import read_artifact
from edgekit.errors import ArtifactError, UsageError
from edgekit.hosts import process
from edgekit.model.onnx_check import names_read
from edgekit.model.records import recorded_weights
from edgekit.model.spec import Array
from edgekit.reference.batches import applicable_batches
from edgekit.reference.store import reference_of
from edgekit.storage.files import write_text
from edgekit_inspect.pair import Noise, Pair, rankings
from edgekit_targets.onnx.passes.constant_names import LAYERS

if TYPE_CHECKING:
    import onnx

IMAGES = 8
"""Images that are run: noise is a mean over thousands of values, and hardly moves after that."""
SOURCE, ENTRY = "onnx", "model.onnx"


@dataclass(frozen=True)
class Part:
    """One module, by its path as in `named_modules`; empty for what stands in the outermost `forward`.

    `noise_in` is that of the noisiest tensor that it is given, as a share of that tensor's root mean square;
    `noise_out` of the noisiest that it gives, where that is no floats the share of values that differ; `introduced` is
    noise out where it is given the fp32 graph's tensors.
    """

    module: str
    noise_in: float
    noise_out: float
    introduced: float

    @property
    def carried(self) -> float:
        """What comes of the noise that it is given."""
        return math.sqrt(max(self.noise_out**2 - self.introduced**2, 0.0))

    @property
    def share(self) -> float:
        """Of the power of its noise out, what is introduced."""
        return min(self.introduced / self.noise_out, 1.0) ** 2 if self.noise_out > 0 else 0.0


@dataclass(frozen=True)
class Attribution:
    """The modules in the order in which they run."""

    target: str
    images: int
    parts: tuple[Part, ...]

    def as_record(self) -> dict[str, object]:
        """What `--json` prints."""
        parts = [{**asdict(part), "carried": part.carried} for part in self.parts]
        return {"target": self.target, "images": self.images, "parts": parts}

    def worst(self, count: int) -> tuple[Part, ...]:
        """The modules in which most noise starts, most first."""
        return tuple(sorted(self.parts, key=lambda part: -part.introduced)[:count])


def explain(folder: Path, images: int = IMAGES) -> Attribution:
    """Attribute the error of an ONNX artifact in its build to modules, on so many evaluation images.

    Raises:
        UsageError: If it is not an ONNX artifact that was made from the fp32 one beside it.
        ArtifactError: If either is damaged.
    """
    if images < 1:
        raise UsageError(f"{images} images cannot be run: give 1 or more")
    manifest = read_artifact(folder)
    build = folder.resolve().parent
    source = build / SOURCE
    if manifest.entry != ENTRY or manifest.target == SOURCE:
        raise UsageError(
            f"'{folder}' is of the target '{manifest.target}': fp16 and INT8 ONNX artifacts can be explained, against "
            f"'{SOURCE}' beside them"
        )
    if manifest.export.source.sha256 != read_artifact(source).sha256:
        raise ArtifactError(f"'{folder}' was made from another fp32 artifact than '{source}': export again")
    answer = process.call(attributed, {"build": str(build), "target": folder.resolve().name, "images": images})
    return TypeAdapter(Attribution).validate_python({"target": manifest.target, **answer})


def attributed(build: str, target: str, images: int, progress: process.Progress) -> dict[str, object]:
    """Run both graphs, in a worker: the number of images that were run, and the parts as dictionaries."""
    import onnx

    root = Path(build)
    right, other = (onnx.load(root / name / ENTRY) for name in (SOURCE, target))
    recorded = reference_of(root / "reference", recorded_weights(root / "model"))
    batch = applicable_batches(recorded.batches, read_artifact(root / target))[0]
    rows = [row for row, _ in zip(batch.rows(), range(images), strict=False)]
    return {"images": len(rows), "parts": [asdict(part) for part in attribute(right, other, rows)]}


def attribute(right: onnx.ModelProto, other: onnx.ModelProto, rows: Sequence[Mapping[str, Array]]) -> tuple[Part, ...]:
    """Attribute the difference of two graphs of the same model on some inputs to its modules, in running order."""
    modules = modules_of(right)
    tensors = dict.fromkeys((*rankings(right), *(name for module in modules for name in module.gives)))
    whole, apart = Pair(right, other, tuple(tensors), rows[0]).compare(rows)
    return tuple(_parts(modules, whole, apart))


def write_attribution(attribution: Attribution, folder: Path) -> tuple[Path, Path]:
    """Write `explain-<target>.json` and `.svg` into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    data, plot = (folder / f"explain-{attribution.target}.{suffix}" for suffix in ("json", "svg"))
    write_text(data, json.dumps(attribution.as_record(), indent=2) + "\n")
    # One bar per module: its output noise, split into propagated and introduced power.
    from jinja2 import Environment, FileSystemLoader

    jinja = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True)
    top = max((part.noise_out for part in attribution.parts), default=0.0) or 1.0
    drawn = jinja.get_template("explain.svg.jinja").render(attribution=attribution, top=top) + "\n"
    write_text(plot, drawn)
    return data, plot


def _parts(modules: Iterable[Module], whole: Noise, apart: Noise) -> Iterable[Part]:
    for module in modules:
        introduced, out = apart.largest(module.gives), whole.largest(module.gives)
        if introduced is not None and out is not None:
            yield Part(module.path, whole.largest(module.reads) or 0.0, out, introduced)


@dataclass(frozen=True)
class Module:
    """One module, by its path as in `named_modules`; empty for what stands in the outermost `forward`.

    `reads` are the tensors that others make; `gives` those that it makes and others read, or that are the graph's
    answer.
    """

    path: str
    reads: tuple[str, ...]
    gives: tuple[str, ...]


def modules_of(graph: onnx.ModelProto) -> tuple[Module, ...]:
    """The modules of a graph that give something, in running order; a node without a name is in the outermost one."""
    nodes = graph.graph.node
    owners = _owners(graph)
    ends = [value.name for value in graph.graph.output]
    homes = _homes(graph, set(owners.values()))
    makers = {name: path for path, name in homes}
    makers |= {name: owners[number] for number, node in enumerate(nodes) for name in node.output if name}
    order: dict[str, None] = {}
    reads: dict[str, dict[str, None]] = {}
    gives: dict[str, dict[str, None]] = {}
    for number, node in enumerate(nodes):
        own = owners[number]
        for name in names_read(node):
            maker = makers.get(name, own)
            if maker != own:
                order.setdefault(maker)
                reads.setdefault(own, {}).setdefault(name)
                gives.setdefault(maker, {}).setdefault(name)
        order.setdefault(own)
    for name in ends:
        if name in makers:
            gives.setdefault(makers[name], {}).setdefault(name)
    return tuple(Module(path, tuple(reads.get(path, ())), tuple(gives[path])) for path in order if path in gives)


def _owners(graph: onnx.ModelProto) -> dict[int, str]:
    """The module of each node, by the node's place."""
    nodes = graph.graph.node
    named = {number: node.name.rpartition("/")[0] for number, node in enumerate(nodes)}
    there, constants = set(named.values()), {i.name for i in graph.graph.initializer}
    for number, node in enumerate(nodes):
        weight = node.input[1] if node.op_type in LAYERS and len(node.input) > 1 else ""
        path = weight.rpartition(".")[0]
        if weight in constants and path and path not in there:
            named[number] = path
    return named


def _homes(graph: onnx.ModelProto, there: set[str]) -> list[tuple[str, str]]:
    """Modules without a node, and the constants that are named after them."""
    pairs = [(initializer.name.rpartition(".")[0], initializer.name) for initializer in graph.graph.initializer]
    return [(path, name) for path, name in pairs if path and path not in there]
