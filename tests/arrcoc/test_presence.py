from pathlib import Path

import numpy as np
import pytest

from edgekit.arrcoc import presence, presets
from edgekit.errors import CheckpointError

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
    assert presence.threshold((relevance, TRUTH)) == pytest.approx(0.6, abs=0.01)


def test_a_threshold_is_read_as_it_was_written(tmp_path: Path) -> None:
    presence.save(0.315, tmp_path)
    assert presence.load(tmp_path) == 0.315
    assert 0.0 < presence.load(presets.HOME) < 1.0
    assert presets.arr_coc_tiny().files[presence.FILE] == presets.HOME / presence.FILE
    assert presence.FILE not in presets.arr_coc_base().files


@pytest.mark.parametrize("text", ["", "{}", '{"threshold": "x"}', '{"threshold": 1.5}'])
def test_a_damaged_threshold_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / presence.FILE).write_text(text)
    with pytest.raises(CheckpointError, match="threshold|cannot be read"):
        presence.load(tmp_path)
