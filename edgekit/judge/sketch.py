"""Sketches of rows that are too large to keep: a norm and seeded projections of each row stand for its values.

A row x of D values becomes its root mean square |x| / sqrt(D) and P projections s x / sqrt(D), s being P seeded rows of
D signs. All are linear or nearly so in size: the projections of two rows differ by the projections of their difference,
in the units of the values.

Detection bound: let two rows differ by d, of root mean square e = |d| / sqrt(D). For any d a projection differs by at
least t e with a probability of at least (1 - t^2)^2 / 3 (Paley and Zygmund; E (s d)^4 <= 3 |d|^4). With P = 16 and
t = 0.3 all of them miss with a probability of at most 0.724^16 = 0.006 for one row of one image, and of about 1e-10
(0.236^16) where d has many entries, so that s d is nearly normal. A limit L on a sketch finds an error of e >= L / 0.3:
a single wrong value among D must be sqrt(D) times larger than where all values are kept.

Beside them some places of every row are kept as they are, with all their channels: what a role is for (the largest
class of a pixel, the overlap of a box, which confidences are over the middle) cannot be told from projections. A fault
in a share p of the places is in none of n of them with a probability of (1 - p)^n: of 1 % with 256 places in 8 % of the
rows.
"""

from __future__ import annotations

import numpy as np

from edgekit.judge.deviation import arranged
from edgekit.model.spec import Array, Output

PROJECTIONS = 16
"""P above: 17 numbers stand for a row, whatever its length."""
SUFFIX = ".sketch"
"""Of an array's name: it holds sketches of the rows of the output of that name."""


PLACES = ".places"
"""Of an array's name: it holds some places of the rows of the output of that name."""
PLACED = {"boxes", "logits", "probabilities", "mask", "image"}
"""Roles whose places each mean something."""
LEAST_PLACES, PLACE_BYTES = 256, 64 << 10
"""Places that are kept of each row at least, and bytes that these may take if they are more."""


def placed(output: Output, rows: Array) -> Array:
    """Seeded places of an output's rows [n, ...], the same ones of every row: [n, places, channels]."""
    values = arranged(output, rows)
    count, channels = values.shape[1:]
    some = max(LEAST_PLACES, PLACE_BYTES // (4 * channels))
    places = np.random.Generator(np.random.PCG64(count)).permutation(count)[:some]
    return values[:, np.sort(places)].astype(rows.dtype)


def sketch(rows: Array) -> Array:
    """Sketches of rows along the last axis: [..., D] of any dtype to float32 [..., 1 + PROJECTIONS].

    NaN and Inf stay what they are: a row that has one has a norm that is not finite.
    """
    values = rows.astype(np.float64)
    length = values.shape[-1]
    signs = 2.0 * np.random.Generator(np.random.PCG64(length)).integers(0, 2, (length, PROJECTIONS)) - 1.0
    with np.errstate(invalid="ignore", over="ignore"):
        norms = np.sqrt((values * values).mean(-1, keepdims=True))
        return np.concatenate([norms, values @ (signs / np.sqrt(length))], axis=-1).astype(np.float32)
