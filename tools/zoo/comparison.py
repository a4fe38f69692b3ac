"""An independent look at an artifact that edgekit verified: other inputs, other arithmetic, none of edgekit's judge.

The module answers in PyTorch, the artifact in ONNX Runtime, PyTorch, ExecuTorch, OpenVINO, MNN, IREE, LiteRT or Core
AI, called directly. Core ML packages run in edgekit's own interpreter: nothing else runs them on Linux. Only NumPy
compares.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

Array = npt.NDArray[Any]
Answers = dict[str, Array]
Run = Callable[[Mapping[str, Array]], Sequence[Array]]
ALLOWED = {"fp32": 1e-3, "delegated": 1e-2, "fp16": 0.1, "int8": 0.35, "int4": 0.35}
"""Root mean square error of an input's answer, in units of the answers' deviation."""
LARGEST = 3.0
"""Of single inputs over the mean of all: how far one of many may be over it."""
DELEGATED = ("executorch", "openvino", "mnn", "iree", "litert")
"""Targets whose kernels reorder sums."""


def compared(
    module: nn.Module, outputs: Mapping[str, str], target: str, artifact: Path, asked: Sequence[Mapping[str, Array]]
) -> tuple[float, str]:
    """The largest error in units of what is allowed, and the output that has it.

    Args:
        module: The model itself.
        outputs: Role of each output, in the artifact's order.
        target: What the artifact is.
        artifact: Its folder.
        asked: Inputs by name, of one run each.
    """
    right = stacked(module_answers(module, [*outputs], one) for one in asked)
    run = OPEN[target](artifact)
    wrong = stacked(dict(zip(outputs, run(one), strict=True)) for one in asked)
    precision = json.loads((artifact / "manifest.json").read_text())["precision"]
    allowed = ALLOWED["delegated" if precision == "fp32" and target in DELEGATED else precision]
    found = []
    for name, role in outputs.items():
        if role == "count":  # of the detections, which are compared as boxes
            (boxes,) = (answer for answer in wrong.values() if answer.ndim == 4)
            found.append((0.0 if np.array_equal(wrong[name][:, 0], (boxes[:, 0, :, 4] > 0).sum(1)) else np.inf, name))
        else:
            measure = detections_error if role == "detections" else error
            found.append((measure(right[name], wrong[name]) / allowed, name))
    return max(found)


def detections_error(right: Array, wrong: Array) -> float:
    """Share of what is detected that is missing or too much: the mean of the inputs, or a third of the worst.

    A detection (left, top, right, bottom, score, class) counts by its score; found of it is its overlap with one of its
    class, less what their scores differ by. Infinite: not comparable.
    """
    if right.shape != wrong.shape or not np.isfinite(wrong).all():
        return float("inf")
    pairs = [(a[a[:, 4] > 0], b[b[:, 4] > 0]) for a, b in zip(right[:, 0], wrong[:, 0], strict=True)]
    rows = np.array([max(_missing(a, b), _missing(b, a)) for a, b in pairs])
    return float(max(rows.mean(), rows.max() / LARGEST))


def _missing(asked: Array, there: Array) -> float:
    weights = asked[:, 4]
    if not len(weights):
        return 0.0
    low, high = (of(asked[:, None, :4], there[None, :, :4]) for of in (np.maximum, np.minimum))
    inner = np.clip(high[..., 2:] - low[..., :2], 0, None).prod(-1)
    sizes = [np.clip(rows[:, 2:4] - rows[:, :2], 0, None).prod(-1) for rows in (asked, there)]
    over = inner / np.maximum(sizes[0][:, None] + sizes[1][None] - inner, 1e-12)
    same = asked[:, None, 5] == there[None, :, 5]
    alike = np.where(same, over - np.abs(asked[:, None, 4] - there[None, :, 4]), 0.0)
    found = alike.max(1, initial=0.0)
    return float(1 - (weights * found).sum() / weights.sum())


def error(right: Array, wrong: Array) -> float:
    """The mean of the inputs' errors, or a third of the worst, in units of the deviation; infinite: not comparable."""
    if right.shape != wrong.shape or not np.isfinite(wrong).all():
        return float("inf")
    if right.dtype.kind in "iub":
        return 0.0 if np.array_equal(right, wrong) else float("inf")
    a, b = (x.astype(np.float64).reshape(len(x), -1) for x in (right, wrong))
    rows = np.sqrt(((a - b) ** 2).mean(1)) / max(float(a.std()), 1e-12)
    return float(max(rows.mean(), rows.max() / LARGEST))


