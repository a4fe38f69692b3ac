"""Which recipe a search takes, on a model in which one layer is ruined by INT8 and another is not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import helper

from edgekit.errors import ExportError
from edgekit.judge.limits import TASK_DROP
from edgekit.model.spec import Axis, Input, ModelSpec, Output
from edgekit_targets.onnx.passes.groups import QuantConfig
from edgekit_targets.onnx.quantization import search
from edgekit_targets.onnx.quantization.calibration import Samples
from edgekit_targets.onnx.quantization.evaluator import Evaluator, Quality
from edgekit_targets.onnx.quantization.search import LOG, TABLE, SearchOptions, Trial, TrialLog, _pareto
from tests.targets.onnx.passes.graphs import model, rounded

WIDTH, PATCHES = 32, 48


def spec_of(*shape: int | str, **axes: Axis) -> ModelSpec:
    return ModelSpec(
        name="ranked",
        module=torch.nn.Identity(),
        inputs=(Input("x", shape, low=-1.0, high=1.0),),
        outputs=(Output("scores", role="scores"),),
        axes={"batch": Axis(1, 1, 8), **axes},
        factory="nobody:asks",
    )


@pytest.fixture(scope="module")
def graph() -> onnx.ModelProto:
    """scores = sigmoid(fragile(x) + robust(wide(tanh x))): the first of x is a thousand times the others."""
    draw = np.random.default_rng(0)
    fragile = np.full((WIDTH, 1), 0.3, np.float32)
    fragile[0] = 0.0
    nodes = [
        helper.make_node("MatMul", ["x", "fragile_w"], ["f"], name="fragile/MatMul"),
        helper.make_node("Tanh", ["x"], ["t"], name="wide/Tanh"),
        helper.make_node("MatMul", ["t", "wide_w"], ["h"], name="wide/MatMul"),
        helper.make_node("MatMul", ["h", "robust_w"], ["r"], name="robust/MatMul"),
        helper.make_node("Add", ["f", "r"], ["a"], name="sum/Add"),
        helper.make_node("Squeeze", ["a", "last"], ["b"], name="sum/Squeeze"),
        helper.make_node("Sigmoid", ["b"], ["scores"], name="sum/Sigmoid"),
    ]
    held = {"fragile_w": fragile, "wide_w": draw.normal(0, 0.2, (WIDTH, WIDTH)).astype(np.float32)}
    held |= {"robust_w": draw.normal(0, 0.02, (WIDTH, 1)).astype(np.float32), "last": np.array([-1])}
    return model(nodes, {"x": ["batch", PATCHES, WIDTH]}, {"scores": ["batch", PATCHES]}, held)


def test_what_int8_ruins_goes_back_to_float_and_nothing_else(graph: onnx.ModelProto, tmp_path: Path) -> None:
    spec = spec_of("batch", PATCHES, WIDTH)
    rows = np.random.default_rng(1).normal(0, 1, (96, PATCHES, WIDTH)).astype(np.float32)
    rows[..., 0] *= 1000.0
    samples = Samples({"x": rows}, tuple(map(str, range(96))))
    found = search.search(spec, graph, samples, tmp_path, lambda done, text: None)
    assert found.chosen.quality.passed, found.chosen.quality.reasons
    assert found.chosen.recipe.floats == ("fragile",)
    lines = (tmp_path / LOG).read_text()
    again = search.search(spec, graph, samples, tmp_path, lambda done, text: None)
    assert again.graph == found.graph
    assert (tmp_path / LOG).read_text() == lines
    assert not TrialLog(tmp_path, "of another context").rows
    table = json.loads((tmp_path / TABLE).read_text())
    ranks = {line["name"]: line["rank"] for line in table if "rank" in line}
    assert sorted(ranks.values()) == list(range(len(ranks)))
    assert all(line["passed"] for line in table if line["name"] in ranks)
    with pytest.raises(ExportError, match=r"rank 99 does not exist: \d+ recipes passed"):
        search.search(spec, graph, samples, tmp_path, lambda done, text: None, SearchOptions(rank=99))


def test_a_rank_passes_over_better_recipes(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"], name="first/MatMul"),
        helper.make_node("Relu", ["h"], ["r"], name="bend/Relu"),
        helper.make_node("MatMul", ["r", "b"], ["scores"], name="second/MatMul"),
    ]
    graph = model(nodes, {"x": ["batch", 32]}, {"scores": ["batch", 32]}, {"a": rounded(32, 32), "b": rounded(32, 32)})
    spec = spec_of("batch", 32)
    rows = np.random.default_rng(1).uniform(-1, 1, (96, 32)).astype(np.float32)
    samples = Samples({"x": rows}, tuple(map(str, range(96))))

    def found(rank: int) -> search.SearchResult:
        return search.search(spec, graph, samples, tmp_path, lambda done, text: None, SearchOptions(rank=rank))

    first, second = found(0), found(1)
    assert (first.chosen, second.best) == (first.best, first.best)
    assert second.chosen != first.chosen
    assert second.chosen.quality.passed
    assert second.graph != first.graph
    table = json.loads((tmp_path / TABLE).read_text())
    assert [line["name"] for line in table if line["chosen"]] == [second.chosen.recipe.name]
    assert {line["name"]: line["rank"] for line in table if "rank" in line}[second.chosen.recipe.name] == 1


def row(name: str, *, snr: float, work: float = 0.0, size: int = 10, passed: bool = True) -> Trial:
    return Trial(QuantConfig(floats=(name,)), Quality(passed, snr, {}), size, work)


def test_what_passes_beats_what_does_not_and_less_float_beats_less_noise() -> None:
    failed, exact, fast = row("a", snr=90, passed=False), row("b", snr=50, work=0.5), row("c", snr=30)
    assert max((failed, exact, fast), key=search._merit) is fast
    assert max((failed, exact), key=search._merit) is exact


def test_the_frontier_holds_what_no_other_beats_in_everything() -> None:
    rows = [row("a", snr=30), row("b", snr=40, work=0.5), row("c", snr=35, work=0.6), row("d", snr=20, size=5)]
    assert _pareto(rows) == {rows[i].recipe.key for i in (0, 1, 3)}


@pytest.mark.nightly
def test_a_recipe_must_hold_between_the_sizes_of_the_grid(tmp_path: Path) -> None:
    """scores = sigmoid(robust(x) + fragile(x) where there are six rows): the grid asks 8, 4, 12 and 9 rows."""
    fragile = np.full((WIDTH, 1), 0.3, np.float32)
    fragile[0] = 0.0
    nodes = [
        helper.make_node("MatMul", ["x", "fragile_w"], ["f"], name="fragile/MatMul"),
        helper.make_node("Shape", ["x"], ["rows"], name="sum/Shape", start=1, end=2),
        helper.make_node("Equal", ["rows", "six"], ["is_six"], name="sum/Equal"),
        helper.make_node("Where", ["is_six", "f", "nothing"], ["g"], name="sum/Where"),
        helper.make_node("Tanh", ["x"], ["t"], name="robust/Tanh"),
        helper.make_node("MatMul", ["t", "robust_w"], ["r"], name="robust/MatMul"),
        helper.make_node("Add", ["g", "r"], ["a"], name="sum/Add"),
        helper.make_node("Squeeze", ["a", "last"], ["b"], name="sum/Squeeze"),
        helper.make_node("Sigmoid", ["b"], ["scores"], name="sum/Sigmoid"),
    ]
    weights = {
        "fragile_w": fragile,
        "robust_w": np.random.default_rng(0).normal(0, 0.2, (WIDTH, 1)).astype(np.float32),
        "six": np.array([6]),
        "nothing": np.zeros(1, np.float32),
        "last": np.array([-1]),
    }
    graph = model(nodes, {"x": ["batch", "rows", WIDTH]}, {"scores": ["batch", "rows"]}, weights)
    spec = spec_of("batch", "rows", WIDTH, rows=Axis(8, 4, 12))
    drawn = np.random.default_rng(1).normal(0, 1, (96, 8, WIDTH)).astype(np.float32)
    drawn[..., 0] *= 1000.0
    samples = Samples({"x": drawn}, tuple(map(str, range(96))))

    def chosen(dynamic: tuple[str, ...]) -> tuple[str, ...]:
        options = SearchOptions("full", dynamic=dynamic)
        made = search.search(spec, graph, samples, tmp_path, lambda done, text: None, options)
        assert made.chosen.quality.passed
        return made.chosen.recipe.floats

    assert "fragile" not in chosen(("batch",))
    assert "fragile" in chosen(("batch", "rows"))


def test_more_groups_go_back_to_float_before_ranges_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """One by one, the most sensitive first, and only recipes that pass; never all groups."""
    order = ["a", "b", "c", "d"]
    uncut = Trial(QuantConfig(floats=("kept", "a")), Quality(True, 40.0, {}), 10, 0.0)
    cut = Trial(QuantConfig(method="entropy", floats=("kept",)), Quality(True, 40.0, {}), 10, 0.0)

    def judged(self: search._Trials, recipe: QuantConfig) -> Trial:
        return Trial(recipe, Quality("c" in recipe.floats, 40.0, {}), 10, 0.0)

    monkeypatch.setattr(search._Trials, "judge", judged)
    monkeypatch.setattr(search._Search, "order", order)
    one = search._Search(SearchOptions(floats=("kept",)), object.__new__(search._Trials), None)
    found = [(row.recipe.method, row.recipe.floats) for row in one._candidates([uncut, cut])]
    assert found == [("minmax", ("kept", "a")), ("minmax", ("a", "b", "c", "kept")), ("entropy", ("kept",))]
    assert [row.recipe.method for row in one._candidates([cut])] == ["entropy"]


def searched(needed: int, monkeypatch: pytest.MonkeyPatch, folder: Path, **options: Any) -> list[tuple[str, ...]]:
    """Return the groups in float of each trial, where the `needed` most sensitive of 16 must be in float."""
    parts = [f"{number:02}" for number in range(16)]
    trials: list[Trial] = []

    def judged(self: search._Trials, recipe: QuantConfig) -> Trial:
        passed = set(recipe.floats) >= set(parts[:needed])
        snr = 40.0 + (int(next(iter(set(parts) - set(recipe.floats)))) if len(recipe.floats) == 15 else 0.0)
        trials.append(Trial(recipe, Quality(passed, snr, {}), 10, len(recipe.floats) / 16))
        return trials[-1]

    monkeypatch.setattr(search._Trials, "judge", judged)
    monkeypatch.setattr(search._Trials, "latencies", lambda self, chosen, rows: {})
    monkeypatch.setattr(search._Trials, "quantize", lambda self, recipe: onnx.ModelProto())
    each = dict.fromkeys(parts, ("node",))
    judge = search._Trials(
        onnx.ModelProto(), {}, object.__new__(Evaluator), TrialLog(folder, "any"), each, {}, lambda done, text: None
    )
    chosen = search._Search(SearchOptions(**options), judge, None).run().chosen
    assert chosen.quality.passed or not options.get("more_floats", True)
    return [trial.recipe.floats for trial in trials]


def test_sensitivity_costs_nothing_where_all_groups_pass(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert set(searched(0, monkeypatch, tmp_path)) == {()}


def test_groups_return_to_float_by_halves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    floats = searched(5, monkeypatch, tmp_path)
    assert [len(names) for names in floats if 0 < len(names) < 15] == [8, 4, 6, 5]
    assert floats[-1] == ("00", "01", "02", "03", "04")


def test_a_search_that_another_one_follows_tries_no_groups(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert set(searched(5, monkeypatch, tmp_path, more_floats=False)) == {()}


def test_a_rank_beyond_the_ranges_puts_groups_into_float(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    recipes = len(SearchOptions().recipes)
    floats = searched(0, monkeypatch, tmp_path, rank=recipes + 1)
    assert [len(names) for names in floats if 0 < len(names) < 15] == [1, 2]
    assert set(searched(0, monkeypatch, tmp_path, rank=recipes - 1)) == {()}


def test_samples_with_truth_decide_by_the_task_metric(tmp_path: Path) -> None:
    def graph(scale: float) -> onnx.ModelProto:
        nodes = [helper.make_node("MatMul", ["x", "a"], ["scores"], name="first/MatMul")]
        weights = {"a": (rounded(32, 32) * scale).astype(np.float32)}
        return model(nodes, {"x": ["batch", 32]}, {"scores": ["batch", 32]}, weights)

    def hits(outputs: Mapping[str, np.ndarray[Any, Any]], truth: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.asarray(1.0 - 20.0 * np.abs(outputs["scores"] - truth).mean(1))

    spec = replace(spec_of("batch", 32), outputs=(Output("scores"),))
    rows = np.random.default_rng(1).uniform(-1, 1, (96, 32)).astype(np.float32)
    truth = rows @ rounded(32, 32).astype(np.float32)
    plain = Samples({"x": rows}, tuple(map(str, range(96))))
    quality = [
        Evaluator(spec, graph(1.0), samples, tmp_path).judge(graph(0.98))
        for samples in (plain, replace(plain, truth=truth, metric=hits).part(0, 64))
    ]
    assert [each.passed for each in quality] == [True, False], [each.reasons for each in quality]
    assert TASK_DROP not in quality[0].worst
    assert quality[1].worst[TASK_DROP] > 0.005
    least, most = (Quality(False, 20.0, {TASK_DROP: drop}) for drop in (0.001, 0.1))
    assert min((least, most, Quality(False, 30.0, {})), key=search._robustness) is most
