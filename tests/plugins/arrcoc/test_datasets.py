import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from edgekit.errors import CalibrationError, CheckpointError
from edgekit_arrcoc import datasets, presets

FOLDER, CALIBRATION = presets.HOME / "evaluation", presets.HOME / "calibration"


def test_the_evaluation_set_is_whole_and_small() -> None:
    made = datasets.evaluation_set(FOLDER)
    record = json.loads((FOLDER / "evaluation.json").read_text())["images"]
    sorts = ("rendered", "composite", "photograph", "flat", "named", "named flat")
    assert [sum(one["sort"] == sort for one in record) for sort in sorts] == [80, 40, 24, 24, 16, 16]
    assert sum(one["answer"] in ("absent", "hard") for one in record) == 34
    assert len(set(made.names)) == 200 == len(made.captions)
    assert made.inputs["images"].shape == (200, 3, 224, 224)
    assert made.inputs["images"].dtype == made.inputs["queries"].dtype == np.float32
    assert float(made.inputs["images"].max()) <= 1.0
    assert made.truth is not None
    for one, truth in zip(record, made.truth, strict=True):
        least = 0.25 if one["sort"].startswith("named") else 1.0
        expected = {"there": truth.sum() >= least, "unknown": np.isnan(truth).all()}.get(
            one["answer"], truth.sum() == 0
        )
        assert expected
    assert sum(path.stat().st_size for folder in (FOLDER, CALIBRATION) for path in folder.iterdir()) < 16e6


def test_the_first_images_explain_the_model() -> None:
    record = json.loads((FOLDER / "evaluation.json").read_text())["images"][:13]
    assert {one["sort"] for one in record} == {"rendered", "composite", "photograph", "flat", "named", "named flat"}
    assert "hard" in {one["answer"] for one in record}
    assert all(len(one["query"].split()) >= 2 for one in record)
    assert all(one["answer"] == "there" for one in record[:4])


def test_calibration_samples_come_without_truth_and_first_ones_first() -> None:
    made, fewer = datasets.calibration_set(CALIBRATION, 3), datasets.calibration_set(CALIBRATION, 2)
    assert made.truth is None
    assert made.inputs["images"].shape == (3, 3, 224, 224)
    assert made.inputs["queries"].shape == (3, 768)
    assert np.array_equal(made.inputs["images"][:2], fewer.inputs["images"])
    assert np.array_equal(made.inputs["queries"][:2], fewer.inputs["queries"])


def test_the_second_half_of_the_calibration_set_is_the_first_mirrored() -> None:
    made, half = datasets.calibration_set(CALIBRATION), datasets.CALIBRATION_PICTURES
    assert len(set(made.names)) == 2 * half == datasets.CALIBRATION_SIZE
    assert np.array_equal(made.inputs["images"][half:], made.inputs["images"][:half, :, :, ::-1])
    assert np.array_equal(made.inputs["queries"][half:], made.inputs["queries"][:half])


@pytest.mark.parametrize("count", [0, -3, 301])
def test_no_samples_and_more_than_there_are_are_refused(count: int) -> None:
    with pytest.raises(CalibrationError, match=f"from 1 to 300 samples, not '{count}'"):
        datasets.calibration_set(CALIBRATION, count)


@pytest.mark.parametrize("damage", ["missing", "truncated", "record", "the recorded pixels"])
def test_a_damaged_set_is_refused(tmp_path: Path, damage: str) -> None:
    for folder in (FOLDER, CALIBRATION):
        record = json.loads((folder / f"{folder.name}.json").read_text())["images"][:2]
        (tmp_path / f"{folder.name}.json").write_text("{}" if damage == "record" else json.dumps({"images": record}))
        picture = (folder / record[0]["file"]).read_bytes()
        shutil.copyfile(folder / record[1]["file"], tmp_path / record[1]["file"])
        if damage == "truncated":
            (tmp_path / record[0]["file"]).write_bytes(picture[: len(picture) // 2])
        elif damage == "the recorded pixels":
            shutil.copyfile(folder / record[1]["file"], tmp_path / record[0]["file"])
        elif damage == "missing":
            (tmp_path / record[0]["file"]).unlink(missing_ok=True)
    (tmp_path / "truth.npy").write_bytes((FOLDER / "truth.npy").read_bytes())
    with pytest.raises(CheckpointError, match="evaluation set"):
        datasets.evaluation_set(tmp_path)
    with pytest.raises(CheckpointError, match="calibration set"):
        datasets.calibration_set(tmp_path, 2)


def test_the_metric_of_a_choice_by_truth_is_one() -> None:
    truth = datasets.evaluation_set(FOLDER).truth
    assert truth is not None
    best = np.argsort(-np.nan_to_num(truth), 1)[:, :32]
    assert datasets.coverage({"indices": best}, truth).min() == 1.0
