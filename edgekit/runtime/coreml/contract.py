"""What a package says of the model it was made from, in its own metadata, and what an app does with that.

`edgekit.inputs` and `edgekit.outputs` are JSON lists of what the model declares. Core ML has no int64 and no booleans,
so a package gives int32 where the model's dtype is one of these. Where top-K was cut off, `edgekit.derived` lists the
counts and rankings that follow from the scores; an app computes them as `complete` does.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import cast, get_args

import numpy as np

from edgekit.errors import ArtifactError
from edgekit.model.spec import Array, Input, Output, Role
from edgekit.runtime.coreml.records import Package

INPUTS_KEY = "edgekit.inputs"
OUTPUTS_KEY = "edgekit.outputs"
DERIVED_KEY = "edgekit.derived"
LARGEST_BYTE = 255.0  # of a pixel


@dataclass(frozen=True)
class Derived:
    """An output that an app computes from scores.

    Attributes:
        output: What the model declares.
        count: How many a ranking names; 0 for counts.
    """

    output: Output
    count: int = 0


@dataclass(frozen=True)
class Contract:
    """What a package's metadata declare; empty for packages that edgekit did not make.

    Attributes:
        spans: Smallest and largest value of an image, by name.
        outputs: What the package gives.
        derived: What an app computes from that.
    """

    spans: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    outputs: tuple[Output, ...] = ()
    derived: tuple[Derived, ...] = ()

    def pixels(self, name: str, image: Array) -> Array:
        """An image's values as the bytes of a pixel buffer, float32 in [0, 255]; values between two are rounded."""
        low, high = self.spans.get(name, (0.0, 1.0))
        scaled = (image - np.float32(low)) * np.float32(LARGEST_BYTE / (high - low))
        return np.asarray(np.clip(np.round(scaled), 0, LARGEST_BYTE), dtype=np.float32)

    def complete(self, answers: Mapping[str, Array]) -> dict[str, Array]:
        """The package's answers in the model's dtypes, with the derived outputs.

        Counts are `floor(low + (high - low) * score + 0.5)` in fp64; rankings give ties to the lower index.
        """
        dtypes = {o.name: o.dtype for o in self.outputs}
        result = {name: array.astype(dtypes.get(name, array.dtype)) for name, array in answers.items()}
        for derived in self.derived:
            output, scores = derived.output, result[derived.output.of]
            if output.role == "counts":
                found = np.floor(output.low + (output.high - output.low) * scores.astype(np.float64) + 0.5)
            else:
                found = np.argsort(-scores, axis=-1, kind="stable")[..., : derived.count]
            result[output.name] = found.astype(output.dtype)
        return result


def entries(inputs: Iterable[Input], outputs: Iterable[Output], derived: Iterable[Derived]) -> dict[str, str]:
    """The metadata of a package, by key."""
    takes = [{"name": i.name, "dtype": i.dtype, "kind": i.kind, "low": i.low, "high": i.high} for i in inputs]
    gives = [_entry(o) for o in outputs]
    follows = [_entry(d.output) | {"count": d.count} for d in derived]
    found = {INPUTS_KEY: takes, OUTPUTS_KEY: gives} | ({DERIVED_KEY: follows} if follows else {})
    return {key: json.dumps(value, sort_keys=True) for key, value in found.items()}


def declared(package: Package) -> Contract:
    """The contract in a package's metadata.

    Raises:
        ArtifactError: If the metadata are damaged.
    """
    try:
        keys = (INPUTS_KEY, OUTPUTS_KEY, DERIVED_KEY)
        takes, gives, follows = (json.loads(package.metadata.get(key, "[]")) for key in keys)
        return Contract(
            spans={str(e["name"]): _span(e) for e in takes if e["kind"] == "image"},
            outputs=tuple(_output(e) for e in gives),
            derived=tuple(Derived(_output(e), int(e["count"])) for e in follows),
        )
    except (ValueError, TypeError, KeyError) as error:
        raise ArtifactError(f"the metadata in '{package.path}' are damaged ({error!r}): export again") from error


def _entry(output: Output) -> dict[str, object]:
    return {
        "name": output.name,
        "dtype": output.dtype,
        "role": output.role,
        "of": output.of,
        "low": output.low,
        "high": output.high,
    }


def _span(entry: Mapping[str, object]) -> tuple[float, float]:
    low, high = float(str(entry["low"])), float(str(entry["high"]))
    if not low < high:
        raise ValueError(f"no values between {low} and {high}")
    return low, high


def _output(entry: Mapping[str, object]) -> Output:
    role = entry["role"]
    if role not in get_args(Role):
        raise ValueError(f"no role '{role}'")
    return Output(
        name=str(entry["name"]),
        role=cast(Role, role),
        of=str(entry["of"]),
        dtype=np.dtype(str(entry["dtype"])).name,
        low=float(str(entry["low"])),
        high=float(str(entry["high"])),
    )