def stacked(answers: Iterator[Answers]) -> Answers:
    """The answers to many inputs as one array a name."""
    every = list(answers)
    return {name: np.stack([np.asarray(one[name]) for one in every]) for name in every[0]}


def module_answers(module: nn.Module, outputs: Sequence[str], inputs: Mapping[str, Array]) -> Answers:
    """What the module itself answers in PyTorch, by name."""
    with torch.no_grad():
        said = module(*(torch.from_numpy(value) for value in inputs.values()))
    if hasattr(said, "keys"):
        return {name: said[name].numpy() for name in outputs}
    values = (said,) if isinstance(said, torch.Tensor) else said
    return {name: value.numpy() for name, value in zip(outputs, values, strict=True)}


def _onnx(artifact: Path) -> Run:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(_entry(artifact), options, providers=["CPUExecutionProvider"])
    return lambda inputs: session.run(None, dict(inputs))


def _buckets(artifact: Path) -> Run:
    """The file whose sizes are those of the input."""
    import onnxruntime as ort

    home = Path(_entry(artifact))
    index = json.loads((home / "buckets.json").read_text())

    def run(inputs: Mapping[str, Array]) -> list[Array]:
        named = [
            (axis, size)
            for name, x in inputs.items()
            for axis, size in zip(index["inputs"][name], x.shape, strict=True)
        ]
        sizes = {axis: size for axis, size in named if axis}
        (file,) = (one["file"] for one in index["buckets"] if one["sizes"] == sizes)
        return ort.InferenceSession(home / file, providers=["CPUExecutionProvider"]).run(None, dict(inputs))  # type: ignore[no-any-return]

    return run


def _script(artifact: Path) -> Run:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = torch.jit.load(_entry(artifact))  # type: ignore[no-untyped-call]
    return lambda inputs: _tensors(module(*map(torch.from_numpy, inputs.values())))


def _lite(artifact: Path) -> Run:
    from torch.jit.mobile import _load_for_lite_interpreter

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = _load_for_lite_interpreter(_entry(artifact))  # type: ignore[no-untyped-call]
    return lambda inputs: _tensors(module(*map(torch.from_numpy, inputs.values())))


def _executorch(artifact: Path) -> Run:
    from executorch.runtime import Runtime

    method = Runtime.get().load_program(_entry(artifact)).load_method("forward")
    return lambda inputs: [v.numpy().copy() for v in method.execute([torch.from_numpy(x) for x in inputs.values()])]


def _openvino(artifact: Path) -> Run:
    import openvino

    model = openvino.Core().compile_model(_entry(artifact), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})

    def run(inputs: Mapping[str, Array]) -> list[Array]:
        said = model(dict(inputs))
        return [np.array(said[name]) for name in _outputs(artifact)]

    return run


def _mnn(artifact: Path) -> Run:
    import MNN

    expr, outputs = MNN.expr, _outputs(artifact)
    module = MNN.nn.load_module_from_file(_entry(artifact), [], outputs)
    names = module.get_info()["inputNames"]

    def run(inputs: Mapping[str, Array]) -> list[Array]:
        given = []
        for array in (_narrow(inputs[name]) for name in names):
            given.append(
                expr.placeholder(list(array.shape), expr.NCHW, expr.int if array.dtype.kind == "i" else expr.float)
            )
            given[-1].write(array)
        return [np.array(expr.convert(one, expr.NCHW).read()).reshape(one.shape) for one in module.forward(given)]

    return run


