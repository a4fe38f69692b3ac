"""A folder of a user's own inputs: what it may hold, how it is split, and what would prove nothing."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from edgekit.errors import DataError, EdgekitError, UsageError
from edgekit.model.evaluation_set import calibration_of
from edgekit.model.folder import load_model, save_model
from edgekit.model.spec import Array, Axis, EvaluationSet, Input, ModelSpec, Output
from edgekit.pipeline.given_model import resolve_model, with_data
from edgekit.pipeline.request import EvaluationData, ModelFacts
from edgekit.reference import dataset
from edgekit.reference.dataset import ENOUGH, LEAST, sets_of

SIZE, CLASSES = 8, 3


class Brightest(torch.nn.Module):
    """The class is the colour of which a picture has most."""

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return pixels.mean((2, 3))


def classifier() -> ModelSpec:
    return ModelSpec(
        name="brightest",
        module=Brightest().eval(),
        inputs=(Input("pixels", ("batch", 3, SIZE, SIZE), kind="image"),),
        outputs=(Output("logits", role="logits"),),
        axes={"batch": Axis(1, 1, 8)},
    )


def speech() -> ModelSpec:
    """Audio and its rate, a number without axes."""

    class Speech(torch.nn.Module):
        def forward(self, audio: torch.Tensor, rate: torch.Tensor) -> torch.Tensor:
            return audio * rate

    inputs = (Input("audio", ("batch", 6), low=-1.0), Input("rate", (), dtype="int64", low=8000, high=16000))
    return ModelSpec("speech", Speech().eval(), inputs, (Output("y"),), {"batch": Axis(1, 1, 8)})


def write_pictures(folder: Path, count: int, size: int = SIZE, seed: int = 0) -> dict[str, int]:
    """Pictures with the classes that the classifier gives them."""
    folder.mkdir(exist_ok=True)
    draw = np.random.default_rng(seed)
    found = {}
    for number in range(count):
        pixels = draw.integers(0, 256, (size, size, 3), dtype=np.uint8) // 2
        pixels[..., number % CLASSES] += 90
        Image.fromarray(pixels).save(folder / f"{number:03}.png")
        found[f"{number:03}.png"] = int(pixels.mean((0, 1)).argmax())
    return found


def write_labels(folder: Path, labels: dict[str, object]) -> None:
    with (folder / "labels.csv").open("w") as file:
        csv.writer(file).writerows([("file", "label"), *labels.items()])


def test_a_folder_is_split_by_hashes_and_no_input_is_on_both_sides(tmp_path: Path) -> None:
    write_pictures(tmp_path, ENOUGH + 30)
    Image.open(tmp_path / "003.png").save(tmp_path / "again.bmp")  # the same picture counts once
    spec = classifier()
    sets = sets_of(spec, tmp_path, None)
    assert sets.evaluation is not None
    assert sets.calibration is not None
    judged, shown = ({row.tobytes() for row in one.inputs["pixels"]} for one in (sets.evaluation, sets.calibration))
    assert (len(shown), len(judged), judged & shown) == (LEAST, 36, set())
    assert all(number in sets.note for number in ("100", "64", "36"))
    least = max(hashlib.sha256(row).hexdigest() for row in shown)
    assert all(hashlib.sha256(row).hexdigest() > least for row in judged)  # nothing else decides
    few = write_pictures(tmp_path / "few", ENOUGH - 1)
    sets = sets_of(spec, tmp_path / "few", None)
    assert sets.evaluation is not None
    assert (sets.calibration, len(sets.evaluation.names)) == (None, len(few))
    own = replace(spec, calibration=lambda count: EvaluationSet({}, ()))
    assert sets_of(own, tmp_path, None).calibration is None  # the model's own is taken, and all are judged on


def test_what_calibrated_is_not_judged_on(tmp_path: Path) -> None:
    write_pictures(tmp_path / "all", 80)
    write_pictures(tmp_path / "others", 20, seed=1)
    sets = sets_of(classifier(), tmp_path / "others", tmp_path / "all")
    assert sets.evaluation is not None
    assert len(sets.evaluation.names) == 20
    Image.open(tmp_path / "all" / "007.png").save(tmp_path / "others" / "mine.bmp")  # in another format
    with pytest.raises(DataError, match=r"'mine.bmp' of the evaluation set is '007.png' of the calibration set"):
        sets_of(classifier(), tmp_path / "others", tmp_path / "all")
    mine = dataset.read_folder(classifier(), tmp_path / "others")
    shared = "of the evaluation set is .* of the calibration set"
    with pytest.raises(DataError, match=shared):  # and so for sets that are given in Python
        with_data(classifier(), EvaluationData(evaluation=mine, calibration=tmp_path / "all"))
    with pytest.raises(DataError, match=shared):
        with_data(classifier(), EvaluationData(data=tmp_path / "others", calibration=lambda count: mine))


def metric_of(labels: Callable[[dict[str, int]], dict[str, object]], folder: Path) -> ModelSpec:
    write_labels(folder, labels(write_pictures(folder, 30)))
    return with_data(classifier(), EvaluationData(data=folder, metric="top_k:logits"))


def test_labels_that_are_right_judge_and_travel(tmp_path: Path) -> None:
    spec = metric_of(dict, tmp_path / "pictures")
    save_model(spec, tmp_path / "model")
    for one in (spec, load_model(tmp_path / "model")):
        assert one.evaluation is not None
        found = one.evaluation()
        assert found.metric is not None
        assert found.truth is not None
        right = np.eye(CLASSES)[found.truth]
        np.testing.assert_array_equal(found.metric({"logits": right}, found.truth), 1.0)
        assert not found.metric({"logits": np.roll(right, 1, axis=1)}, found.truth).any()


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        (lambda right: {n: (c + 1) % CLASSES for n, c in right.items()}, "with labels -1 it has 67%"),
        (lambda right: dict(zip(right, [*list(right.values())[1:], 0], strict=True)), "the model itself has 0%"),
        (lambda right: dict.fromkeys(right, 1), "33% by 'top_k:logits' on 30 inputs, where chance has 33%"),
        (lambda right: {n: c + 1 for n, c in right.items()}, "the label 3 is not one of the 3 classes of 'logits'"),
        (lambda right: {n: c for n, c in right.items() if n != "004.png"}, "no label for '004.png'"),
        (lambda right: {**right, "x.png": 0}, "a label for 'x.png'"),
        (lambda right: {**right, "002.png": "red"}, "the label 'red' of '002.png'"),
    ],
)
def test_labels_that_say_nothing_are_refused(
    labels: Callable[[dict[str, int]], dict[str, object]], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError) as error:
        metric_of(labels, tmp_path / "pictures")
    assert sentence in str(error.value)


def test_labels_may_be_names_of_classes(tmp_path: Path) -> None:
    right = write_pictures(tmp_path, 12)
    (tmp_path / "labels.json").write_text(
        str({n: ["red", "green", "blue"][c] for n, c in right.items()}).replace("'", '"')
    )
    spec = replace(classifier(), outputs=(Output("logits", role="logits", classes=("red", "green", "blue")),))
    found = dataset.read_folder(spec, tmp_path)
    assert found.truth is not None
    assert found.truth.tolist() == list(right.values())


def write_class_folders(folder: Path, names: tuple[str, ...], count: int = 30) -> None:
    """The classifier's pictures, each in the folder of its class."""
    for name, label in write_pictures(folder, count).items():
        (folder / names[label]).mkdir(exist_ok=True)
        (folder / name).rename(folder / names[label] / name)


