"""What was exported, what was asked of it, and the judge's verdict."""

from __future__ import annotations

import ast
import logging
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import torch

from edgekit.artifact.fact import Code, fact
from edgekit.artifact.result import EvaluationResult
from edgekit.judge.limits import FP32, Tolerance
from edgekit.judge.metrics import Comparison, compare, failed_comparison
from edgekit.judge.verdict import judge
from edgekit.model.adapter import to_tensors
from edgekit.model.spec import Array, EvaluationSet, ModelSpec

IMAGES = 12
SHAPES = ({"batch": 2, "height": 128, "width": 128}, {"batch": 3, "height": 96, "width": 160})
Answers = dict[str, Array]


@dataclass(frozen=True)
class Bench:
    """What was exported, what was asked, what the module answered in float32 and float64, and how far apart that is."""

    spec: ModelSpec
    exported: onnx.ModelProto
    evaluation: EvaluationSet
    asked: Mapping[str, Answers]
    answers: Mapping[str, Answers]
    exact: Mapping[str, Answers]
    noise: Mapping[str, float]


def export(spec: ModelSpec) -> onnx.ModelProto:
    """The ONNX graph with dynamic batch, height and width; nodes are named after modules and operators."""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    arguments = to_tensors(spec, spec.random(0, {"batch": 2, "height": 224, "width": 192}))
    free = torch.export.Dim.DYNAMIC
    shapes = tuple({d: free for d, size in enumerate(i.shape) if isinstance(size, str)} for i in spec.inputs)
    with warnings.catch_warnings(action="ignore"):
        captured = torch.export.export(spec.module, arguments, dynamic_shapes=shapes, strict=False)
        names = [[i.name for i in spec.inputs], [o.name for o in spec.outputs]]
        made = torch.onnx.export(
            captured, (), dynamo=True, opset_version=20, verbose=False, input_names=names[0], output_names=names[1]
        )
    assert made is not None
    graph: onnx.ModelProto = made.model_proto
    del graph.graph.value_info[:]  # stale after a change
    seen: Counter[str] = Counter()
    for node in graph.graph.node:
        scopes = next((p.value for p in node.metadata_props if p.key == "pkg.torch.onnx.name_scopes"), "[]")
        path = next((s for s in reversed(ast.literal_eval(scopes)[:-1]) if s and not s.startswith("_")), "")
        seen[name := f"{path}/{node.op_type}"] += 1
        node.name = name if seen[name] == 1 else f"{name}_{seen[name]}"
    return graph


def size(batch: str) -> int:
    """Images are run one at a time, shapes as one batch."""
    return 99 if batch.startswith("shape") else 1


def run(answer: Callable[[Answers], Answers], inputs: Answers, rows: int) -> Answers:
    starts = range(0, len(inputs["images"]), rows)
    with ThreadPoolExecutor(2) as pool:
        parts = list(pool.map(lambda i: answer({name: a[i : i + rows] for name, a in inputs.items()}), starts))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def compared(bench: Bench, model: bytes, rows: int = 1, **options: Any) -> dict[str, Comparison]:
    """Run a graph over all batches; it must load, and run at the default shape."""
    settings = ort.SessionOptions()
    for name, value in ({"intra_op_num_threads": 1, "log_severity_level": 4} | options).items():
        setattr(settings, name, value)
    session = ort.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
    outputs = [output.name for output in bench.spec.outputs]

    def answer(inputs: Answers) -> Answers:
        return dict(zip(outputs, session.run(outputs, inputs), strict=True))

    found = {}
    for batch, inputs in bench.asked.items():
        names = [f"{batch} {i}" for i in range(len(inputs["images"]))]
        real = batch == "evaluation"
        try:
            given = run(answer, inputs, rows if real else size(batch))
        except Exception as error:
            if not batch.startswith("shape"):
                raise  # a graph that does not run at all tests no judge
            found[batch] = failed_comparison(names, fact(Code.NO_ANSWER, error_text=str(error)))
            continue
        truth = bench.evaluation.truth[:IMAGES] if real and bench.evaluation.truth is not None else None
        metric = bench.evaluation.metric if real else None
        found[batch] = compare(bench.spec.outputs, bench.answers[batch], given, names, metric=metric, truth=truth)
    return found


def judged(bench: Bench, found: Mapping[str, Comparison], tolerance: Tolerance = FP32) -> EvaluationResult:
    shapes = [(sizes, found[f"shape {i}"]) for i, sizes in enumerate(SHAPES)]
    real, stress = [found["evaluation"]], [found["stress"]]
    return judge(tolerance, bench.noise, evaluation=real, stress=stress, grid=shapes)
