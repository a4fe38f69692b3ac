"""The picker of buckets: the same choices, padding and cuts as in TypeScript and Kotlin, by the golden vectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.errors import ArtifactError
from edgekit.model.spec import Array
from edgekit_targets.onnx.buckets import INDEX, Buckets, choose_bucket, read_index

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "buckets.json").read_text())


def array(flat: dict[str, Any]) -> Array:
    return np.asarray(flat["values"], np.float32).reshape(flat["shape"])


def test_it_agrees_with_the_golden_vectors() -> None:
    index = Buckets.model_validate(GOLDEN["index"])
    files = {tuple(bucket.sizes.values()): bucket for bucket in index.buckets}
    sizes = [bucket.sizes for bucket in index.buckets]
    for case in GOLDEN["chosen"]:
        assert files[tuple(choose_bucket(sizes, case["sizes"]).values())].file == case["file"], case
    for case in GOLDEN["fitted"]:
        bucket = files[tuple(choose_bucket(sizes, case["sizes"]).values())]
        assert bucket.file == case["file"]
        for name, wanted in (("images", case["padded"]), ("query", case["query"])):
            np.testing.assert_array_equal(index.pad_to(name, array(case[name]), bucket), array(wanted))
        for name, answer in case["answers"].items():
            assert index.cut(name, array(answer), bucket, case["sizes"]).ravel().tolist() == case["cut"][name]


def test_an_index_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    wrong = {"weights": "../weights.bin", "buckets": [], "rule": "stretch", "schema_version": 2}
    for change in ({key: value} for key, value in wrong.items()):
        (tmp_path / INDEX).write_text(json.dumps({**GOLDEN["index"], **change}))
        with pytest.raises(ArtifactError, match="is not an index of buckets"):
            read_index(tmp_path)
