"""Models: checkpoint -> ModelSpec -> captured program. The records that a model's author uses are named here."""

from edgekit.model.spec import Array, Axis, EvaluationSet, Input, Metric, ModelSpec, Output

__all__ = ["Array", "Axis", "EvaluationSet", "Input", "Metric", "ModelSpec", "Output"]
