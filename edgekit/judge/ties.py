"""Ties at K: of patches with equal scores a ranking may take any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from edgekit.model.spec import Array, Output


def ties_undone(
    outputs: Sequence[Output],
    reference: Mapping[str, Array],
    candidate: Mapping[str, Array],
    resolutions: Mapping[str, float],
) -> dict[str, Array]:
    """Rankings in which the reference's patches have back the places that others took by a tie.

    Which of two patches is chosen whose scores are equal, within the resolution, says nothing of the artifact: the
    reference's own noise can swap them.

    Args:
        outputs: Of the model.
        reference: Its answers by name, [n, ...].
        candidate: The artifact's.
        resolutions: The largest difference that is none, in score units, by ranking.
    """
    undone: dict[str, Array] = {}
    for output in (o for o in outputs if o.role == "ranking" and o.of in reference):
        scores, ranking = reference[output.of], np.array(candidate[output.name])
        for image, right in enumerate(reference[output.name]):
            displaced, instead = np.setdiff1d(right, ranking[image]), np.setdiff1d(ranking[image], right)
            lost, taken = (rows[np.argsort(-scores[image][rows])] for rows in (displaced, instead))
            for patch, other in zip(lost, taken, strict=True):
                if scores[image][patch] - scores[image][other] <= resolutions[output.name]:
                    ranking[image][ranking[image] == other] = patch
        undone[output.name] = ranking
    return undone
