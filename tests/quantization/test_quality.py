"""What the jury asks beside photographs."""

from __future__ import annotations

from pathlib import Path

import onnx

from edgekit import pipeline, reference
from edgekit.quantization import calibration, ranges, static
from edgekit.quantization.calibration import Samples
from edgekit.quantization.quality import Jury
from edgekit.quantization.recipe import Recipe
from edgekit.testing import SMALL, Silence, small_model


def test_inputs_that_nobody_calibrated_for_are_asked(tmp_path: Path) -> None:
    """Ranges made from pictures do not hold the query of all lowest numbers: the gate would find out at the end."""
    pipeline.export(SMALL, ("onnx",), tmp_path, {}, Silence())
    graph = onnx.load(tmp_path / "small" / "onnx" / "model.onnx")
    spec = small_model()
    samples = calibration.samples(spec, None, 128)
    observed = ranges.observe(graph, static.activations(graph), samples.part(0, 96), ("minmax",), lambda _: None)
    made = static.quantize(graph, Recipe(method="minmax", reduce_range=True), observed)
    stress = reference.stress(spec)
    told = Jury(spec, graph, samples.part(96, 128), tmp_path, Samples(stress.inputs, stress.names)).judge(made)
    assert any("'all lowest'" in reason for reason in told.reasons), told.reasons
    untold = Jury(spec, graph, samples.part(96, 128), tmp_path).judge(made)
    assert not any("'all lowest'" in reason for reason in untold.reasons)
    assert untold.snr_db == told.snr_db
