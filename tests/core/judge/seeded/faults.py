"""Faults that the judge must find: seeded into an exported graph."""

from __future__ import annotations

import numpy as np

from tests.core.judge.seeded.changes import (
    BFLOAT16,
    FEATURES,
    FLOAT16,
    PRE,
    B,
    backwards,
    borders_of_zeros,
    columns,
    first_row,
    flipped,
    operator,
    replaced,
    rounded,
    shaken,
    squeezed,
    tanh_gelu,
    times,
    weight,
)
from tests.core.judge.seeded.graph import Change

FAULTS: dict[str, Change] = {
    "mean for maximum": operator("balancing/ReduceMax", "ReduceMean"),
    "weight perturbed by 1 %": weight(f"{B}.mlp.0/MatMul", shaken(0.01)),
    "weight of the tokens perturbed by 1 %": weight("realizing.value/MatMul", shaken(0.01)),
    "largest weight lost an exponent bit": weight("texture.patch/Conv", flipped(28, -1)),
    "a column's sign flipped": weight(f"{B}.mlp.0/MatMul", columns(5, 6, -1)),
    "weight rounded to 8 bits": weight(f"{B}.attention.qkv/MatMul", rounded(8)),
    "bias dropped": weight(PRE, np.zeros_like),
    "position rolled": weight("texture/Resize", lambda w: np.roll(w, 1, axis=3)),
    "epsilon of the features 0.1": operator(FEATURES, epsilon=0.1),
    "tanh form for gelu": tanh_gelu,
    "query's scale off by 5 %": weight("query_content/Div", lambda w: w * 1.05),
    "borders of zeros": borders_of_zeros,
    "scores rounded to fp16": squeezed("relevance", FLOAT16),
    "features rounded to bfloat16": lambda g: squeezed(g.out(FEATURES), BFLOAT16)(g),
    "another mean of the input": weight("texture/Sub", lambda w: w * 0.97),  # 0.485 for 0.5
    "input up to 256 / 255": times("images", 256 / 255),
}
GROSS: dict[str, Change] = {  # too large for any precision
    "exponent bit flipped": weight(f"{B}.mlp.2/MatMul", flipped(30, 100_000)),  # smaller ones are 0
    "block skipped": replaced(f"{B}/Add_2", lambda g: g.out("texture.blocks.1/Add_2")),
    "channels reversed": backwards("images"),
    "query ignored": times("queries", 0),
    "the smallest chosen": operator("attending/TopK", largest=0),
}
SHAPE_FAULTS: dict[str, Change] = {  # right at batch 1 and 224 x 224
    "batch frozen": lambda g: g.wrap(g.out(FEATURES), lambda x: g.add("Reshape", x, np.array([1, -1, 192]))),
    "first query for all": lambda g: g.wrap("queries", lambda x: first_row(g, x)),
    "position frozen": replaced("texture/Resize", lambda g: g.node("texture/Resize").input[0]),
}
