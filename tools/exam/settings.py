"""Other attributes for nodes, and operators that take the same inputs as another one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

EXCHANGED: dict[str, tuple[str, ...]] = {
    "Gelu": ("Relu", "HardSwish", "Identity"),
    "Relu": ("Abs", "LeakyRelu", "Identity", "Softplus"),
    "MaxPool": ("AveragePool",),
    "Add": ("Sub", "Mul", "Max"),
    "Sub": ("Add", "Div"),
    "Mul": ("Div", "Add", "Min"),
    "Div": ("Mul", "Sub"),
    "Softmax": ("Sigmoid", "LogSoftmax", "Hardmax"),
    "Sigmoid": ("HardSigmoid", "Tanh", "Relu"),
    "Tanh": ("Softsign", "Sigmoid", "Identity"),
    "ReduceMean": ("ReduceMax", "ReduceL2", "ReduceSum"),
    "ReduceMax": ("ReduceMean", "ReduceMin"),
    "ReduceL2": ("ReduceL1", "ReduceMax"),
    "GlobalAveragePool": ("GlobalMaxPool",),
    "Floor": ("Ceil", "Round"),
    "ArgMax": ("ArgMin",),
    "Max": ("Min",),
    "Sqrt": ("Identity", "Abs"),
    "Abs": ("Relu", "Identity"),
    "Clip": ("Identity",),
}
_Settings = Iterator[tuple[str, dict[str, object]]]


def no_settings(given: Mapping[str, object]) -> _Settings:
    """Of an operator whose attributes are left alone."""
    yield from ()


def _gemm(given: Mapping[str, object]) -> _Settings:
    for alpha in (0.5, 0.9, 1.1):
        yield f"alpha {alpha:g}", {"alpha": alpha}
    for beta in (0.0, 2.0):
        yield f"beta {beta:g}", {"beta": beta}


def _conv(given: Mapping[str, object]) -> _Settings:
    pads = list(np.asarray(given.get("pads", (0, 0, 0, 0)), int))
    if len(pads) == 4 and any(pads):
        for word, shift in (("moved down", (1, 0, -1, 0)), ("moved right", (0, 1, 0, -1)), ("moved up", (-1, 0, 1, 0))):
            yield f"pads {word}", {"pads": [int(p + s) for p, s in zip(pads, shift, strict=True)]}
        yield "dilated", {"dilations": [2, 2], "pads": [int(p) + 1 for p in pads]}


SETTINGS: dict[str, Callable[[Mapping[str, object]], _Settings]] = {
    "Gemm": _gemm,
    "Conv": _conv,
    "ConvInteger": _conv,
    "LayerNormalization": lambda given: ((f"epsilon {e:g}", {"epsilon": e}) for e in (0.01, 0.1, 1.0)),
    "Softmax": lambda given: ((f"axis {a}", {"axis": a}) for a in (0, 1)),
    "Gelu": lambda given: iter([("tanh", {"approximate": "tanh"})]),
    "Transpose": lambda given: iter([("perm of its last two", {"perm": _last_two(given)})]),
    "TopK": lambda given: iter([("smallest", {"largest": 0}), ("unsorted", {"sorted": 0})]),
    "ArgMax": lambda given: iter([("last of ties", {"select_last_index": 1})]),
    "MaxPool": lambda given: iter([("of one pixel", {"kernel_shape": [1, 1]})]),
    "Concat": lambda given: iter([("axis 1", {"axis": 1}), ("axis 2", {"axis": 2})]),
}


def _last_two(given: Mapping[str, object]) -> list[int]:
    perm = [int(a) for a in np.asarray(given["perm"])]
    return [*perm[:-2], perm[-1], perm[-2]]
