"""An independent look at an artifact that edgekit verified: other inputs, other arithmetic, none of edgekit's judge.

The module answers in PyTorch, the artifact in ONNX Runtime, PyTorch, ExecuTorch, OpenVINO, MNN, IREE or Core AI,
called directly. Core ML packages run in edgekit's own interpreter: nothing else runs them on Linux. Only NumPy
compares.
"""

from __future__ import annotations

import asyncio
import json
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
ALLOWED = {"fp32": 1e-3, "delegated": 1e-2, "fp16": 0.1, "int8": 0.35}
"""Root mean square error of an input's answer, in units of the answers' deviation."""
LARGEST = 3.0
"""Of single inputs over the mean of all: how far one of many may be over it."""
PRECISIONS = {
    "onnx": "fp32",
    "torchscript": "fp32",
    "torch-mobile": "fp32",
    "executorch": "delegated",
    "openvino": "delegated",
    "mnn": "delegated",
    "mnn-int8": "int8",
    "iree": "delegated",
    "coreai": "fp32",
    "onnx-fp16": "fp16",
    "coreml": "fp16",
    "onnx-int8-static": "int8",
    "onnx-int8-dynamic": "int8",
    "executorch-int8": "int8",
    "coreml-int8": "int8",
}


def compared(
    module: nn.Module, outputs: Sequence[str], target: str, artifact: Path, inputs: Mapping[str, Array]
) -> tuple[float, str]:
    """The largest error in units of what is allowed, and the output that has it.

    Args:
        module: The model itself.
        outputs: Names of its outputs, in the artifact's order.
        target: What the artifact is.
        artifact: Its folder.
        inputs: Inputs by name, [n, ...]; each is asked alone.
    """
    right = stacked(module_answers(module, outputs, one) for one in singles(inputs))
    run = OPEN[target](artifact)
    wrong = stacked(dict(zip(outputs, run(one), strict=True)) for one in singles(inputs))
    allowed = ALLOWED[PRECISIONS[target]]
    found = [(error(right[name], wrong[name]) / allowed, name) for name in outputs]
    return max(found)


def error(right: Array, wrong: Array) -> float:
    """The mean of the inputs' errors, or a third of the worst, in units of the deviation; infinite: not comparable."""
    if right.shape != wrong.shape or not np.isfinite(wrong).all():
        return float("inf")
    if right.dtype.kind in "iub":
        return 0.0 if np.array_equal(right, wrong) else float("inf")
    a, b = (x.astype(np.float64).reshape(len(x), -1) for x in (right, wrong))
    rows = np.sqrt(((a - b) ** 2).mean(1)) / max(float(a.std()), 1e-12)
    return float(max(rows.mean(), rows.max() / LARGEST))


def singles(inputs: Mapping[str, Array]) -> Iterator[dict[str, Array]]:
    """Each input of a set alone, with a batch of one."""
    for row in range(len(next(iter(inputs.values())))):
        yield {name: np.ascontiguousarray(values[row : row + 1]) for name, values in inputs.items()}


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


def _core_ai(artifact: Path) -> Run:
    from coreai.authoring.asset import AIModelAsset
    from coreai.runtime import NDArray

    async def answered(inputs: Mapping[str, Array]) -> list[Array]:
        async with AIModelAsset.load(Path(_entry(artifact))).executable() as model:
            said = await model.load_function("main")({name: NDArray(_narrow(x)) for name, x in inputs.items()})
            return [np.array(said[name].numpy()) for name in _outputs(artifact)]

    return lambda inputs: asyncio.run(answered(inputs))


def _narrow(array: Array) -> Array:
    """Core AI and MNN have no 64-bit integers."""
    return array.astype(np.int32) if array.dtype == np.int64 else array


def _core_ml(artifact: Path) -> Run:
    from edgekit.runtime.coreml import open_package

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
    "onnx-int8-static": _onnx,
    "onnx-int8-dynamic": _onnx,
    "torchscript": _script,
    "torch-mobile": _lite,
    "executorch": _executorch,
    "executorch-int8": _executorch,
    "openvino": _openvino,
    "mnn": _mnn,
    "mnn-int8": _mnn,
    "iree": _iree,
    "coreai": _core_ai,
    "coreml": _core_ml,
    "coreml-int8": _core_ml,
}
