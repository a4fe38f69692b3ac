"""What one INT8 file answers on different processors: where sums are exact, and where pairs of products saturate."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.model.spec import ModelSpec
from edgekit.onnxgraph import saturation
from edgekit.quantization.calibration import Samples
from edgekit.quantization.evaluator import Evaluator, Quality

if TYPE_CHECKING:
    import onnx

IMAGES = 4
"""Images that are run: in the emulation each takes half a second."""


@dataclass(frozen=True)
class ProcessorComparison:
    """The quality of one graph, twice.

    Attributes:
        exact: Where sums are exact, as with VNNI.
        saturating: Where pairs of products saturate, as on x86 without VNNI.
        convolutions: How many INT8 convolutions the graph has, which are not emulated.
    """

    exact: Quality
    saturating: Quality
    convolutions: int = 0

    def sentence(self, advice: str) -> str:
        """What to tell, and the advice where it matters."""
        lost = max(self.exact.snr_db - self.saturating.snr_db, 0.0)
        how = f"emulated, but for its {self.convolutions} INT8 convolutions" if self.convolutions else "emulated"
        said = f"on x86 without VNNI the noise is {lost:.1f} dB higher than with it ({how})"
        if self.exact.passed and not self.saturating.passed:
            return f"{said}, beyond the gate: {advice}"
        return said


def compare_processors(
    spec: ModelSpec, graph: onnx.ModelProto, made: onnx.ModelProto, samples: Samples
) -> ProcessorComparison:
    """Judge a quantized graph against its fp32 graph on the last few of some samples, both ways."""
    with tempfile.TemporaryDirectory(prefix="edgekit-") as folder:
        evaluator = Evaluator(spec, graph, samples.part(-IMAGES, None), Path(folder), settings=saturation.EXACT)
        saturating = evaluator.judge(saturation.emulated(made))
        return ProcessorComparison(evaluator.judge(made), saturating, saturation.convolutions(made))
