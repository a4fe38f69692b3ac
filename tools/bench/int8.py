"""INT8 beside what a user would get without edgekit: accuracy against the reference, size, and speed in one run.

    python -m tools.bench.int8            # arr-coc-tiny: the trained model
    python -m tools.bench.int8 --base     # arr-coc-base: seeded weights, so size and speed only

The plain paths: `torch.onnx.export` with its defaults; on its graph, with the shapes of inner values dropped (without
that it does not load), `quantize_dynamic` and `quantize_static` with their defaults. Speed is interleaved run by run
with a thread a core; a ratio is the plain fp32 export's median over the candidate's, with a 95 % interval.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx

from edgekit.artifact.store import read_artifact
from edgekit.cli.console import print_table
from edgekit.evaluate import timing
from edgekit.judge import budget, metrics, verdict
from edgekit.judge.limits import INT8
from edgekit.judge.verdict import score_tolerance
from edgekit.model.sources import resolve_model
from edgekit.model.spec import ORDERED, ModelSpec
from edgekit.pipeline import run
from edgekit.progress import listener_for as progress
from edgekit.reference.batches import EVALUATION
from edgekit.reference.store import read_reference
from edgekit.runtime.ort import OrtRuntime
from edgekit_arrcoc import presets
from edgekit_targets.onnx.passes import dynamic, qdq
from edgekit_targets.onnx.passes.groups import QuantConfig
from edgekit_targets.onnx.quantization import calibration
from edgekit_targets.onnx.quantization.calibration import observe
from tools.bench.plain import export_own, export_plain, reader_of

OURS = ("onnx", "onnx-int8-static", "onnx-int8-dynamic")
SECONDS = 6.0


def main() -> None:
    """Make all, measure all, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", action="store_true", help="arr-coc-base with seeded weights")
    parser.add_argument("--build", type=Path, default=Path("build"), help="folder of builds, for the tiny model")
    chosen = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        spec = presets.arr_coc_base() if chosen.base else presets.arr_coc_tiny()
        shown = calibration.samples(spec, count=calibration.LEAST)
        models = _plain(spec, shown, place)
        models |= _seeded(spec, shown.part(0, 8), place) if chosen.base else _exported(chosen.build)
        _print(spec, models, None if chosen.base else chosen.build / spec.name / "reference")


def _plain(spec: ModelSpec, shown: calibration.Samples, place: Path) -> dict[str, Path]:
    """What a user would do: PyTorch's exporter, then ONNX Runtime's quantizers, all with their defaults."""
    from onnxruntime.quantization import quantize_dynamic, quantize_static

    paths = {name: place / f"{name}.onnx" for name in ("plain fp32", "plain dynamic", "plain static")}
    export_plain(spec, paths["plain fp32"])
    graph = onnx.load(paths["plain fp32"])
    del graph.graph.value_info[:]
    onnx.save(graph, place / "loadable.onnx")
    quantize_dynamic(place / "loadable.onnx", paths["plain dynamic"])
    quantize_static(place / "loadable.onnx", paths["plain static"], reader_of(shown.batches(1)))
    return paths


def _exported(builds: Path) -> dict[str, Path]:
    """The artifacts that edgekit exports, made where they are not there."""
    with progress("auto") as listener:
        build = run.export(resolve_model("arr-coc-tiny"), OURS, builds / "arr-coc-tiny", {}, listener)
    return {name: build[name].path / read_artifact(build[name].path).entry for name in OURS}


def _seeded(spec: ModelSpec, shown: calibration.Samples, place: Path) -> dict[str, Path]:
    """The same graphs without a verdict: seeded weights have nothing to judge, and are too many to record."""
    fp32 = export_own(spec, place)
    graph = onnx.load(fp32)
    observed = observe(graph, qdq.activations(graph), shown, ("minmax",), lambda done: None)
    onnx.save(qdq.quantize_static(graph, QuantConfig(), observed), place / "static.onnx")
    onnx.save(dynamic.quantize_dynamic(graph), place / "dynamic.onnx")
    return dict(zip(OURS, (fp32, place / "static.onnx", place / "dynamic.onnx"), strict=True))


def _print(spec: ModelSpec, models: Mapping[str, Path], recorded: Path | None) -> None:
    runtimes = {name: OrtRuntime(path) for name, path in models.items()}
    timed = timing.measure(runtimes, spec.random(0), seconds=SECONDS)
    rows = []
    for name, path in models.items():
        ratio = budget.ratio(timed, "plain fp32", name)
        said = (f"{ratio.value:.2f}", f"{ratio.low:.2f} to {ratio.high:.2f}")
        size, share = path.stat().st_size, path.stat().st_size / models["onnx"].stat().st_size
        judged = _judged(spec, runtimes[name], recorded) if recorded is not None else ()
        rows.append((name, f"{size:,}", f"{share:.3f}", f"{timed[name].percentile(50):.2f}", *said, *judged))
    print(runtimes["onnx"].device)
    heads = ("model", "bytes", "of onnx", "p50 ms", "speed", "95 %")
    judged_heads = ("spearman", "worst", "lost mass", "task drop", "gate") if recorded is not None else ()
    print("\t".join((*heads, *judged_heads)))
    print_table((*heads, *judged_heads), rows)


def _judged(spec: ModelSpec, runtime: OrtRuntime, recorded: Path) -> tuple[str, ...]:
    """Spearman on the mean and the worst image, lost mass on the worst, the task metric's drop, and the verdict."""
    batch = next(b for b in read_reference(recorded).batches if b.name == EVALUATION)
    answers = [runtime.run(row) for row in batch.rows()]
    outputs = tuple(o for o in spec.outputs if o.role in ORDERED)
    got = {o.name: np.concatenate([row[o.name] for row in answers]) for o in outputs}
    right = {o.name: batch.outputs[o.name] for o in outputs}
    real = spec.evaluation() if spec.evaluation is not None else None
    found = metrics.compare(
        outputs,
        right,
        got,
        batch.names,
        score_tolerance=score_tolerance(INT8, 0.0),
        metric=real.metric if real is not None else None,
        truth=real.truth if real is not None else None,
    )
    passed = verdict.judge(INT8, {}, evaluation=[found])
    spearman = next(m.values for m in found.measures if m.metric == "spearman")
    lost = next(m.values for m in found.measures if m.metric == "lost mass")
    drop = next((c.value for c in passed.measures if not c.output), float("nan"))
    worst = f"{spearman.min():.4f} (image {batch.names[int(spearman.argmin())]})"
    gate = "passes" if passed.status == "verified" else f"fails: {passed.reasons[0]}"
    return f"{spearman.mean():.4f}", worst, f"{lost.max():.4f}", f"{drop:+.4f}", gate


if __name__ == "__main__":
    main()
