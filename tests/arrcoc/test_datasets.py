import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgekit.arrcoc import datasets, evaluation, presets, questions, scenes
from edgekit.errors import CalibrationError, CheckpointError

FOLDER = presets.HOME / "evaluation"


def test_the_committed_images_are_rendered_again_bit_for_bit() -> None:
    import torch

    record = json.loads((FOLDER / "evaluation.json").read_text())["scenes"]
    truth = np.load(FOLDER / "truth.npy")
    rows = (0, len(record) // 2, len(record) - 1)
    seeds = torch.tensor([record[row]["seed"] for row in rows])
    rendered = scenes.render(seeds)
    asked = questions.ask(rendered, seeds, 1)
    for at, row in enumerate(rows):
        pixels = np.asarray(Image.open(FOLDER / record[row]["file"]))
        assert np.array_equal(pixels, rendered.images[at].permute(1, 2, 0).numpy())
        assert record[row]["query"] == questions.describe(asked.concepts[at, 0])
        assert record[row]["kind"] == questions.KINDS[int(asked.kind[at, 0])]
        assert np.array_equal(truth[row], asked.truth[at, 0].numpy())


def test_the_evaluation_set_is_whole_and_small() -> None:
    made = datasets.evaluation_set(FOLDER)
    count = len(made.names)
    assert count >= 64
    assert len(set(made.names)) == count == len(made.captions)
    assert made.inputs["images"].shape == (count, 3, 224, 224)
    assert made.inputs["images"].dtype == made.inputs["queries"].dtype == np.float32
    assert float(made.inputs["images"].max()) <= 1.0
    assert made.truth is not None
    assert made.truth.shape == (count, 196)
    assert float(made.truth.sum(1).min()) > 0.2
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 6e6


def test_the_sets_share_no_seed() -> None:
    starts = sorted((datasets.HELD_OUT, datasets.CALIBRATION, datasets.EVALUATION))
    assert starts[0] >= datasets.TRAINING
    assert min(late - early for early, late in itertools.pairwise(starts)) >= 2**29
    assert datasets.EVALUATION + 2**20 < 2**32


def test_calibration_samples_come_without_truth_and_first_ones_first() -> None:
    made, fewer = datasets.calibration_set(3), datasets.calibration_set(2)
    assert made.truth is None
    assert made.inputs["images"].shape == (3, 3, 224, 224)
    assert made.inputs["queries"].shape == (3, 768)
    assert np.array_equal(made.inputs["images"][:2], fewer.inputs["images"])
    assert np.array_equal(made.inputs["queries"][:2], fewer.inputs["queries"])


def test_another_rendering_of_the_calibration_set_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "CALIBRATION_SIZE", 2)
    with pytest.raises(CalibrationError, match="differ from the recorded ones"):
        datasets.calibration_set(2)
    monkeypatch.setattr(datasets, "CALIBRATION_SHA256", datasets.digest(*datasets.picture(datasets.CALIBRATION, 2)))
    assert len(datasets.calibration_set(2).names) == 2


@pytest.mark.parametrize("count", [0, -3])
def test_no_samples_are_refused(count: int) -> None:
    with pytest.raises(CalibrationError, match=f"'{count}'"):
        datasets.calibration_set(count)


@pytest.mark.parametrize("damage", ["missing", "truncated", "record"])
def test_a_damaged_evaluation_set_is_refused(tmp_path: Path, damage: str) -> None:
    (tmp_path / "evaluation.json").write_text(json.dumps({"scenes": [{"file": "000.png", "query": "red"}]}))
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
    best = np.argsort(-truth, 1)[:, :32]
    assert evaluation.coverage({"indices": best}, truth).min() == 1.0
