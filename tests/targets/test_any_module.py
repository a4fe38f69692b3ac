"""A recurrent state in and out, and answers in a dataclass, in the formats that carry them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from edgekit import registry
from edgekit.model.adapter import named_outputs, to_tensors
from edgekit.model.sources import resolve_model
from tests.targets import phone_models

SLOW = pytest.mark.skipif(not os.environ.get("EDGEKIT_SLOW"), reason="takes ten seconds: set EDGEKIT_SLOW=1")


@pytest.mark.nightly
@pytest.mark.parametrize("factory", ["recurrent", pytest.param("record", marks=SLOW)])
def test_states_and_named_answers_are_carried(factory: str, tmp_path: Path) -> None:
    spec = resolve_model(f"tests.modules:{factory}")
    for name in ("torchscript", "executorch"):
        target = registry.find(name)
        if missing := registry.missing(target):
            pytest.skip(f"needs {missing[0].module}: {missing[0].install}")
        runtime = phone_models.opened(target, phone_models.made(target, name, spec, tmp_path))
        for batch in (1, 2, 3):
            inputs = spec.random(batch, {"batch": batch})
            with torch.no_grad():
                right = named_outputs(spec, spec.module(*to_tensors(spec, inputs)))
            found = runtime.run(inputs)
            assert found.keys() == right.keys()
            for output, array in right.items():
                np.testing.assert_allclose(found[output], array, atol=1e-5, err_msg=f"{output} of {name}")
        runtime.close()
