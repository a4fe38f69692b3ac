import dataclasses
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from edgekit_arrcoc.model import TINY, ArrCoc, initialize
from edgekit_arrcoc.presets import arr_coc_tiny
from training import evaluate, photographs, questions, scenes, train, views
from training.fake_quant import Coarse, on_grid, rounded, spread
from training.objective import Window, _haloed, _nearness
from training.plan import FINISH, FIRST, Plan
from training.pool import POSED, Pool

CPU = torch.device("cpu")
PLAN = Plan(steps=3, finish=1, batch=2, queries=2, chunks=2, chunk=2, every=1, warmup=2)
SCENE_FIELDS = tuple(field.name for field in dataclasses.fields(scenes.Scenes))
BANK = photographs.held_out("calibration")


def pools(step: int) -> tuple[Pool, Pool]:
    return train.pools(PLAN, step, CPU, BANK)


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
    scenes_of_it = pools(0)
    for _ in range(4):
        whole.advance(scenes_of_it)
        if whole.step == 2:
            whole.save(tmp_path)
    # What a kill in the middle of saving leaves behind.
    (tmp_path / "new-000003").mkdir()
    resumed = train.Training(PLAN, CPU)
    resumed.resume(tmp_path)
    assert resumed.step == 2
    scenes_of_it = pools(resumed.step)
    for _ in range(2):
        resumed.advance(scenes_of_it)
    ours, theirs = weights(resumed), weights(whole)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    fresh = train.Training(PLAN, CPU)
    assert not torch.equal(fresh.kept.head.weight, resumed.kept.head.weight)


def test_a_run_without_time_for_a_step_saves_what_it_began_with(tmp_path: Path) -> None:
    train.Training(PLAN, CPU).save(tmp_path)
    again = train.Training(Plan(**vars(PLAN)), CPU)
    again.resume(tmp_path)
    assert again.step == 0
    assert (tmp_path / "state-000000" / "first.safetensors").is_file()


def test_the_finish_goes_on_from_the_average_on_a_coarser_grid() -> None:
    training = train.Training(Plan(**{**vars(PLAN), "steps": 1, "finish": 2, "rate": 0.0}), CPU)
    scenes_of_it = pools(0)
    training.advance(scenes_of_it)
    assert float(training.coarse.steps) == FIRST.levels
    assert float(training.trainee.presence) == pytest.approx(FIRST.presence)
    average = weights(training)
    with torch.no_grad():
        for parameter in training.trainee.parameters():
            parameter.add_(1.0)
    training.advance(scenes_of_it)
    assert float(training.coarse.steps) == FINISH.levels
    assert float(training.trainee.presence) == pytest.approx(FINISH.presence)
    assert float(training.trainee.dimmed) == pytest.approx(FINISH.dimmed)
    assert all(torch.equal(value, average[name]) for name, value in training.trainee.state_dict().items())


def test_a_state_of_another_plan_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state-000002").mkdir()
    (tmp_path / "state-000002" / "step.json").write_text(json.dumps({"step": 2, "plan": {"steps": 9}}))
    with pytest.raises(SystemExit, match="another plan"):
        train.Training(PLAN, CPU).resume(tmp_path)


def test_only_what_is_asked_for_is_trained() -> None:
    training = train.Training(Plan(**{**vars(PLAN), "only": "model.balancing.weigh"}), CPU)
    before = weights(training)
    training.advance(pools(0))
    changed = {name for name, value in weights(training).items() if not torch.equal(value, before[name])}
    assert changed == {f"model.balancing.weigh.{layer}.{kind}" for layer in (0, 2) for kind in ("weight", "bias")}


def test_a_pool_holds_the_same_scenes_however_it_came_to_a_step() -> None:
    refreshed = pool(0)
    for step in range(1, 4):
        refreshed.refresh(step)
        started = pool(step)
        assert all(torch.equal(mine, other) for mine, other in zip(refreshed._fields, started._fields, strict=True))


def test_a_sample_has_the_truth_of_its_scenes() -> None:
    drawn, asked = pool(0).sample(5, 7, torch.Generator().manual_seed(1))
    assert asked.truth.shape == (5, 7, 196)
    rendered = scenes.render(torch.arange(4), share=0)
    for row in range(5):
        source = next(at for at in range(4) if torch.equal(rendered.images[at], drawn.images[row]))
        whole = scenes.Scenes(*(getattr(rendered, name)[source : source + 1] for name in SCENE_FIELDS))
        posed = questions.answered(whole, questions.pose(whole, torch.tensor([source]), POSED))
        for query in range(7):
            same = (posed.concepts[0] == asked.concepts[row, query]).all(1)
            assert bool(same.any())
            assert torch.equal(posed.truth[0][same][0], asked.truth[row, query])


def test_steps_see_the_sizes_in_their_shares() -> None:
    seen = [views.window(3, step) for step in range(600)]
    assert sum(view.share for view in views.VIEWS) == 100
    for view in views.VIEWS[::7]:
        assert sum(one is view for one, _ in seen) / 600 == pytest.approx(view.share / 100, abs=0.06)
    for view, window in seen:
        edge = 32 if view.large else 14
        assert window.top + window.rows <= edge
        assert window.left + window.columns <= edge


