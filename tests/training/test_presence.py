import json
from pathlib import Path

import numpy as np
import pytest
import torch

from edgekit.errors import CheckpointError
from edgekit.runtime.eager import EagerRuntime
from edgekit_arrcoc import presets, queries
from edgekit_arrcoc.queries import ATTRIBUTES
from training import photographs, presence, sets
from training.scenes import CELL

TRUTH = np.array([[1.0, 0.5], [0.2, 0.0], [0.0, 0.0], [0.0, 0.0], [0.6, 0.0]])
ANSWER = np.array([0, 0, 1, 2, 0])


def test_rates_leave_out_what_is_hardly_in_sight() -> None:
    relevance = np.array([[0.9, 0.1], [0.0, 0.0], [0.1, 0.2], [0.1, 0.7], [0.4, 0.3]])
    found = presence.measure(relevance, TRUTH, ANSWER, 0.5)
    assert (found.answerable, found.unanswerable) == (2, 2)
    assert (found.misses, found.false_alarms, found.absent, found.hard) == (0.5, 0.5, 0.0, 1.0)
    assert found.auroc == pytest.approx(0.75)


def test_the_threshold_is_in_the_middle_of_the_gap() -> None:
    relevance = np.array([[0.8, 0.1], [0.5, 0.0], [0.1, 0.2], [0.1, 0.4], [0.9, 0.3]])
    assert presence.threshold((relevance, TRUTH, 0.02)) == pytest.approx(0.6, abs=0.01)


def test_the_threshold_gives_way_where_the_goal_is_wider() -> None:
    """Unanswered queries of one set reach 0.6, and an answered one of the other only 0.4."""
    high = np.array([[0.9, 0.0], [0.0, 0.0], [0.6, 0.0], [0.5, 0.0], [0.9, 0.0]])
    low = np.array([[0.4, 0.0], [0.0, 0.0], [0.2, 0.0], [0.1, 0.0], [0.9, 0.0]])
    assert presence.threshold((high, TRUTH, 0.01), (low, TRUTH, 0.1)) > 0.6
    assert presence.threshold((high, TRUTH, 0.1), (low, TRUTH, 0.01)) <= 0.4


def test_a_threshold_is_read_as_it_was_written(tmp_path: Path) -> None:
    presence.save(0.315, tmp_path)
    assert presence.load(tmp_path) == 0.315
    assert 0.0 < presence.load(presets.HOME) < 1.0
    assert presets.arr_coc_tiny().files[presets.PRESENCE] == presets.HOME / presets.PRESENCE
    assert presets.PRESENCE not in presets.arr_coc_base().files


@pytest.mark.parametrize("text", ["", "{}", '{"threshold": "x"}', '{"threshold": 1.5}'])
def test_a_damaged_threshold_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / presets.PRESENCE).write_text(text)
    with pytest.raises(CheckpointError, match=r"threshold|cannot be read"):
        presence.load(tmp_path)


PAGE = "red, yellow, cyan, blue, green, circle, star, heart, ring, yellow star, blue square, striped, small green"


def test_what_nothing_answers_looks_like_no_answer_on_the_samples_of_the_page() -> None:
    """Each of the first eight scenes with each of the queries; truth comes from the scenes, drawn again."""
    records = json.loads((presets.HOME / "evaluation" / "evaluation.json").read_text())["images"]
    shown = [one for one in records if one["sort"] != "photograph" and " " in one["query"]][:8]
    bank, spec, vocabulary = photographs.held_out("evaluation"), presets.arr_coc_tiny(), queries.vocabulary()
    known = EagerRuntime(spec)
    highest, seen = [], []
    for record in shown:
        sort = sets.SORTS.index(record["sort"])
        number = int(record["seed"]) - sets.seed(sort, 0)
        scene, _, _ = sets.scene(sort, number, bank)
        for query in PAGE.split(", "):
            fits = [
                attributes[0] >= 0
                and all(word in {v[a] for v, a in zip(ATTRIBUTES, attributes, strict=True)} for word in query.split())
                for attributes in scene.attributes[0].tolist()
            ]
            seen.append(float(scene.visible[0][torch.tensor(fits)].sum()) / CELL**2)
            images = scene.images.to(torch.float32).numpy() / np.float32(255)
            found = known.run({"images": images, "queries": vocabulary.encode(query)[None]})
            highest.append(float(found["relevance"].max()))
    nothing, there = np.array(seen) == 0, np.array(seen) > presence.SEEN
    reached = np.array(highest) >= presence.load(presets.HOME)
    assert nothing.sum() >= 40
    assert reached[nothing].mean() <= 0.05
    assert reached[there].mean() >= 0.9
    assert there.sum() >= 20
