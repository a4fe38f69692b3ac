"""What a record on disk says of a model, through JSON: its name, inputs, outputs, axes and where it comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from edgekit.model.spec import Axis, Input, ModelSpec, Output

if TYPE_CHECKING:
    import torch


def declaration(spec: ModelSpec) -> dict[str, Any]:
    """What a record on disk says of a model: what `declared_spec` takes, through JSON."""
    return {
        "name": spec.name,
        "inputs": [asdict(i) for i in spec.inputs],
        "outputs": [asdict(o) for o in spec.outputs],
        "axes": {name: asdict(axis) for name, axis in spec.axes.items()},
        "licence": spec.licence,
        "author": spec.author,
        "description": spec.description,
        "trained_on": spec.trained_on,
    }


def declared_spec(record: Mapping[str, Any], module: torch.nn.Module) -> ModelSpec:
    """A module as the model that a record on disk says it is."""
    return ModelSpec(
        name=record["name"],
        module=module,
        inputs=declared_inputs(record["inputs"]),
        outputs=TypeAdapter(tuple[Output, ...]).validate_python(record["outputs"]),
        axes=declared_axes(record["axes"]),
        licence=record["licence"],
        author=record["author"],
        description=record["description"],
        trained_on=record.get("trained_on", ""),
    )


def declared_inputs(rows: Sequence[Mapping[str, Any]]) -> tuple[Input, ...]:
    """Inputs as a record on disk has them: `dataclasses.asdict`, through JSON."""
    return TypeAdapter(tuple[Input, ...]).validate_python(rows)


def declared_axes(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Axis]:
    """Axes as a record on disk has them."""
    return TypeAdapter(dict[str, Axis]).validate_python(rows)