def _iree(artifact: Path) -> Run:
    import iree.runtime

    config = iree.runtime.Config("local-sync")
    module = iree.runtime.VmModule.mmap(config.vm_instance, _entry(artifact))
    function = iree.runtime.load_vm_module(module, config)["main"]

    def run(inputs: Mapping[str, Array]) -> list[Array]:
        said = function(*inputs.values())
        return [np.array(one.to_host()) for one in (said if isinstance(said, tuple) else (said,))]

    return run


def _aoti(artifact: Path) -> Run:
    from torch._inductor import aoti_load_package

    module = aoti_load_package(_entry(artifact))
    return lambda inputs: _tensors(module(*map(torch.from_numpy, inputs.values())))


LITERT = """import sys
import numpy as np
from ai_edge_litert.interpreter import Interpreter
runner = Interpreter(model_path=sys.argv[1]).get_signature_runner()
np.savez(sys.argv[3], **runner(**np.load(sys.argv[2])))
"""


def _litert(artifact: Path) -> Run:
    """In the environment that has LiteRT."""
    from edgekit.storage import environment

    def run(inputs: Mapping[str, Array]) -> list[Array]:
        with tempfile.TemporaryDirectory() as folder:
            given, said = f"{folder}/given.npz", f"{folder}/said.npz"
            arrays: dict[str, Any] = {name: _narrow(array) for name, array in inputs.items()}
            np.savez(given, **arrays)
            python = str(environment.python(environment.LITERT))
            subprocess.run([python, "-c", LITERT, _entry(artifact), given, said], check=True, capture_output=True)
            answers = np.load(said)
            return [answers[name] for name in _outputs(artifact)]

    return run


def _core_ai(artifact: Path) -> Run:
    from coreai.authoring.asset import AIModelAsset
    from coreai.runtime import NDArray

    async def answered(inputs: Mapping[str, Array]) -> list[Array]:
        async with AIModelAsset.load(Path(_entry(artifact))).executable() as model:
            said = await model.load_function("main")({name: NDArray(_narrow(x)) for name, x in inputs.items()})
            return [np.array(said[name].numpy()) for name in _outputs(artifact)]

    return lambda inputs: asyncio.run(answered(inputs))


def _narrow(array: Array) -> Array:
    """Core AI, MNN and LiteRT's files have no 64-bit integers."""
    return array.astype(np.int32) if array.dtype == np.int64 else array


def _core_ml(artifact: Path) -> Run:
    from edgekit_targets.coreml.runtime import open_package

    package = open_package(artifact, "interpreter")

    def run(inputs: Mapping[str, Array]) -> list[Array]:
        said = package.run(inputs)
        return [said[name] for name in _outputs(artifact)]

    return run


def _tensors(said: Any) -> list[Array]:
    return [v.detach().numpy() for v in ((said,) if isinstance(said, torch.Tensor) else said)]


def _outputs(artifact: Path) -> list[str]:
    return [output["name"] for output in json.loads((artifact / "manifest.json").read_text())["outputs"]]


def _entry(artifact: Path) -> str:
    return str(artifact / json.loads((artifact / "manifest.json").read_text())["entry"])


OPEN: dict[str, Callable[[Path], Run]] = {
    "onnx": _onnx,
    "onnx-fp16": _onnx,
    "onnx-buckets": _buckets,
    "onnx-int8-static": _onnx,
    "onnx-int8-dynamic": _onnx,
    "onnx-int4": _onnx,
    "torchscript": _script,
    "torch-mobile": _lite,
    "executorch": _executorch,
    "executorch-int8": _executorch,
    "openvino": _openvino,
    "openvino-int8": _openvino,
    "mnn": _mnn,
    "mnn-int8": _mnn,
    "iree": _iree,
    "litert": _litert,
    "litert-int8": _litert,
    "aoti": _aoti,
    "coreai": _core_ai,
    "coreai-int8": _core_ai,
    "coreml": _core_ml,
    "coreml-int8": _core_ml,
}