def test_a_step_without_a_finite_gradient_is_left_out() -> None:
    training = train.Training(PLAN, CPU)
    training._leave_out(torch.tensor(1.0), {})
    assert float(training.left_out) == 0
    training.trainee.head.weight.grad = torch.full_like(training.trainee.head.weight, float("nan"))
    training._leave_out(torch.tensor(float("nan")), {})
    assert float(training.left_out) == 1
    assert float(training.trainee.head.weight.grad.abs().max()) == 0


def test_the_first_editions_weights_are_a_start(tmp_path: Path) -> None:
    stored = train.Training(PLAN, CPU).trainee.model.state_dict()
    del stored["query_content.nothing"]
    save_file({name: tensor.contiguous() for name, tensor in stored.items()}, tmp_path / "first.safetensors")
    training = train.Training(Plan(**{**vars(PLAN), "seed": 9}), CPU)
    training.begin(tmp_path / "first.safetensors")
    for model in (training.trainee.model, training.kept.model):
        assert float(model.query_content.nothing.detach()) == pytest.approx(train.FIRST_NOTHING)
        assert float(model.balancing.centre[2].detach()) == pytest.approx(train.FIRST_CENTRE)
        assert torch.equal(model.texture.patch.weight, stored["texture.patch.weight"])


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
    coarse = rounded(values, values.detach(), torch.tensor(255.0))
    (gradient,) = torch.autograd.grad(coarse.sum(), values)
    assert torch.equal(gradient, torch.ones(1000))
    step = float(values.detach().max() - values.detach().min()) / 255
    assert float((coarse - values).detach().abs().max()) <= 0.51 * step
    places = (coarse.detach() - values.detach().min()) / step
    assert float((places - torch.round(places)).abs().max()) < 0.01


def test_weights_are_coarse_inside_and_exact_after() -> None:
    layer = torch.nn.Linear(64, 64)
    before = layer.weight.detach().clone()
    with Coarse(layer)(63):
        assert all(len(torch.unique(row)) <= 127 for row in layer.weight)
        assert 0 < float((layer.weight - before).detach().abs().max()) <= float(before.abs().max()) / 126 + 1e-6
    assert torch.equal(layer.weight, before)


def test_weights_on_the_grid_are_exactly_integers_times_the_step_that_a_quantizer_finds() -> None:
    weight = torch.randn(64, 3, 5, generator=torch.Generator().manual_seed(4)) * torch.logspace(-6, 3, 64).view(
        -1, 1, 1
    )
    placed = on_grid(weight).flatten(1)
    step = placed.abs().amax(1, keepdim=True) / 127
    whole = torch.round(placed / step)
    assert torch.equal(whole * step, placed)
    assert bool((whole.abs().amax(1) == 127).all())
    assert float((placed - weight.flatten(1)).abs().div(step).max()) <= 0.502
    assert torch.equal(on_grid(placed), placed)


def test_a_spread_tells_outliers() -> None:
    usual = torch.randn(4000, generator=torch.Generator().manual_seed(2))
    assert float(spread(usual)) == pytest.approx(0.9, abs=0.1)
    assert float(spread(torch.cat([usual, torch.tensor([40.0])]))) > 1.5


def test_twins_are_exact_in_the_first_half_and_rounded_in_the_second() -> None:
    layer = torch.nn.Linear(8, 8, bias=False)
    coarse = Coarse(torch.nn.Sequential(layer))
    coarse.twins = True
    coarse.steps.fill_(15)
    values = torch.randn(6, 8, generator=torch.Generator().manual_seed(3))
    both = torch.cat([values, values])
    answers = layer(both)
    assert torch.equal(answers[:6], torch.nn.functional.linear(both, layer.weight)[:6])
    assert not torch.equal(answers[:6], answers[6:])
    assert len(coarse.spreads) == 1


def test_the_shipped_weights_are_on_the_grid() -> None:
    for name, layer in arr_coc_tiny().module.named_modules():
        if isinstance(layer, torch.nn.Linear | torch.nn.Conv2d):
            assert torch.equal(on_grid(layer.weight), layer.weight), name


@pytest.mark.nightly
def test_measuring_asks_every_scene_and_ablates_every_scorer() -> None:
    model = ArrCoc(TINY)
    initialize(model, 1)
    report = evaluate.report(model.eval(), 0.5, 3)
    assert set(report) >= {"rendered", "photographs", "flat", "obvious", "sizes", "weights", "ablations", "threshold"}
    assert isinstance(report["ablations"], dict)
    assert len(report["ablations"]) == 6
    assert isinstance(report["sizes"], dict)
    assert list(report["sizes"]) == ["96 x 96", "224 x 224", "384 x 384", "512 x 512", "320 x 512"]
    answers = evaluate.answer(model, evaluate.Sample(5, 3))
    seeds = torch.arange(5, 8)
    asked = questions.ask(scenes.render(seeds), seeds, 2, evaluate.UNANSWERABLE)
    assert torch.equal(torch.from_numpy(answers.truth), asked.truth.flatten(0, 1))
