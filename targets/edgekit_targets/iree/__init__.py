"""Machine code that IREE compiles."""

from __future__ import annotations

from edgekit.doors import PlaceRuntime

PLACE = PlaceRuntime(
    summary="IREE on the CPU, for the processor that the code is for",
    library="iree",
    opener="edgekit_targets.iree.session:IreeSession",
    extra="iree",
    opens=(".vmfb",),
    carried=("edgekit_targets.iree.session",),
)
