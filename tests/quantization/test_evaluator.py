"""What the evaluator asks beside photographs."""

from __future__ import annotations

from pathlib import Path

import onnx

from edgekit.model.source import resolve_model
from edgekit.onnxgraph import qdq
from edgekit.onnxgraph.quant_config import QuantConfig
from edgekit.pipeline import run
from edgekit.quantization import calibration, observers
from edgekit.quantization.calibration import Samples
from edgekit.quantization.evaluator import Evaluator
from edgekit.reference.batches import stress_batch
from edgekit.testing import SMALL, QuietListener, small_model


def test_inputs_that_nobody_calibrated_for_are_asked(tmp_path: Path) -> None:
    """Ranges made from pictures do not hold the query of all lowest numbers: the gate would find out at the end."""
    run.export(resolve_model(SMALL), ("onnx",), tmp_path / "small", {}, QuietListener())
    graph = onnx.load(tmp_path / "small" / "onnx" / "model.onnx")
    spec = small_model()
    samples = calibration.samples(spec, None, 128)
    observed = observers.observe(graph, qdq.activations(graph), samples.part(0, 96), ("minmax",), lambda _: None)
    made = qdq.quantize_static(graph, QuantConfig(method="minmax", reduce_range=True), observed)
    extremes = stress_batch(spec)
    told = Evaluator(spec, graph, samples.part(96, 128), tmp_path, Samples(extremes.inputs, extremes.names)).judge(made)
    assert any("'all lowest'" in reason for reason in told.reasons), told.reasons
    untold = Evaluator(spec, graph, samples.part(96, 128), tmp_path).judge(made)
    assert not any("'all lowest'" in reason for reason in untold.reasons)
    assert untold.snr_db == told.snr_db
