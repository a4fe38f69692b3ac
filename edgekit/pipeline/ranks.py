"""Recipes of a search by rank: the best that holds in all places that the user named."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from edgekit.hosts.catalogue import further_place
from edgekit.pipeline.outcome import Build
from edgekit.report.rows import trials_of


def first_that_holds(
    export: Callable[..., Build],
    target: str,
    options: Mapping[str, object],
    places: Sequence[str],
    fresh: bool,
) -> Build:
    """Export with rank 0, 1, ... until the artifact is not rejected in a place, or no recipe is left.

    Args:
        export: Makes a build with `options` by target and judges it in the places; `fresh` makes it anew.
        target: The quantizing target.
        options: Its options, without the rank.
        places: By name; with none, rank 0 is the answer.
        fresh: Of the first export.
    """
    names = {further_place(place).name for place in places}
    build, rank = export(options={target: options}, fresh=fresh), 0
    while names and any(p.place in names and p.status == "rejected" for p in build[target].places):
        rank += 1
        if rank >= sum("rank" in trial for trial in trials_of(build.path, target)):
            break
        build = export(options={target: {**options, "rank": rank}}, fresh=False)
    return build
