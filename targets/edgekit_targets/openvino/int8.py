"""OpenVINO IR in INT8 by NNCF: linear layers and convolutions in INT8, all else in fp32.

By default NNCF cuts ranges and quantizes the products of attention. For arr-coc-tiny's relevance that leaves a
signal-to-noise ratio of 9 to 17 dB. Here only layers with constant weights are quantized, and ranges hold all observed
values. Ranges around zero are tried first: OpenVINO computes them 1.1 times as fast. The weights are conditioned first,
and large lookup tables are stored in INT8, as for ONNX.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from edgekit.errors import ExportError
from edgekit.model.folder import load_model
from edgekit.model.shapes import shapes_between
from edgekit.target import INT8, ExportResult, Job, Need, Place, Runtime, Target, TargetDescription
from edgekit_targets.onnx.passes.graph import fold_constants, save_graph
from edgekit_targets.onnx.passes.groups import group_of
from edgekit_targets.onnx.passes.weight_only import quantize_tables
from edgekit_targets.onnx.quantization import calibration, conditioning
from edgekit_targets.onnx.quantization.calibration import Samples, extra_inputs
from edgekit_targets.onnx.quantization.conditioning import REDUCE_RANGE
from edgekit_targets.onnx.quantization.evaluator import Evaluator, Quality, strictest
from edgekit_targets.onnx.quantization.search import NEEDED, Fallback, fallback, split
from edgekit_targets.openvino import runtime
from edgekit_targets.openvino.export import ENTRY, load, read_model, save_model

LAYERS = ("MatMul", "Convolution", "GroupConvolution")
# The operators that may lie between a constant and its layer.
UNPACKING = ("Convert", "Reshape", "Transpose", "Unsqueeze")
SILENT = "NNCF_CI"
"""Variable that keeps NNCF from reporting its use."""
ROUNDING = "FakeQuantize"


def export(source: Path, out: Path, job: Job) -> ExportResult:
    """Quantize the ONNX artifact to `model.xml` and `model.bin` in INT8.

    Raises:
        ExportError: If OpenVINO cannot read the graph, NNCF cannot quantize it, or it has nothing to quantize.
    """
    import onnx

    spec, graph = load_model(job.model), fold_constants(onnx.load(job.entry))
    job.progress(0.0, "making the calibration samples")
    samples = calibration.samples(spec, job.get(calibration.FOLDER), NEEDED["quick"])
    calibration_samples, held_back = split(samples, "quick")
    reduced = job.get(REDUCE_RANGE)
    job.progress(0.1, "rounding the weights")
    ready = conditioning.condition(graph, samples, reduce_range=reduced)
    with tempfile.TemporaryDirectory(prefix="edgekit-") as scratch:
        place = Path(scratch)
        # NNCF quantizes layers alone: a table of words would stay in fp32.
        save_graph(quantize_tables(ready.graph), place / "model.onnx")
        model = read_model(place / "model.onnx", spec.name)
        # Names of the layers with constant weights, by the user's module.
        parts: dict[str, list[str]] = {}
        for operation in model.get_ordered_ops():
            name = operation.get_friendly_name()
            if operation.get_type_name() not in LAYERS or group_of(name) in ready.floats or _crashes(operation):
                continue
            weight = operation.input_value(1).get_node()
            while weight.get_type_name() in UNPACKING:
                weight = weight.input_value(0).get_node()
            if weight.get_type_name() == "Constant":
                parts.setdefault(group_of(name), []).append(name)
        if not parts:
            raise ExportError(
                f"'{spec.name}' has no linear layer and no convolution with constant weights, so INT8 cannot make it "
                "faster. Use openvino"
            )
        job.progress(0.2, f"looking at activations on {len(calibration_samples.names)} samples")
        layers = {name for names in parts.values() for name in names}
        quantized = _quantize(model, calibration_samples, layers, reduced, spec.name, "performance")
        inputs = extra_inputs(spec, samples, job.dynamic, shapes_between(spec.axes))
        evaluator = Evaluator(spec, graph, held_back, place, inputs, tolerance=strictest(INT8))

        def open_model(floats: tuple[str, ...]) -> Runtime:
            save_model(_without(quantized, parts, floats), place / ENTRY, spec.facts)
            return runtime.OpenvinoRuntime(place / ENTRY)

        def judge(floats: tuple[str, ...]) -> Quality:
            return evaluator.judge_runtime(open_model(floats))

        def snr(floats: tuple[str, ...]) -> float:
            return evaluator.snr(open_model(floats))

        result = Fallback((), judge(()), 1)
        if not result.quality.passed:
            quantized = _quantize(model, calibration_samples, layers, reduced, spec.name, "mixed")
            result = fallback(parts, judge, snr, lambda share, text: job.progress(0.3 + 0.6 * share, text))
    notes = [f"in fp32, weights too: {', '.join(ready.floats)}"] if ready.floats else []
    notes += [f"in float arithmetic: {', '.join(result.groups)}"] if result.groups else []
    job.progress(0.95, "writing the files")
    save_model(_without(quantized, parts, result.groups), out / ENTRY, spec.facts)
    return ExportResult(
        precision="int8",
        entry=ENTRY,
        dynamic=job.dynamic,
        notes=(*notes, *result.notes),
        failures=result.failures,
    )


def _crashes(layer: Any) -> bool:
    """Return whether a depthwise convolution has a kernel larger than its picture.

    In INT8 and with an open batch OpenVINO 2026.4.1 ends the process there (SIGSEGV, an Intel processor with AMX).
    """
    if layer.get_type_name() != "GroupConvolution":
        return False
    picture, kernel = (list(layer.input_value(n).get_partial_shape())[-2:] for n in (0, 1))
    return any(size.is_static and size.get_length() < k.get_length() for size, k in zip(picture, kernel, strict=True))


def _quantize(model: Any, samples: Samples, layers: set[str], reduced: bool, name: str, preset: str) -> Any:
    """Return the model with these layers in INT8: activations in observed ranges, one scale per weight channel.

    Args:
        model: In fp32.
        samples: For the ranges.
        layers: Names of what is quantized.
        reduced: Whether weights have 7 bits.
        name: The model's, for errors.
        preset: "performance": ranges of activations are symmetric around zero. "mixed": they are as observed.
    """
    with _quiet():
        import nncf
        from nncf.quantization.range_estimator import RangeEstimatorParametersSet as Ranges

        others = [op.get_friendly_name() for op in model.get_ordered_ops() if op.get_friendly_name() not in layers]
        settings = nncf.AdvancedQuantizationParameters(
            overflow_fix=nncf.OverflowFix.ENABLE if reduced else nncf.OverflowFix.DISABLE,
            # Weights on their INT8 grid leave nothing to correct.
            disable_bias_correction=True,
            activations_range_estimator_params=Ranges.MINMAX,
        )
        try:
            return nncf.quantize(
                model,
                nncf.Dataset(samples.batches(1)),
                preset=nncf.QuantizationPreset(preset),
                subset_size=len(samples.names),
                ignored_scope=nncf.IgnoredScope(names=others, validate=False),
                advanced_parameters=settings,
            )
        # NNCF raises any error of its passes.
        except Exception as error:
            raise ExportError(f"NNCF cannot quantize '{name}': {runtime.reason(error)}") from error


def _without(quantized: Any, parts: Mapping[str, list[str]], floats: tuple[str, ...]) -> Any:
    """Return a copy in which some groups read unquantized activations: float arithmetic on weights of 8 bits."""
    model = quantized.clone()
    layers = {name for group in floats for name in parts[group]}
    for operation in model.get_ordered_ops():
        if operation.get_friendly_name() in layers:
            node = operation.input_value(0).get_node()
            if node.get_type_name() == ROUNDING:
                operation.input(0).replace_source_output(node.input_value(0))
    return model


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence NNCF, which draws bars on the terminal, logs its work, and reports its use by default."""
    before = os.environ.get(SILENT)
    os.environ[SILENT] = "1"
    log = logging.getLogger("nncf")
    disabled, log.disabled = log.disabled, True
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        log.disabled = disabled
        os.environ.pop(SILENT) if before is None else os.environ.update({SILENT: before})


TARGET = Target(
    summary="OpenVINO IR in INT8, by NNCF",
    about=TargetDescription(
        use_case="the same as `openvino`, smaller, with INT8 arithmetic",
        proved_by="OpenVINO's CPU plugin on this processor",
        not_covered="processors of another kind (x86 without VNNI), GPUs and NPUs",
    ),
    source="onnx",
    export=export,
    load=load,
    places=(Place(name=runtime.CPU, tolerance=INT8),),
    needs=(Need("openvino", "nncf"), Need("nncf", "nncf"), Need("onnxruntime", "cpu")),
    groups=("intel",),
    options=(REDUCE_RANGE, calibration.FOLDER),
)
