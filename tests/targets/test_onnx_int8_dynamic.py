from __future__ import annotations

import math
import re
from pathlib import Path

import onnx
import pytest

from edgekit.model.sources import resolve_model
from edgekit.onnxgraph import weight_only
from edgekit.pipeline import run
from edgekit.pipeline.outcome import Build
from edgekit.testing import SMALL, QuietListener, TargetContract

NAME = "onnx-int8-dynamic"
FLOAT = onnx.TensorProto.FLOAT


class TestOnnxInt8Dynamic(TargetContract):
    name = NAME

    @pytest.fixture(scope="class")
    @classmethod
    def outcome(cls, builds: Path) -> Build:
        return cls._export(builds)

    def test_every_weight_of_size_is_stored_in_int8(self, builds: Path) -> None:
        initializers = onnx.load(builds / "small" / NAME / "model.onnx").graph.initializer
        floats = [i.name for i in initializers if i.data_type == FLOAT and math.prod(i.dims) >= weight_only.LEAST]
        assert not floats

    def test_int8_that_is_slower_and_no_other_has_a_warning(self, outcome: Build) -> None:
        """A model of 5,000 weights may take longer to round its activations than it saves, by the host and its load."""
        found = outcome[NAME]
        warning = re.compile(r"cpu: Warning: 0\.\d\dx the speed of onnx$")
        assert found.slower == any(warning.match(text) for text in found.sentences), found.sentences

    def test_what_processors_without_vnni_answer_is_told(self, outcome: Build) -> None:
        made = outcome[NAME].manifest
        assert made is not None
        assert any(note.startswith("on x86 without VNNI the noise is ") for note in made.notes)


def test_a_group_that_is_not_there_is_named(build: Path) -> None:
    options = {NAME: {"float": "nowhere"}}
    failed = run.export(resolve_model(SMALL), (NAME,), build, options, QuietListener())[NAME]
    assert failed.status == "failed"
    assert "no group 'nowhere' to leave in float: possible are" in failed.sentences[0]
