import itertools
import json

import numpy as np
import torch

from edgekit_arrcoc import datasets, presets, queries
from training import photographs, questions, sets

EVALUATION, CALIBRATION = presets.HOME / "evaluation", presets.HOME / "calibration"


def test_the_committed_images_are_made_again_bit_for_bit() -> None:
    record = json.loads((EVALUATION / "evaluation.json").read_text())["images"]
    truth = np.load(EVALUATION / "truth.npy")
    bank = photographs.held_out("evaluation")
    for row in (0, 1, 4, 9, 60, 100, len(record) - 1):
        one = record[row]
        sort = sets.SORTS.index(one["sort"])
        pixels = datasets.read_picture(EVALUATION / one["file"])
        if sort == 2:
            made = sets.photograph(torch.tensor([one["seed"]]), bank)[0]
            assert np.isnan(truth[row]).all()
        else:
            number = one["seed"] - sets.seed(sort, 0)
            rendered, asked, query = sets.scene(sort, number, bank)
            made = rendered.images[0]
            assert one["query"] == questions.describe(asked.concepts[0, query])
            assert one["answer"] == questions.ANSWERS[int(asked.answer[0, query])]
            assert np.array_equal(truth[row], asked.truth[0, query].numpy())
        assert np.array_equal(pixels, made.permute(1, 2, 0).numpy())


def test_the_committed_calibration_set_is_made_again_bit_for_bit() -> None:
    record = json.loads((CALIBRATION / "calibration.json").read_text())["images"]
    assert len(record) == datasets.CALIBRATION_PICTURES
    pictures, texts = sets.calibration_pictures(18)
    assert texts == [one["query"] for one in record[:18]]
    committed = [datasets.read_picture(CALIBRATION / one["file"]) for one in record[:18]]
    assert np.array_equal(np.stack(committed).transpose(0, 3, 1, 2), pictures)


def test_evaluation_and_calibration_share_no_photograph() -> None:
    record = json.loads(photographs.SOURCES.read_text())["photographs"]
    assert {one["use"] for one in record} == set(photographs.USES)
    assert len({one["file"] for one in record}) == len(record)
    assert all(one["licence"].startswith(("CC0-1.0", "CC-BY-")) and one["author"] for one in record)


def test_the_sets_share_no_seed() -> None:
    starts = sorted((sets.TUNING, sets.HELD_OUT, sets.CALIBRATION, sets.EVALUATION))
    assert starts[0] >= sets.TRAINING
    assert min(late - early for early, late in itertools.pairwise(starts)) >= 2**28
    assert sets.EVALUATION + 2**20 < 2**32


def test_what_is_drawn_is_what_queries_name() -> None:
    from training.drawing import SHAPES, TEXTURES
    from training.objects import COLOURS, SIZES

    assert (tuple(SIZES), tuple(COLOURS), tuple(TEXTURES), tuple(SHAPES)) == queries.ATTRIBUTES