def test_a_folder_a_class_names_the_classes_and_judges_by_top_1(tmp_path: Path) -> None:
    names = ("a red", "b green", "c blue")
    write_class_folders(tmp_path / "photos", names)
    (tmp_path / "photos" / ".cache").mkdir()
    spec = with_data(classifier(), EvaluationData(data=tmp_path / "photos"))
    save_model(spec, tmp_path / "model")
    for one in (spec, load_model(tmp_path / "model")):
        assert one.outputs[0].classes == names
        assert one.evaluation is not None
        found = one.evaluation()
        assert (found.metric_name, len(found.names)) == ("top_k:logits", 30)
        assert found.truth is not None
        assert [names[label] for label in found.truth] == [name.partition("/")[0] for name in found.names]


def test_class_folders_have_the_declared_order(tmp_path: Path) -> None:
    names = ("red", "green", "blue")
    write_class_folders(tmp_path, names)
    spec = replace(classifier(), outputs=(Output("logits", role="logits", classes=names),))
    found = dataset.read_folder(spec, tmp_path)
    assert found.truth is not None
    assert {(name.partition("/")[0], int(label)) for name, label in zip(found.names, found.truth, strict=True)} == {
        ("red", 0),
        ("green", 1),
        ("blue", 2),
    }
    (tmp_path / "red").rename(tmp_path / "rot")
    with pytest.raises(DataError, match=r"rot' does not have the name of a class .* red, green, blue"):
        dataset.read_folder(spec, tmp_path)


