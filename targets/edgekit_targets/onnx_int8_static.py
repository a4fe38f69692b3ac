"""ONNX, static INT8 in QDQ form: ranges from calibration samples, by the recipe that a search found to be good.

What the search tried stays in the target's cache, where reports find the table and an interrupted search goes on.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.artifact.store import read_artifact
from edgekit.errors import ExportError
from edgekit.judge.tolerance import INT8
from edgekit.model.source import load_model
from edgekit.onnxgraph import qdq, save
from edgekit.onnxgraph.quant_config import METHODS, Method, QuantConfig
from edgekit.quantization import calibration, observers, vnni
from edgekit.quantization.calibration import Samples
from edgekit.quantization.evaluator import STRICTER
from edgekit.quantization.search import NEEDED, Depth, search
from edgekit.quantization.trials import TABLE
from edgekit.runtime.ort import OrtRuntime
from edgekit.runtime.protocol import Runtime
from edgekit.target import Exported, Job, Need, Option, Target

if TYPE_CHECKING:
    import onnx

    from edgekit.model.spec import ModelSpec

ENTRY = "model.onnx"


def export(source: Path, out: Path, job: Job) -> Exported:
    """ONNX artifact -> model.onnx in INT8."""
    import onnx

    spec, graph = load_model(job.model), onnx.load(source / ENTRY)
    if not qdq.activations(graph):
        raise ExportError(f"'{spec.name}' has no linear layers with constant weights: INT8 would change nothing")
    job.progress(0.0, "making the calibration samples")
    folder = Path(job.options["calibration"]) if job.options["calibration"] else None
    samples = calibration.samples(spec, folder, NEEDED.get(job.options["search"], calibration.COUNT))
    methods = tuple(m for m in METHODS if job.options["method"] in ("auto", m))
    if job.options["search"] == "none":
        made, notes = _unsearched(graph, samples, methods[0], job)
    else:
        made, notes = _searched(spec, graph, samples, methods, job)
    save.save(made, out / ENTRY)
    job.progress(0.95, "emulating processors without VNNI")
    advice = "for such processors export with `-O onnx-int8-static.reduce_range=yes`"
    notes = (*notes, vnni.measure(spec, graph, made, samples).sentence(advice))
    axes = read_artifact(source, check=False).axes
    return Exported(precision="int8", entry=ENTRY, dynamic=tuple(n for n, a in axes.items() if a.dynamic), notes=notes)


def _unsearched(
    graph: onnx.ModelProto, samples: Samples, method: Method, job: Job
) -> tuple[onnx.ModelProto, tuple[str, ...]]:
    recipe = QuantConfig(method=method, reduce_range=job.options["reduce_range"] == "yes")

    (job.cache / TABLE).unlink(missing_ok=True)  # of an earlier search: it did not make this artifact

    def tell(done: float) -> None:
        job.progress(0.1 + 0.7 * done, "looking at activations")

    observed = observers.observe(graph, qdq.activations(graph), samples, (method,), tell)
    return qdq.quantize(graph, recipe, observed), (f"recipe: {recipe.name}; none was searched for",)


def _searched(
    spec: ModelSpec, graph: onnx.ModelProto, samples: Samples, methods: tuple[Method, ...], job: Job
) -> tuple[onnx.ModelProto, tuple[str, ...]]:
    def tell(done: float, text: str) -> None:
        job.progress(0.1 + 0.85 * done, text)

    depth: Depth = "full" if job.options["search"] == "full" else "quick"
    reduced = job.options["reduce_range"] == "yes"
    found = search(spec, graph, samples, depth, job.cache, tell, methods, reduced)
    recipe = found.chosen.recipe
    notes = [f"recipe: {recipe.name}"]
    if recipe.floats:
        notes.append(f"in float arithmetic: {', '.join(recipe.floats)}")
    if not found.chosen.quality.passed:
        notes.append(
            f"no recipe passed the gate, with {1.0 - STRICTER:.0%} of its room kept, on samples held back from"
            f" calibration: this is the best of them ({found.chosen.quality.reasons[0]})"
        )
    return found.graph, tuple(notes)


def load(artifact: Path, place: str) -> Runtime:
    """Run it in ONNX Runtime."""
    return OrtRuntime(artifact / ENTRY)


TARGET = Target(
    summary="ONNX, static INT8 by a searched recipe",
    source="onnx",
    export=export,
    load=load,
    tolerance={"": INT8},
    needs=(Need("onnxruntime", "cpu"),),
    groups=("onnx-all",),
    options=(
        Option(name="search", default="quick", help="how much is tried", choices=("quick", "full", "none")),
        Option(name="method", default="auto", help="how ranges are made", choices=("auto", *METHODS)),
        Option(name="reduce_range", default="no", help="7-bit weights, for CPUs without VNNI", choices=("yes", "no")),
        Option(name="calibration", default="", help="folder of images; default: the model's own set", folder=True),
    ),
)
