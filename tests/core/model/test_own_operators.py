"""Operators that a model registers itself: replaced in every target, held against the module, or refused by name."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from edgekit import registry
from edgekit.errors import CaptureError, EdgekitError, ModelError
from edgekit.model.folder import save_model
from edgekit.model.graph import capture
from edgekit.model.own_operators import modules_of_operators, register
from edgekit.model.program import save_program
from edgekit.model.records import read_config
from edgekit.model.sources import resolve_model
from edgekit.pipeline import run
from edgekit.pipeline.outcome import TargetOutcome
from edgekit.testing import QuietListener
from tests import own_operators
from tests.targets import phone_models

SLOW = bool(os.environ.get("EDGEKIT_SLOW"))
EVERY = ("onnx", "onnx-int8-dynamic", "torchscript", "torch-mobile", "executorch", "coreml")


def exported(factory: str, targets: tuple[str, ...], folder: Path) -> dict[str, TargetOutcome]:
    spec = resolve_model(f"tests.own_operators:{factory}")
    return dict(run.export(spec, targets, folder / spec.name, {}, QuietListener()))


def status(row: TargetOutcome) -> str:
    """Of Core ML the interpreter's: Core ML itself is not here."""
    return next((str(place.status) for place in row.places if place.place == "interpreter"), row.status)


@pytest.mark.skipif(not SLOW, reason="takes a minute: set EDGEKIT_SLOW=1")
def test_a_replaced_operator_is_verified_in_every_target(tmp_path: Path) -> None:
    rows = exported("replaced_everywhere", EVERY, tmp_path)
    assert {name: row.sentences for name, row in rows.items() if status(row) != "verified"} == {}
    graph = onnx.load(rows["onnx"].path / "model.onnx")
    assert {node.domain for node in graph.graph.node} == {""}
    assert {node.op_type for node in graph.graph.node} >= {"Sigmoid", "ReduceL2"}


@pytest.mark.skipif(not SLOW, reason="takes half a minute: set EDGEKIT_SLOW=1")
def test_a_decomposition_serves_onnx_too(tmp_path: Path) -> None:
    rows = exported("decomposed", ("onnx", "executorch"), tmp_path)
    assert {name: row.sentences for name, row in rows.items() if row.status != "verified"} == {}


@pytest.mark.nightly
def test_a_translation_serves_onnx_alone_and_the_others_say_what_is_missing(tmp_path: Path) -> None:
    for package in ("executorch", "coremltools"):
        pytest.importorskip(package, reason="no executorch or coremltools: pip install -e '.[executorch,coreml]'")
    assert exported("translated", ("onnx",), tmp_path)["onnx"].status == "verified"
    spec = resolve_model("tests.own_operators:translated")
    for name in ("torchscript", "executorch", "coreml"):
        with pytest.raises(EdgekitError, match=r"edgekit_tests::fused_score.*decompositions"):
            phone_models.made(registry.find(name), name, spec, tmp_path / "others")


def test_an_operator_without_a_replacement_is_named_with_its_line(tmp_path: Path) -> None:
    row = exported("left_alone", ("onnx",), tmp_path)["onnx"]
    (sentence,) = row.sentences
    assert "it does not have the operator 'edgekit_tests.fused_score', used at" in sentence
    assert "`ModelSpec.translations`" in sentence


@pytest.mark.nightly
def test_a_wrong_translation_is_rejected(tmp_path: Path) -> None:
    row = exported("wrongly_translated", ("onnx",), tmp_path)["onnx"]
    assert row.status == "rejected"


def test_a_wrong_decomposition_is_no_program() -> None:
    with pytest.raises(CaptureError, match="differs from the module"):
        capture(own_operators.wrongly_decomposed())


def test_an_operator_that_is_not_registered_is_refused() -> None:
    with pytest.raises(ModelError, match="names the operator 'edgekit_tests::gone', which is not registered"):
        capture(own_operators.unregistered())


def test_a_model_in_memory_needs_a_decomposition(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="decomposition"):
        save_model(own_operators.translated(), tmp_path / "model")
    save_model(replace(own_operators.replaced_everywhere(), factory=""), tmp_path / "model")


def test_an_edited_replacement_is_another_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file counts as the module's do, wherever it lies."""
    (tmp_path / "stand_ins.py").write_text("def stand_in(patches, query, sharpness):\n    return patches\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    stand_ins = __import__("stand_ins")
    factory = f"{own_operators.__name__}:decomposed"  # what has one is not captured when it is saved
    spec = replace(own_operators.decomposed(), factory=factory, decompositions={own_operators.NAME: stand_ins.stand_in})
    save_model(spec, tmp_path / "model")
    before = read_config(tmp_path / "model")["code_sha256"]
    (tmp_path / "stand_ins.py").write_text("def stand_in(patches, query, sharpness):\n    return 2 * patches\n")
    save_model(spec, tmp_path / "model")
    assert read_config(tmp_path / "model")["code_sha256"] != before


@pytest.mark.nightly
def test_a_program_says_which_module_registers_its_operators(tmp_path: Path) -> None:
    """In a process that has imported nothing, as a worker for a model that was given in memory."""
    program = capture(replace(own_operators.left_alone(), factory=""))
    assert modules_of_operators(program.exported) == {own_operators.NAME: own_operators.__name__}
    save_program(program, tmp_path / "program", "")
    opened = "import sys, pathlib, edgekit.model.program as p; p.load_program(pathlib.Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-W", "ignore", "-c", opened, str(tmp_path / "program")], check=True)


def test_a_library_that_is_not_installed_is_named() -> None:
    with pytest.raises(CaptureError, match=r"the operator 'gone::op' of 'gone.ops'"):
        register({"gone::op": "gone.ops"})
