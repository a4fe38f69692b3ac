"""Rounding of weights that looks at what they are multiplied with (GPTQ; Frantar et al., 2023, algorithm 1).

    x [..., K] -> MatMul or Gemm, weight fp32 [K, N]
    x [..., K] -> MatMul or Gemm, weight fp32 [K, N] whose columns are whole multiples of max|column| / 127

Inputs of a layer are correlated, so that the error of one rounded weight can be undone by the weights that follow: of
the sum of squares of `x (W - W')` 5 to 20 dB less remain in arr-coc-tiny's layers than with rounding to the nearest.
The largest weight of each output keeps its value, and so every quantizer with one symmetric scale an output finds the
same grid again and adds nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from edgekit.model.spec import Array
from edgekit_targets.onnx.passes import weight_only
from edgekit_targets.onnx.passes.graph import copied, graph_pass
from edgekit_targets.onnx.passes.groups import linear_groups, nodes_of

if TYPE_CHECKING:
    import onnx

LEVELS = 127
"""Steps on either side of zero: 8 bits without the lowest value."""
DAMPING = 0.01
"""Share of the mean of the moments' diagonal that is added to it, as in GPTQ's own code: directions that the samples
hardly have must not be filled with error."""
BLOCK = 64
"""Inputs whose errors are passed on together; of no effect on the result but for the order of sums."""
OFF = 1e-3
"""Steps by which a weight in fp32 may miss its grid: 127 steps are kept to 1e-5 of one."""
SMALLEST = float(np.finfo(np.float32).tiny)
"""Of a scale."""


@graph_pass
def round_weights(
    graph: onnx.ModelProto, moments: Mapping[str, Array], levels: int = LEVELS, floats: tuple[str, ...] = ()
) -> onnx.ModelProto:
    """Round the weights of the linear layers; one that anything else reads too stays as it is.

    So do those of groups that stay in float arithmetic, which are only stored in INT8, and rounded to the nearest then:
    such a layer often reads something with few values (a query out of a vocabulary), and what samples do not have in
    them would be filled with error.

    Args:
        graph: In fp32.
        moments: Mean of `x x^T` over samples and rows, [K, K], by the name of the tensor that a layer reads.
        levels: Steps on either side of zero.
        floats: Groups that stay in float arithmetic.
    """
    from onnx import numpy_helper

    graph = copied(graph)
    weights = {i.name: i for i in graph.graph.initializer}
    chosen = set(nodes_of(linear_groups(graph), floats))
    others = {name for node in graph.graph.node if node.name not in chosen for name in node.input}
    done: set[str] = set()
    for node in graph.graph.node:
        if node.name not in chosen or node.input[0] not in moments or node.input[1] in done | others:
            continue
        done.add(node.input[1])
        values, turned = numpy_helper.to_array(weights[node.input[1]]), weight_only.transposed(node)
        rounded = rounded_rows(values if turned else values.T, moments[node.input[0]], levels)
        fitting = np.ascontiguousarray(rounded if turned else rounded.T).astype(np.float32)
        weights[node.input[1]].CopyFrom(numpy_helper.from_array(fitting, node.input[1]))
    return graph


def gridded_inputs(graph: onnx.ModelProto, levels: int = LEVELS) -> frozenset[str]:
    """The tensors that only linear layers read whose weights are on their grid already, as a training may leave them.

    Rounding such weights changes nothing; to scale their inputs would move them off the grid.
    """
    from onnx import numpy_helper

    weights = {i.name: i for i in graph.graph.initializer}
    linear = set(nodes_of(linear_groups(graph), ()))
    found: dict[str, bool] = {}
    for node in graph.graph.node:
        if node.name in linear:
            values = numpy_helper.to_array(weights[node.input[1]])
            fits = on_grid(values if weight_only.transposed(node) else values.T, levels)
            found[node.input[0]] = found.get(node.input[0], True) and fits
    return frozenset(name for name, fits in found.items() if fits)


def on_grid(weight: Array, levels: int = LEVELS) -> bool:
    """Whether each row of a weight [N, K] is made of whole multiples of its largest magnitude over the levels."""
    values = weight.astype(np.float64)
    steps = values / np.maximum(np.abs(values).max(1, keepdims=True) / levels, SMALLEST)
    return bool(np.abs(steps - np.round(steps)).max(initial=0.0) < OFF)


def rounded_rows(weight: Array, moment: Array, levels: int = LEVELS) -> Array:
    """Weight [N, K], a row an output, on its grid of so many steps on either side of zero; moment [K, K]."""
    values = weight.astype(np.float64)
    scale = np.maximum(np.abs(values).max(1) / levels, SMALLEST)
    largest = np.abs(values).argmax(1)
    damped = moment + np.eye(len(moment)) * max(DAMPING * float(np.diag(moment).mean()), SMALLEST)
    order = np.argsort(-np.diag(damped), kind="stable")  # what is large is rounded first, while most can still make up
    factor = np.linalg.cholesky(np.linalg.inv(damped[np.ix_(order, order)])).T
    values, steps = values[:, order], np.zeros_like(values)
    kept = np.sign(weight[np.arange(len(weight)), largest]) * levels
    for start in range(0, len(order), BLOCK):
        stop = min(start + BLOCK, len(order))
        errors = np.zeros((len(values), stop - start))
        for column in range(start, stop):
            rounded = np.clip(np.round(values[:, column] / scale), -levels, levels)
            rounded = np.where(largest == order[column], kept, rounded)
            errors[:, column - start] = (values[:, column] - rounded * scale) / factor[column, column]
            values[:, column:stop] -= np.outer(errors[:, column - start], factor[column, column:stop])
            steps[:, column] = rounded
        values[:, stop:] -= errors @ factor[start:stop, stop:]
    result = np.empty_like(steps)
    result[:, order] = steps
    return np.asarray(result * scale[:, None])