def test_class_folders_that_are_not_all_classes_are_refused(tmp_path: Path) -> None:
    write_class_folders(tmp_path, ("red", "red", "blue"))
    with pytest.raises(DataError, match=r"'logits' has 3 classes, and 2 have a name \(blue, red\)"):
        with_data(classifier(), EvaluationData(data=tmp_path))


def test_archives_hold_rows_of_each_input(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    for number in range(6):
        audio = draw.uniform(-1, 1, (1, 6)).astype(np.float32)
        np.savez(tmp_path / f"{number}.npz", audio=audio, rate=np.array(16000 - number))
    np.savez(tmp_path / "more.npz", audio=np.zeros((2, 6), np.float32), rate=np.array([8000, 9000]), truth=np.ones(2))
    with pytest.raises(DataError, match=r"more.npz' and .* has 'truth'"):
        dataset.read_folder(speech(), tmp_path)
    np.savez(tmp_path / "more.npz", audio=np.zeros((2, 6), np.float32), rate=np.array([8000, 9000]))
    found = dataset.read_folder(speech(), tmp_path)
    assert found.names == ("0", "1", "2", "3", "4", "5", "more 0", "more 1")
    assert found.inputs["rate"].tolist() == [16000, 15999, 15998, 15997, 15996, 15995, 8000, 9000]


AUDIO, RATE = np.zeros((7, 6), np.float32), np.full(7, 8000)


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"audio": AUDIO}, "has no array 'rate'. Arrays: audio, rate, and 'truth'"),
        ({"audi": AUDIO, "rate": RATE}, "mean 'audio'"),
        ({"audio": AUDIO[:, :5], "rate": RATE}, "has the shape [7, 5], not [n, 6]"),
        ({"audio": AUDIO[0], "rate": RATE}, "has the shape [6], not [n, 6]"),
        ({"audio": AUDIO.astype(np.float64), "rate": RATE}, "is float64, and 'speech' takes float32"),
        ({"audio": AUDIO, "rate": RATE[:3]}, "3 rows of 'rate' and 7 of 'audio'"),
        ({"audio": AUDIO * np.nan, "rate": RATE}, "sample 'a 0' has a NaN or Inf in 'audio'"),
        ({"audio": AUDIO[:0], "rate": RATE[:0]}, "has the shape [0, 6]"),
        ({"audio": np.array(["a"]), "rate": RATE}, "arrays of numbers"),
        ({"audio": np.array([{}]), "rate": RATE}, "cannot be read"),
        ({"audio": AUDIO, "rate": RATE}, "has 1 different inputs. At least 6"),  # all alike
        (
            {"audio": np.eye(7, 6, dtype=np.float32), "rate": RATE * 6},
            "the data has 48000 for 'rate'",
        ),
    ],
)
def test_an_archive_that_does_not_fit_is_one_sentence(arrays: dict[str, Array], sentence: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **arrays)  # type: ignore[arg-type]  # NumPy's stubs want a flag first
    with pytest.raises(DataError) as error:
        with_data(speech(), EvaluationData(data=tmp_path))
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_a_range_that_nobody_says_is_that_of_the_data(tmp_path: Path) -> None:
    """An integer scalar of a plain module would else be drawn from 0 and 1."""
    rows = np.arange(90).reshape(15, 6)
    np.savez(tmp_path / "a.npz", x=rows)
    facts = ModelFacts(inputs=["x:shape=1,6,dtype=int64"])
    spec = with_data(resolve_model("tests.models:plain", facts=facts), EvaluationData(data=tmp_path))
    assert (spec.inputs[0].low, spec.inputs[0].high) == (0.0, 89.0)
    save_model(spec, tmp_path / "model")
    assert load_model(tmp_path / "model").inputs == spec.inputs
    with pytest.raises(DataError, match="the data has 89 for 'x', whose range is 0 to 9"):
        with_data(
            resolve_model("tests.models:plain", facts=ModelFacts(inputs=["x:shape=1,6,dtype=int64,range=0..9"])),
            EvaluationData(data=tmp_path),
        )


