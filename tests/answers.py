"""Answers of a made-up model with ARR-COC's outputs, from scores alone."""

from __future__ import annotations

import numpy as np

from edgekit.model.spec import Array, Output

OUTPUTS = (
    Output("relevance", role="scores"),
    Output("budgets", role="counts", of="relevance", dtype="int64", low=64, high=400),
    Output("indices", role="ranking", of="relevance", dtype="int64"),
    Output("tokens", role="features", of="indices"),
    Output("logits"),
)


def budgets(scores: Array) -> Array:
    """Counts that follow from scores."""
    return np.floor(64 + 336 * np.clip(scores.astype(np.float64), 0, 1) + 0.5).astype(np.int64)


def answer(scores: Array, chosen: int, width: int, seed: int = 0) -> dict[str, Array]:
    """What a model with these scores gives: [n, patches]; the features of a patch depend on the patch only."""
    drawn = np.random.default_rng(seed).standard_normal((*scores.shape, width)).astype(np.float32)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :chosen]
    tokens = np.take_along_axis(drawn, order[:, :, None], axis=1)
    counts = budgets(scores)
    return {"relevance": scores, "budgets": counts, "indices": order, "tokens": tokens, "logits": drawn[:, 0]}
