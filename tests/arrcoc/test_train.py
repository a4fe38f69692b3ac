import json
from pathlib import Path

import pytest
import torch

from edgekit.arrcoc import evaluate, questions, scenes, train
from edgekit.arrcoc.fake_quant import Coarse, rounded
from edgekit.arrcoc.model import TINY, ArrCoc, initialize
from edgekit.arrcoc.objective import Window, _haloed, _nearness
from edgekit.arrcoc.pool import Pool

CPU = torch.device("cpu")
PLAN = train.Plan(steps=4, batch=2, queries=2, chunks=2, chunk=2, every=1, warmup=2)


def pool(step: int) -> Pool:
    return Pool(PLAN.chunks, PLAN.chunk, PLAN.every, 0, step, CPU)


def weights(training: train.Training) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in training.kept.state_dict().items()}


@pytest.fixture
def _few_threads() -> None:
    torch.set_num_threads(1)


@pytest.mark.usefixtures("_few_threads")
def test_a_killed_run_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    whole = train.Training(PLAN, CPU)
    scenes_of_it = pool(0)
    for _ in range(4):
        whole.advance(scenes_of_it)
        if whole.step == 2:
            whole.save(tmp_path)
    # What a kill in the middle of saving leaves behind.
    (tmp_path / "new-000003").mkdir()
    resumed = train.Training(PLAN, CPU)
    resumed.resume(tmp_path)
    assert resumed.step == 2
    scenes_of_it = pool(resumed.step)
    for _ in range(2):
        resumed.advance(scenes_of_it)
    ours, theirs = weights(resumed), weights(whole)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    fresh = train.Training(PLAN, CPU)
    assert not torch.equal(fresh.kept.head.weight, resumed.kept.head.weight)


def test_a_state_of_another_plan_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state-000002").mkdir()
    (tmp_path / "state-000002" / "step.json").write_text(json.dumps({"step": 2, "plan": {"steps": 9}}))
    with pytest.raises(SystemExit, match="another plan"):
        train.Training(PLAN, CPU).resume(tmp_path)


def test_only_what_is_asked_for_is_trained() -> None:
    training = train.Training(train.Plan(**{**vars(PLAN), "only": "model.balancing.weigh"}), CPU)
    before = weights(training)
    training.advance(pool(0))
    changed = {name for name, value in weights(training).items() if not torch.equal(value, before[name])}
    assert changed == {f"model.balancing.weigh.{layer}.{kind}" for layer in (0, 2) for kind in ("weight", "bias")}


def test_a_pool_holds_the_same_scenes_however_it_came_to_a_step() -> None:
    refreshed = pool(0)
    for step in range(1, 4):
        refreshed.refresh(step)
        started = pool(step)
        assert torch.equal(refreshed._scenes.images, started._scenes.images)


def test_a_crop_cuts_pixels_and_truth_alike() -> None:
    window = Window(3, 5, 6, 4)
    patches = torch.arange(196).float()
    pixels = patches.view(1, 1, 14, 14).repeat_interleave(16, 2).repeat_interleave(16, 3).expand(1, 3, -1, -1)
    cropped = window.pixels(pixels)
    assert cropped.shape == (1, 3, 96, 64)
    assert torch.equal(cropped[0, 0, ::16, ::16].flatten(), window.patches(patches))


def test_targets_fall_off_with_the_distance() -> None:
    truth = torch.zeros(196)
    truth[7 * 14 + 7] = 1.0
    wanted = _haloed(truth, _nearness(14, 14, CPU)).view(14, 14)
    assert float(wanted[7, 7]) == 1.0
    row = wanted[7, 8:]
    assert bool((row[:-1] > row[1:]).all())
    assert float(row[0]) < 0.05


def test_rounding_lets_the_gradient_through() -> None:
    values = torch.randn(1000, generator=torch.Generator().manual_seed(1)).requires_grad_()
    coarse = rounded(values)
    (gradient,) = torch.autograd.grad(coarse.sum(), values)
    assert torch.equal(gradient, torch.ones(1000))
    step = float(values.detach().max() - values.detach().min()) / 255
    assert float((coarse - values).detach().abs().max()) <= 0.51 * step
    assert len(torch.unique(coarse)) <= 256


def test_weights_are_coarse_inside_and_exact_after() -> None:
    layer = torch.nn.Linear(64, 64)
    before = layer.weight.detach().clone()
    with Coarse(layer)(63):
        assert len(torch.unique(layer.weight)) <= 127
        assert 0 < float((layer.weight - before).detach().abs().max()) <= float(before.abs().max()) / 126 + 1e-6
    assert torch.equal(layer.weight, before)


def test_measuring_asks_every_scene_and_ablates_every_scorer() -> None:
    model = ArrCoc(TINY)
    initialize(model, 1)
    report = evaluate.report(model.eval(), 5, 3)
    assert set(report) == {"scores", "weights", "ablations"}
    assert isinstance(report["ablations"], dict)
    assert len(report["ablations"]) == 6
    answers = evaluate.answer(model, 5, 3, 2)
    seeds = torch.arange(5, 8)
    asked = questions.ask(scenes.render(seeds), seeds, 2)
    assert torch.equal(torch.from_numpy(answers.truth), asked.truth.flatten(0, 1))
