"""fp16 by onnxconverter-common alone and by edgekit with it: accuracy against fp32, size, and speed in one run.

    python -m tools.bench.fp16 --build build                   # arr-coc-tiny as exported there, and three small models
    python -m tools.bench.fp16 --also "before=module:function" # another converter: ModelProto -> ModelProto

Accuracy is that of the first float output on the model's evaluation images (random ones where it has none): largest
absolute difference, and signal-to-noise ratio. Speed is interleaved run by run with a thread a core; a ratio is the
median of the fp32 graph over the candidate's, with a 95 % interval. Processors have no fp16 kernels in ONNX Runtime for
most operators: it casts there, and is slower.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from edgekit.evaluate import timing
from edgekit.judge import budget
from edgekit.model.sources import resolve_model
from edgekit.model.spec import Array, ModelSpec
from edgekit.pipeline import run
from edgekit.runtime.ort import OrtRuntime
from edgekit.testing import SMALL, QuietListener
from edgekit_targets.onnx.passes import fp16, graph

MODELS = ("arr-coc-tiny", SMALL, "tests.models:vit", "tests.models:resnet")
IMAGES = 16
SECONDS = 3.0
Convert = Callable[[onnx.ModelProto], onnx.ModelProto]


def main() -> None:
    """Make all, measure all, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, help="folder of builds; models that are not there are exported")
    parser.add_argument("--also", action="append", default=[], help="NAME=module:function, another converter")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="timed seconds of each graph, at least")
    parser.add_argument("models", nargs="*", default=MODELS, help="presets or package.module:factory")
    chosen = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    others = dict(text.split("=", 1) for text in chosen.also)
    print("\t".join(("model", "converter", "bytes", "casts", "max abs", "SNR dB", "speed", "95 %")), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen.models:
            spec = resolve_model(name)
            built = (chosen.build or Path(folder)) / spec.name / "onnx" / "model.onnx"
            if not built.exists():
                run.export(spec, ("onnx",), Path(folder) / spec.name, {}, QuietListener())
                built = Path(folder) / spec.name / "onnx" / "model.onnx"
            _compare(spec, built, Path(folder), {n: _found(where) for n, where in others.items()}, chosen.seconds)


def _compare(spec: ModelSpec, built: Path, folder: Path, others: dict[str, Convert], seconds: float) -> None:
    converters: dict[str, Convert] = {
        "package alone": _package(keep_io_types=True),
        "package, edgekit's nodes": lambda model: _package(
            keep_io_types=True, op_block_list=[], node_block_list=_listed(model), max_finite_val=fp16.LARGEST
        )(model),
        **others,
        "edgekit": lambda model: fp16.convert(model)[0],
    }
    runtimes, paths, refused = {"fp32": OrtRuntime(built)}, {"fp32": built}, {}
    for name, convert in converters.items():
        paths[name] = folder / f"{spec.name}-{len(paths)}.onnx"
        try:
            graph.save_graph(convert(onnx.load(built)), paths[name])
            runtimes[name] = OrtRuntime(paths[name])
        except Exception as error:  # what a converter gives may be no graph at all
            refused[name] = str(error).splitlines()[0]
    shown = _inputs(spec)
    timed = timing.measure(runtimes, {name: rows[:1] for name, rows in shown.items()}, seconds=seconds)
    right = _answers(runtimes["fp32"], shown)
    for name in ("fp32", *converters):
        if name in refused:
            print("\t".join((spec.name, name, f"refused: {refused[name]}")), flush=True)
            continue
        noise = _answers(runtimes[name], shown).astype(np.float64) - right
        power = float((noise**2).mean())
        decibels = 10 * np.log10(float((right.astype(np.float64) ** 2).mean()) / power) if power else float("inf")
        ratio = budget.ratio(timed, "fp32", name)
        casts = sum(node.op_type == "Cast" for node in onnx.load(paths[name]).graph.node)
        facts = (f"{paths[name].stat().st_size:,}", f"{casts}", f"{np.abs(noise).max():.2e}", f"{decibels:.1f}")
        speed = (f"{ratio.value:.2f}", f"{ratio.low:.2f} to {ratio.high:.2f}")
        print("\t".join((spec.name, name, *facts, *speed)), flush=True)


def _package(**options: Any) -> Convert:
    from onnxconverter_common import float16

    return lambda model: float16.convert_float_to_float16(model, **options)


def _listed(model: onnx.ModelProto) -> list[str]:
    typed = ir.from_proto(onnx.shape_inference.infer_shapes(model, strict_mode=True))
    return [str(node.name) for node in fp16.nodes_in_fp32(typed.graph)]


def _inputs(spec: ModelSpec) -> dict[str, Array]:
    if spec.evaluation is not None:
        return {name: rows[:IMAGES] for name, rows in spec.evaluation().inputs.items()}
    drawn = [spec.random(seed) for seed in range(IMAGES)]
    return {name: np.concatenate([one[name] for one in drawn]) for name in drawn[0]}


def _answers(runtime: OrtRuntime, shown: dict[str, Array]) -> Array:
    count = len(next(iter(shown.values())))
    answers = [runtime.run({name: rows[i : i + 1] for name, rows in shown.items()}) for i in range(count)]
    first = next(name for name, value in answers[0].items() if value.dtype.kind == "f")
    return np.concatenate([answer[first] for answer in answers])


def _found(where: str) -> Convert:
    module, _, name = where.partition(":")
    found: Convert = getattr(importlib.import_module(module), name)
    return found


if __name__ == "__main__":
    main()
