"""What every artifact of LiteRT is held to beside the contract: a wrong weight, and files that were damaged."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import edgekit
from edgekit import registry
from edgekit.errors import NotVerifiedHere
from edgekit.storage import environment
from edgekit.testing import TargetContract, small_model
from edgekit_targets.litert.browser import modules
from edgekit_targets.litert.runtime import JS
from tests.chromium import no_chromium
from tests.targets import tampering


def cut(file: Path) -> None:
    """All but the first 200 bytes are lost: a header that points behind the end of the file."""
    file.write_bytes(file.read_bytes()[:200])


def torn(file: Path) -> None:
    """The tables that say where everything is are overwritten."""
    whole = file.read_bytes()
    file.write_bytes(whole[:8] + bytes(byte ^ 0x5A for byte in whole[8:400]) + whole[400:])


def text(file: Path) -> None:
    """Another file."""
    file.write_bytes(b"no model at all")


ON_A_PHONE = """
import sys
import numpy
from ai_edge_litert.compiled_model import CompiledModel
model, given, answered = sys.argv[1:]
compiled = CompiledModel.from_file(model)
((key, names),) = compiled.get_signature_list().items()
inputs = {name: compiled.create_input_buffer_by_name(key, name) for name in names["inputs"]}
outputs = {name: compiled.create_output_buffer_by_name(key, name) for name in names["outputs"]}
for number in range(2):
    for name, buffer in inputs.items():
        buffer.write(numpy.load(given)[f"{name} {number}"])
    compiled.run_by_name(key, inputs, outputs)
found = {}
for name, one in compiled.get_output_tensor_details(key).items():
    read = outputs[name].read(int(numpy.prod(one["shape"])), numpy.dtype(one["dtype"]))
    found[name] = numpy.asarray(read).reshape(one["shape"])
numpy.savez(answered, **found)
"""
"""What mobile/android's LiteRtRunner does, in Python: buffers by name, made once and used twice."""


def has_litert_js() -> bool:
    """Whether the place `litert-js` is one of this host's."""
    try:
        modules()
    except NotVerifiedHere:
        return False
    return not no_chromium()


class LitertContract(TargetContract):
    """The suite of a target whose artifact is model.tflite."""

    statuses = {} if has_litert_js() else {JS: "not verified here"}

    @pytest.fixture(scope="class")
    @classmethod
    def builds(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        if missing := registry.missing(registry.find(cls.name)):
            pytest.skip(f"needs {missing[0].module}: {missing[0].install}")
        if not os.environ.get("EDGEKIT_SLOW"):
            pytest.skip("takes a minute: set EDGEKIT_SLOW=1")
        folder = tmp_path_factory.mktemp(cls.name)
        cls._export(folder)
        return folder

    def test_one_changed_weight_is_rejected(self, builds: Path, tmp_path: Path) -> None:
        def change(folder: Path) -> None:
            tampering.one_weight(folder / "model.tflite", name="patches.bias")  # others are folded into layers

        row = tampering.judged(builds / "small", self.name, change, tmp_path / "small")
        assert row.status == "rejected"
        assert row.sentences[0].startswith("litert-cpu: found@8 drop is")
        assert has_litert_js() == any(sentence.startswith("litert-js: found@8 drop is") for sentence in row.sentences)

    @pytest.mark.parametrize("damage", [cut, torn, text])
    def test_a_damaged_file_is_a_sentence(self, damage: Callable[[Path], None], builds: Path, tmp_path: Path) -> None:
        row = tampering.judged(
            builds / "small", self.name, lambda folder: damage(folder / "model.tflite"), tmp_path / "small"
        )
        assert row.status == "rejected"
        assert "LiteRT" in row.sentences[0]
        assert has_litert_js() == any("LiteRT.js refuses 'model.tflite': " in sentence for sentence in row.sentences)

    def test_the_interface_of_phones_gives_the_same_answers(self, builds: Path, tmp_path: Path) -> None:
        """Apps use LiteRT's CompiledModel, where this process's runtime uses its interpreter."""
        given, answered = tmp_path / "given.npz", tmp_path / "answered.npz"
        asked = [small_model().random(number) for number in range(2)]
        with edgekit.load(builds / "small" / self.name) as loaded:
            right = loaded.run(asked[1])
        np.savez(given, **{f"{name} {n}": a for n, inputs in enumerate(asked) for name, a in inputs.items()})  # type: ignore[arg-type]  # numpy's own options could have these names
        python, model = environment.python(environment.LITERT), builds / "small" / self.name / "model.tflite"
        subprocess.run([python, "-I", "-c", ON_A_PHONE, model, given, answered], check=True, capture_output=True)
        with np.load(answered) as found:
            assert {name: str(found[name].dtype) for name in found} == {
                "relevance": "float32",
                "budgets": "int32",
                "indices": "int32",
                "tokens": "float32",
            }
            for name, answer in right.items():
                np.testing.assert_allclose(found[name], answer, atol=1e-6)
