"""The judge on a really exported graph: every seeded fault must be rejected, no clean variant may be."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import quantize_dynamic

from edgekit.artifact.fact import Code
from edgekit.judge.limits import FP16, FP32, INT8
from edgekit.runtime.eager import EagerRuntime
from edgekit_arrcoc.presets import arr_coc_tiny
from tests.core.judge.seeded.bench import IMAGES, SHAPES, Bench, compared, export, judged, run, size
from tests.core.judge.seeded.changes import K, ranks
from tests.core.judge.seeded.faults import FAULTS, GROSS, SHAPE_FAULTS
from tests.core.judge.seeded.graph import Change, Graph
from tests.core.judge.seeded.variants import CLEAN, CLEAN_FP16, SESSIONS, ties


@pytest.fixture(scope="module")
def bench() -> Bench:
    spec = arr_coc_tiny()
    assert spec.evaluation is not None
    evaluation = spec.evaluation()
    asked = {"evaluation": {name: array[:IMAGES] for name, array in evaluation.inputs.items()}}
    flat = {i.name: np.full(spec.shape(i.name), 0.5, np.float32) for i in spec.inputs}
    asked["stress"] = {name: np.concatenate([array, flat[name]]) for name, array in spec.random(0).items()}
    asked |= {f"shape {i}": spec.random(i, sizes) for i, sizes in enumerate(SHAPES)}
    exported = export(spec)
    single = EagerRuntime(spec)
    answers = {name: run(single.run, inputs, size(name)) for name, inputs in asked.items()}
    wide = EagerRuntime(replace(spec, module=copy.deepcopy(spec.module)), double=True)
    exact = {name: run(wide.run, inputs, size(name)) for name, inputs in asked.items()}
    a, b = answers["evaluation"], exact["evaluation"]
    noise = {name: float(np.abs(a[name] - b[name]).max()) for name in ("relevance", "tokens")}
    return Bench(spec, exported, evaluation, asked, answers, exact, noise)


def graph(bench: Bench, *changes: Change) -> bytes:
    made = Graph(bench.exported)
    for change in changes:
        change(made)
    return made.finish()


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_rejected(bench: Bench, fault: str) -> None:
    verdict = judged(bench, compared(bench, graph(bench, FAULTS[fault])))
    assert verdict.status == "rejected"
    assert "evaluation" in {reason.batch for reason in verdict.reasons}


@pytest.mark.parametrize("fault", GROSS)
def test_every_gross_fault_is_rejected_at_every_precision(bench: Bench, fault: str) -> None:
    found = compared(bench, graph(bench, GROSS[fault]))
    for tolerance in (FP32, FP16, INT8):
        assert judged(bench, found, tolerance).status == "rejected", tolerance.name


@pytest.mark.parametrize("fault", SHAPE_FAULTS)
def test_a_fault_of_other_shapes_is_rejected_and_proves_none_of_them(bench: Bench, fault: str) -> None:
    verdict = judged(bench, compared(bench, graph(bench, SHAPE_FAULTS[fault])))
    assert verdict.status == "rejected"
    assert all(reason.batch.startswith("batch") for reason in verdict.reasons)
    assert len(verdict.proof) < len(SHAPES)


@pytest.mark.parametrize("variant", CLEAN)
def test_no_clean_graph_is_rejected(bench: Bench, variant: str) -> None:
    verdict = judged(bench, compared(bench, graph(bench, CLEAN[variant])))
    assert verdict.status == "verified", verdict.reasons
    assert verdict.proof == SHAPES


@pytest.mark.parametrize("way", SESSIONS)
def test_no_way_of_running_it_is_rejected(bench: Bench, way: str) -> None:
    verdict = judged(bench, compared(bench, bench.exported.SerializeToString(), **SESSIONS[way]))
    assert verdict.status == "verified", verdict.reasons


@pytest.mark.parametrize("variant", CLEAN_FP16)
def test_no_clean_fp16_graph_is_rejected_within_its_limits(bench: Bench, variant: str) -> None:
    verdict = judged(bench, compared(bench, graph(bench, CLEAN_FP16[variant])), FP16)
    assert verdict.status == "verified", verdict.reasons


def test_a_tie_at_the_boundary_is_forgiven_with_a_note_and_a_swap_is_not(bench: Bench) -> None:
    tied = judged(bench, compared(bench, graph(bench, ties)))
    assert tied.status == "verified"
    assert Code.TIES_AT_K in {note.code for note in tied.notes}
    assert any(str(note).startswith("the top K of 'indices' differ only in places") for note in tied.notes)
    swapped = judged(bench, compared(bench, graph(bench, ranks([*K[:-1], 36]))))
    assert "swap gap of 'indices'" in str(swapped.reasons[0])


def test_a_double_reference_rejects_nothing(bench: Bench) -> None:
    double = replace(bench, answers=bench.exact)
    verdict = judged(double, compared(double, bench.exported.SerializeToString()))
    assert verdict.status == "verified", verdict.reasons


def test_a_sound_int8_graph_is_not_rejected_within_its_limits(bench: Bench, tmp_path: Path) -> None:
    onnx.save(Graph(bench.exported).model, tmp_path / "fp32.onnx")
    quantize_dynamic(tmp_path / "fp32.onnx", tmp_path / "int8.onnx", op_types_to_quantize=["MatMul"], per_channel=True)
    verdict = judged(bench, compared(bench, (tmp_path / "int8.onnx").read_bytes()), INT8)
    assert verdict.status == "verified", verdict.reasons
