"""What the model itself says, recorded once: golden outputs, their noise floor, latency, and what made them.

The best reference is a GPU's, recorded with `edgekit reference --device cuda` in fp32 with TF32 off and deterministic
algorithms, and shipped with the model; without one, the CPU's own answer is recorded. Every report says which it was.

A reference folder holds reference.json, outputs.safetensors and, in a build, inputs.safetensors. Arrays are named
`<batch>/<tensor>`. The batches: `evaluation` (real inputs, one image at a time), `stress` (random, constant and extreme
inputs, likewise) and `grid-NN` (one shape of the grid each, as one batch).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from edgekit import artifact
from edgekit.errors import RecordError
from edgekit.grid import grid
from edgekit.spec import Array, Evaluation, ModelSpec

EVALUATION, STRESS, GRID = "evaluation", "stress", "grid"
INFO, INPUTS, OUTPUTS = "reference.json", "inputs.safetensors", "outputs.safetensors"
FEATURE_ROWS = 4  # images whose features are recorded: they are large, and follow from what is recorded of all
RANDOM_ROWS = 4


@dataclass(frozen=True)
class Batch:
    """Inputs that belong together, and what the reference answered.

    Attributes:
        name: "evaluation", "stress" or "grid-NN".
        inputs: By name, [n, ...].
        outputs: By name, [n, ...]; features for the first FEATURE_ROWS rows only.
        sizes: For a grid batch the sizes of its axes; empty otherwise.
        names: One name a row.
    """

    name: str
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]
    sizes: Mapping[str, int]
    names: tuple[str, ...]

    @property
    def single(self) -> bool:
        """Whether its rows are run one at a time, as an edge device would."""
        return not self.sizes

    def first(self, rows: int) -> Batch:
        """The same with its first rows only."""
        inputs = {name: array[:rows] for name, array in self.inputs.items()}
        outputs = {name: array[:rows] for name, array in self.outputs.items()}
        return replace(self, inputs=inputs, outputs=outputs, names=self.names[:rows])

    def rows(self) -> Iterator[dict[str, Array]]:
        """The inputs of one run each."""
        if not self.single:
            yield dict(self.inputs)
            return
        for row in range(len(self.names)):
            yield {name: array[row : row + 1] for name, array in self.inputs.items()}


@dataclass(frozen=True)
class Reference:
    """A recorded reference.

    Attributes:
        batches: What was asked and answered.
        noise: For each floating-point output the largest absolute difference between the model's own answers on this
            device in fp32, on the CPU in fp32 and on the CPU in fp64, over the evaluation batch.
        info: Everything else that reference.json says.
        sha256: Of reference.json.
    """

    batches: tuple[Batch, ...]
    noise: Mapping[str, float]
    info: Mapping[str, Any]
    sha256: str

    @property
    def device(self) -> str:
        """What made it, in words."""
        return str(self.info["device"])


def asked(spec: ModelSpec, evaluation: Evaluation | None) -> tuple[Batch, ...]:
    """The batches of inputs that a model is recorded and judged on, without outputs; the same for the same spec."""
    batches = []
    if evaluation is not None:
        batches.append(Batch(EVALUATION, evaluation.inputs, {}, {}, evaluation.names))
    batches.append(stress(spec))
    for number, sizes in enumerate(grid(spec.axes)):
        inputs = spec.random(1000 + number, sizes)
        names = tuple(f"row {row}" for row in range(len(next(iter(inputs.values())))))
        batches.append(Batch(f"{GRID}-{number:02d}", inputs, {}, sizes, names))
    return tuple(batches)


def stress(spec: ModelSpec) -> Batch:
    """Random, constant and extreme inputs at default sizes: what a photograph never is and a runtime must survive."""
    rows: list[dict[str, Array]] = [spec.random(seed) for seed in range(RANDOM_ROWS)]
    names = [f"random {seed}" for seed in range(RANDOM_ROWS)]
    for name, share in (("all lowest", 0.0), ("all highest", 1.0), ("all middle", 0.5)):
        rows.append({i.name: _filled(spec, i.name, share) for i in spec.inputs})
        names.append(name)
    for seed in range(2):
        drawn = spec.random(100 + seed)
        middles = {i.name: (i.low + i.high) / 2 for i in spec.inputs}
        rows.append(
            {i.name: np.where(drawn[i.name] > middles[i.name], i.high, i.low).astype(i.dtype) for i in spec.inputs}
        )
        names.append(f"lowest or highest {seed}")
    inputs = {i.name: np.concatenate([row[i.name] for row in rows]) for i in spec.inputs}
    return Batch(STRESS, inputs, {}, {}, tuple(names))


def digest(batches: tuple[Batch, ...]) -> str:
    """sha256 of all inputs: a reference belongs to these bytes."""
    hashed = hashlib.sha256()
    for batch in batches:
        for name, array in sorted(batch.inputs.items()):
            hashed.update(f"{batch.name}/{name} {array.dtype} {array.shape}\n".encode())
            hashed.update(np.ascontiguousarray(array).tobytes())
    return hashed.hexdigest()


def same_inputs(one: tuple[Batch, ...], other: tuple[Batch, ...]) -> bool:
    """Whether the batches ask the same (compared as they are, which is quicker than two hashes)."""
    return [b.name for b in one] == [b.name for b in other] and all(
        a.inputs.keys() == b.inputs.keys() and all(np.array_equal(a.inputs[k], b.inputs[k]) for k in a.inputs)
        for a, b in zip(one, other, strict=True)
    )


def write(folder: Path, batches: tuple[Batch, ...], info: Mapping[str, object], with_inputs: bool) -> None:
    """Write a reference folder atomically; `info` gains the hashes and the list of batches."""
    from safetensors.numpy import save

    outputs = _named({b.name: b.outputs for b in batches})
    with artifact.staging(folder) as staged:
        (staged / OUTPUTS).write_bytes(save(outputs))
        described = [{"name": b.name, "sizes": dict(b.sizes), "names": list(b.names)} for b in batches]
        own = {"batches": described, "inputs_sha256": digest(batches)}
        own["outputs_sha256"] = artifact.digest_file(staged / OUTPUTS)
        if with_inputs:
            (staged / INPUTS).write_bytes(save(_named({b.name: b.inputs for b in batches})))
        artifact.write_text(staged / INFO, artifact.dump_json({**info, **own}))


def read(folder: Path) -> Reference:
    """Read a build's reference folder, with inputs.

    Raises:
        RecordError: If it is missing, incomplete or damaged.
    """
    from safetensors.numpy import load_file

    info = describe(folder)
    try:
        inputs, outputs = load_file(folder / INPUTS), load_file(folder / OUTPUTS)
    except Exception as error:
        raise RecordError(f"the reference in '{folder}' is damaged ({error}): run `edgekit reference` again") from error
    batches = tuple(
        Batch(b["name"], of(b["name"], inputs), of(b["name"], outputs), b["sizes"], tuple(b["names"]))
        for b in info["batches"]
    )
    if digest(batches) != info["inputs_sha256"] or artifact.digest_file(folder / OUTPUTS) != info["outputs_sha256"]:
        raise RecordError(f"the reference in '{folder}' was changed after it was recorded: run `edgekit reference`")
    noise = {name: max(found.values()) for name, found in info["noise"].items()}
    return Reference(batches, noise, info, artifact.digest_file(folder / INFO))


def describe(folder: Path) -> dict[str, Any]:
    """What reference.json says.

    Raises:
        RecordError: If it is missing or damaged.
    """
    path = folder / INFO
    try:
        info: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        raise RecordError(f"no reference in '{folder}': make it with `edgekit reference`") from None
    except (OSError, ValueError) as error:
        raise RecordError(f"'{path}' is damaged ({error}): run `edgekit reference` again") from error
    return info


def _named(batches: Mapping[str, Mapping[str, Array]]) -> dict[str, Array]:
    """Arrays by `<batch>/<tensor>`; contiguous, since safetensors writes the memory of others as it lies."""
    return {
        f"{batch}/{name}": np.ascontiguousarray(array)
        for batch, arrays in batches.items()
        for name, array in arrays.items()
    }


def _filled(spec: ModelSpec, name: str, share: float) -> Array:
    declared = next(i for i in spec.inputs if i.name == name)
    return np.full(spec.shape(name), declared.low + share * (declared.high - declared.low), dtype=declared.dtype)


def of(batch: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays of one batch by their own names, out of a file's."""
    prefix = f"{batch}/"
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
