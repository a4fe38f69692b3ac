"""Pooling: MIL's `pool` module, one to three spatial axes.

Definitions: https://apple.github.io/coremltools/source/coremltools.converters.mil.mil.ops.defs.html (iOS15). A window's
maximum or sum is taken one axis after the other.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from edgekit.model.spec import Array
from edgekit.runtime.coreml.operators.arguments import Operator, integers
from edgekit.runtime.coreml.operators.conv import out_sizes, padded, pads_of, steps_of
from edgekit.runtime.coreml.records import Value


def max_pool(
    x: Array,
    kernel_sizes: Value,
    pad_type: Value,
    strides: Value | None = None,
    pad: Value | None = None,
    ceil_mode: Array | bool = False,
) -> Array:
    """The largest value of each window; padding is never chosen."""
    return _pooled(np.maximum, x, kernel_sizes, pad_type, strides, pad, ceil_mode, -np.inf, -np.inf)


def avg_pool(
    x: Array,
    kernel_sizes: Value,
    pad_type: Value,
    strides: Value | None = None,
    pad: Value | None = None,
    ceil_mode: Array | bool = False,
    exclude_padding_from_average: Array | bool = False,
) -> Array:
    """The mean of each window; padding counts as zeros unless excluded (what `ceil_mode` adds never counts)."""
    total = _pooled(np.add, x.astype(np.float64), kernel_sizes, pad_type, strides, pad, ceil_mode)
    padding = 0.0 if exclude_padding_from_average else 1.0
    counted = _pooled(np.add, np.ones((1, 1, *x.shape[2:])), kernel_sizes, pad_type, strides, pad, ceil_mode, padding)
    return np.asarray(total / counted)


def l2_pool(
    x: Array,
    kernel_sizes: Value,
    pad_type: Value,
    strides: Value | None = None,
    pad: Value | None = None,
    ceil_mode: Array | bool = False,
) -> Array:
    """The square root of the sum of squares of each window."""
    squares = np.square(x, dtype=np.float64)
    return np.sqrt(_pooled(np.add, squares, kernel_sizes, pad_type, strides, pad, ceil_mode))


def _pooled(
    combine: np.ufunc,
    x: Array,
    kernel_sizes: Value,
    pad_type: Value,
    strides: Value | None,
    pad: Value | None,
    ceil_mode: Array | bool,
    padding: float = 0.0,
    beyond: float = 0.0,
) -> Array:
    """The windows' values combined; `padding` fills the padding, `beyond` what `ceil_mode` adds after it."""
    kernel = integers(kernel_sizes)
    steps = steps_of(strides, kernel)
    pads = pads_of(pad_type, pad, x.shape[2:], kernel, steps)
    whole = padded(x, pads, padding)
    if ceil_mode:
        out = tuple(
            # The last window must start inside, as in PyTorch; it may end outside.
            rounded_up - ((rounded_up - 1) * s >= size + before)
            for size, (before, _), n, k, s in zip(x.shape[2:], pads, whole.shape[2:], kernel, steps, strict=True)
            for rounded_up in [-(-(n - k) // s) + 1]
        )
        missing = tuple(
            (0, max(0, (o - 1) * s + k - n)) for o, s, k, n in zip(out, steps, kernel, whole.shape[2:], strict=True)
        )
        whole = padded(whole, missing, beyond)
    else:
        out = out_sizes(whole.shape[2:], kernel, steps)
    for axis, (k, s, n) in enumerate(zip(kernel, steps, out, strict=True), start=2):
        before = (slice(None),) * axis
        parts = [whole[(*before, slice(p, p + (n - 1) * s + 1, s))] for p in range(k)]
        whole = np.asarray(combine.reduce(parts))
    return whole


TABLE: Mapping[str, Operator] = {f.__name__: f for f in (max_pool, avg_pool, l2_pool)}
