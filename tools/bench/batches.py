"""What the other images of a batch do to an image's scores in dynamic INT8, whose layers share a range in a batch.

    python -m tools.bench.batches build/arr-coc-tiny

Each evaluation image is asked alone, and with seven others, ten times with other ones; its error is the largest
difference of a score from the recorded reference.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import edgekit
from edgekit.model.spec import Array
from edgekit.reference.batches import EVALUATION
from edgekit.reference.store import read_reference

TARGET, BATCH, TIMES = "onnx-int8-dynamic", 8, 10


def main() -> None:
    """Ask, compare, print."""
    root = Path(sys.argv[1])
    asked = next(batch for batch in read_reference(root / "reference").batches if batch.name == EVALUATION)
    count = len(asked.names) // BATCH * BATCH
    right = asked.outputs["relevance"][:count]
    with edgekit.load(root / TARGET) as loaded:

        def error(places: Array) -> Array:
            found = loaded.run({name: array[places] for name, array in asked.inputs.items()})["relevance"]
            return np.asarray(np.abs(found - right[places]).max(axis=1))

        alone = np.concatenate([error(np.asarray([place])) for place in range(count)])
        together = np.stack([_scattered(order, error) for order in _orders(count)])
    print(f"{count} images\tmedian error\tlargest")
    print(f"alone\t{np.median(alone):.3f}\t{alone.max():.3f}")
    print(f"in batches of {BATCH}\t{np.median(together):.3f}\t{together.max():.3f}")


def _orders(count: int) -> Iterator[Array]:
    draw = np.random.Generator(np.random.PCG64(8))
    for _ in range(TIMES):
        yield draw.permutation(count)


def _scattered(order: Array, error: Callable[[Array], Array]) -> Array:
    found = np.empty(len(order), np.float32)
    for places in order.reshape(-1, BATCH):
        found[places] = error(places)
    return found


if __name__ == "__main__":
    main()
