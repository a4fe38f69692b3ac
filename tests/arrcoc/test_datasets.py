import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from edgekit.arrcoc import datasets, evaluation, photographs, presets, questions, scenes, write_sets
from edgekit.errors import CalibrationError, CheckpointError

FOLDER = presets.HOME / "evaluation"


def test_the_committed_images_are_made_again_bit_for_bit() -> None:
    record = json.loads((FOLDER / "evaluation.json").read_text())["images"]
    truth = np.load(FOLDER / "truth.npy")
    bank = photographs.held_out("evaluation")
    for row in (0, 1, 4, 9, 60, 100, len(record) - 1):
        one = record[row]
        sort = datasets.SORTS.index(one["sort"])
        pixels = photographs.picture(FOLDER / one["file"])
        if sort == 2:
            made = datasets.photograph(torch.tensor([one["seed"]]), bank)[0]
            assert np.isnan(truth[row]).all()
        else:
            number = one["seed"] - write_sets.seed(sort, 0)
            rendered, asked, query = write_sets.scene(sort, number, bank if sort else None)
            made = rendered.images[0]
            assert one["query"] == questions.describe(asked.concepts[0, query])
            assert one["answer"] == questions.ANSWERS[int(asked.answer[0, query])]
            assert np.array_equal(truth[row], asked.truth[0, query].numpy())
        assert np.array_equal(pixels, made.permute(1, 2, 0).numpy())


def test_the_evaluation_set_is_whole_and_small() -> None:
    made = datasets.evaluation_set(FOLDER)
    record = json.loads((FOLDER / "evaluation.json").read_text())["images"]
    assert [sum(one["sort"] == sort for one in record) for sort in datasets.SORTS] == [80, 40, 24]
    assert sum(one["answer"] in ("absent", "hard") for one in record) == 24
    assert len(set(made.names)) == 144 == len(made.captions)
    assert made.inputs["images"].shape == (144, 3, 224, 224)
    assert made.inputs["images"].dtype == made.inputs["queries"].dtype == np.float32
    assert float(made.inputs["images"].max()) <= 1.0
    assert made.truth is not None
    for one, truth in zip(record, made.truth, strict=True):
        expected = {"there": truth.sum() >= 1.0, "unknown": np.isnan(truth).all()}.get(one["answer"], truth.sum() == 0)
        assert expected
    folders = (FOLDER, photographs.HELD_OUT)
    assert sum(path.stat().st_size for folder in folders for path in folder.iterdir()) < 16e6


def test_the_first_images_explain_the_model() -> None:
    record = json.loads((FOLDER / "evaluation.json").read_text())["images"][:12]
    assert {one["sort"] for one in record} == set(datasets.SORTS)
    assert "hard" in {one["answer"] for one in record}
    assert all(len(one["query"].split()) >= 2 for one in record)
    assert all(one["answer"] == "there" for one in record[:4])


def test_evaluation_and_calibration_share_no_photograph() -> None:
    record = json.loads((photographs.HELD_OUT / "sources.json").read_text())["photographs"]
    assert {one["use"] for one in record} == set(photographs.USES)
    assert len({one["file"] for one in record}) == len(record)
    assert all(one["licence"].startswith(("CC0-1.0", "CC-BY-")) and one["author"] for one in record)


def test_the_sets_share_no_seed() -> None:
    starts = sorted((datasets.TUNING, datasets.HELD_OUT, datasets.CALIBRATION, datasets.EVALUATION))
    assert starts[0] >= datasets.TRAINING
    assert min(late - early for early, late in itertools.pairwise(starts)) >= 2**28
    assert datasets.EVALUATION + 2**20 < 2**32


def test_calibration_samples_come_without_truth_and_first_ones_first() -> None:
    made, fewer = datasets.calibration_set(3), datasets.calibration_set(2)
    assert made.truth is None
    assert made.inputs["images"].shape == (3, 3, 224, 224)
    assert made.inputs["queries"].shape == (3, 768)
    assert np.array_equal(made.inputs["images"][:2], fewer.inputs["images"])
    assert np.array_equal(made.inputs["queries"][:2], fewer.inputs["queries"])


def test_a_third_of_the_calibration_samples_have_photographs() -> None:
    pictures, _ = datasets.calibration_pictures(6)
    bank = photographs.held_out("calibration")
    seeds = torch.arange(6) + datasets.CALIBRATION
    assert np.array_equal(pictures[5], datasets.photograph(seeds[5:], bank)[0].numpy())
    assert np.array_equal(pictures[2], scenes.render(seeds[2:3], bank=bank).images[0].numpy())
    assert np.array_equal(pictures[0], scenes.render(seeds[:1]).images[0].numpy())


def test_another_rendering_of_the_calibration_set_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "CALIBRATION_SIZE", 2)
    with pytest.raises(CalibrationError, match="differ from the recorded ones"):
        datasets.calibration_set(2)
    monkeypatch.setattr(datasets, "CALIBRATION_SHA256", datasets.digest(*datasets.calibration_pictures(2)))
    assert len(datasets.calibration_set(2).names) == 2


@pytest.mark.parametrize("count", [0, -3])
def test_no_samples_are_refused(count: int) -> None:
    with pytest.raises(CalibrationError, match=f"'{count}'"):
        datasets.calibration_set(count)


@pytest.mark.parametrize("damage", ["missing", "truncated", "record"])
def test_a_damaged_evaluation_set_is_refused(tmp_path: Path, damage: str) -> None:
    (tmp_path / "evaluation.json").write_text(json.dumps({"images": [{"file": "000.png", "query": "red"}]}))
    (tmp_path / "truth.npy").write_bytes((FOLDER / "truth.npy").read_bytes())
    picture = (FOLDER / "000.png").read_bytes()
    if damage == "truncated":
        (tmp_path / "000.png").write_bytes(picture[: len(picture) // 2])
    elif damage == "record":
        (tmp_path / "evaluation.json").write_text("{}")
    with pytest.raises(CheckpointError, match="evaluation set"):
        datasets.evaluation_set(tmp_path)


def test_the_metric_of_a_choice_by_truth_is_one() -> None:
    truth = datasets.evaluation_set(FOLDER).truth
    assert truth is not None
    best = np.argsort(-np.nan_to_num(truth), 1)[:, :32]
    assert evaluation.coverage({"indices": best}, truth).min() == 1.0