def test_an_examples_rows_count_where_there_are_enough() -> None:
    net = torch.nn.Linear(4, 2).eval()
    rows = torch.rand(ENOUGH + 10, 4, generator=torch.Generator().manual_seed(1))
    for example, sets in (
        (rows, {"evaluation", "calibration"}),
        (rows[: ENOUGH - 1], set()),
        (rows[:1].expand(90, 4), set()),
    ):
        spec = with_data(resolve_model(net, example), EvaluationData(), example)
        assert spec.brought == sets
    spec = with_data(resolve_model(net, rows), EvaluationData(), rows)
    assert spec.evaluation is not None
    samples = calibration_of(spec, 300)
    assert samples is not None
    assert (len(spec.evaluation().names), len(samples.names)) == (16, 64)
    mine = EvaluationSet({"input": rows[:1].numpy()}, ("mine",))
    assert with_data(resolve_model(net, rows), EvaluationData(evaluation=mine), rows).brought == {"evaluation"}


@pytest.mark.parametrize(
    ("beside", "error", "sentence"),
    [
        (
            EvaluationData(metric="top_k:logits"),
            UsageError,
            "the metric 'top_k:logits' needs a folder",
        ),
        (
            EvaluationData(data="pictures", metric="top_k:logits"),
            DataError,
            "the metric 'top_k:logits' needs the truth",
        ),
        (EvaluationData(data="pictures", metric="topk:logits"), UsageError, "mean 'top_k'"),
        (
            EvaluationData(data="pictures", metric="top_k:logit"),
            UsageError,
            "mean 'logits'",
        ),
        (EvaluationData(data="pictures", metric="top_k:logits,k=x"), UsageError, r"does not fit top_k\(output, k\)"),
        (EvaluationData(data="nowhere"), DataError, "the folder 'nowhere' does not exist"),
        (EvaluationData(data="deep"), DataError, "has no images .* 'cats'"),
        (EvaluationData(data="both"), DataError, "has pictures and .npz files"),
        (EvaluationData(data="labelled"), DataError, "--metric top_k:logits"),
        (
            EvaluationData(data="pictures", calibration="pictures"),
            DataError,
            "has 10 different inputs. At least 64",
        ),
        (EvaluationData(data="pictures", evaluation=EvaluationSet({}, ())), UsageError, "data and evaluation"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    beside: EvaluationData, error: type[EdgekitError], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_labels(tmp_path, {})
    for name in ("pictures", "both", "labelled"):
        right = write_pictures(tmp_path / name, 10, size=5)
    (tmp_path / "both" / "a.npz").touch()
    (tmp_path / "deep" / "cats").mkdir(parents=True)
    write_labels(tmp_path / "labelled", dict(right))
    with pytest.raises(error, match=sentence):
        with_data(classifier(), beside, None)


def test_words_of_an_image_are_kept_by_its_data(tmp_path: Path) -> None:
    """Pictures go in by the range that was said; a mean is computed inside, and not here."""
    write_pictures(tmp_path, 8)
    facts = ModelFacts(inputs=["x:shape=1,3,8,8,kind=image,range=-1..1,mean=0.5"])
    spec = with_data(resolve_model("tests.models:plain", facts=facts), EvaluationData(data=tmp_path))
    assert spec.evaluation is not None
    pixels = np.asarray(Image.open(tmp_path / "002.png")).transpose(2, 0, 1)
    np.testing.assert_allclose(spec.evaluation().inputs["x"][2], pixels / 127.5 - 1, atol=1e-6)
