"""The place `onnx-reference`: the ONNX project's own evaluator, which computes each operator as its text defines it.

See https://onnx.ai/onnx/api/reference.html.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.model.spec import Array


class ReferenceRuntime:
    """An ONNX file in the reference evaluator.

    Args:
        file: The file.
        settings: The record's `settings`, of which this place has none.
    """

    def __init__(self, file: Path, settings: Mapping[str, str]) -> None:
        import onnx
        from onnx.reference import ReferenceEvaluator

        self._evaluator = ReferenceEvaluator(str(file))
        self.device = f"onnx {onnx.__version__}, reference evaluator"

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Answer one batch: arrays by input name in, arrays by output name out."""
        outputs = self._evaluator.run(None, dict(inputs))
        return dict(zip(self._evaluator.output_names, outputs, strict=True))

    def close(self) -> None:
        """Free the graph."""
        del self._evaluator
