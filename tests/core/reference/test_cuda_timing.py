from __future__ import annotations

import pytest
import torch

from edgekit.reference import record
from edgekit.runtime.cuda_graph import capture_graph
from edgekit.testing import small_model

pytestmark = pytest.mark.gpu


def test_each_way_of_running_has_percentiles_in_order() -> None:
    spec = small_model()
    before = torch.are_deterministic_algorithms_enabled()
    try:
        found = record.timings(spec, spec.random(0))
        assert torch.are_deterministic_algorithms_enabled()  # recording goes on with them
    finally:
        torch.use_deterministic_algorithms(before)
    assert list(found) == ["eager", "compiled", "cuda graph"]
    for one in found.values():
        assert torch.cuda.get_device_name() in str(one["device"])
        assert one["runs"] == record.RUNS
        p50, p90, p95, p99 = (float(str(one[name])) for name in ("p50", "p90", "p95", "p99"))
        assert 0 < p50 <= p90 <= p95 <= p99


def test_a_graph_that_is_replayed_computes_what_the_module_does() -> None:
    module = torch.nn.Linear(8, 8, device="cuda")
    x = torch.ones(4, 8, device="cuda")
    kept: list[torch.Tensor] = []

    def once(given: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = module(given)
        kept.append(answer)
        return answer

    with torch.inference_mode():
        replay = capture_graph(once, (x,))[0]
        x.mul_(2)  # a graph reads its inputs where they lie
        replay()
        torch.cuda.synchronize()
        torch.testing.assert_close(kept[-1], module(x))
