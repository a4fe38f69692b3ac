"""What a choice among quantized graphs is made on beside real inputs: what the gate asks, of calibration samples."""

from __future__ import annotations

import numpy as np

from edgekit.model.spec import ModelSpec
from edgekit.quantization.calibration import Samples
from edgekit.reference.batches import stress_batch
from edgekit.reference.variations import CONDITIONED, changed_rows, photograph_rows


def extremes(spec: ModelSpec, samples: Samples) -> Samples:
    """Random and extreme inputs, and a few real ones changed (dark, bright, grey, flat ...)."""
    odd = stress_batch(spec)
    first = samples.part(0, CONDITIONED)
    own = dict(zip(first.names, first.batches(1), strict=True))
    changed = changed_rows(spec, own, photograph_rows(spec, list(own.values())))
    rows = [odd.inputs, *changed.values()]
    return Samples({i.name: np.concatenate([row[i.name] for row in rows]) for i in spec.inputs}, (*odd.names, *changed))
