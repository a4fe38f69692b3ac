"""StableHLO, which JAX and other front ends of XLA run on CPUs, GPUs and TPUs."""

from __future__ import annotations

from edgekit.doors import PlaceRuntime

PLACE = PlaceRuntime(
    summary="JAX on this host's GPU or TPU, else on its CPU; no TPU has run yet",
    library="jax",
    opener="edgekit_targets.stablehlo.session:JaxSession",
    extra="xla",
    opens=(".jax",),
    carried=("edgekit_targets.stablehlo.session",),
)
