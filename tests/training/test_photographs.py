import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from edgekit.errors import CheckpointError, UsageError
from edgekit_arrcoc.counter_rng import Chance
from training import gather, photographs


def test_a_view_interpolates_and_mirrors() -> None:
    ramp = torch.arange(64, dtype=torch.uint8).mul(4).view(1, 1, 1, 64).expand(1, 3, 64, 64).contiguous()
    zero, one = torch.zeros(1, dtype=torch.int64), torch.tensor([256])
    made = photographs.view(ramp, zero, one, zero, zero, torch.tensor([False]), 32, 32)
    # A step of 63 * 256 // 32 = 504 / 256 pixels.
    expected = (torch.arange(32) * 504 * 4 + 128) // 256
    assert torch.equal(made[0, 0, 5], expected.to(torch.int32))
    mirrored = photographs.view(ramp, zero, one, zero, zero, torch.tensor([True]), 32, 32)
    assert torch.equal(mirrored.flip(3), made)


def test_cuts_stay_inside_the_photograph() -> None:
    bank = photographs.held_out("calibration")
    for high, wide in ((328, 328), (616, 616), (200, 424)):
        made = photographs.cut(Chance(torch.arange(12)), bank, high, wide)
        assert made.shape == (12, 3, high, wide)
        assert 0 <= int(made.min()) <= int(made.max()) <= 255


def test_damaged_photographs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="photographs"):
        photographs.held_out("evaluation", tmp_path)


def test_a_bank_is_read_and_a_missing_one_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"training\.gather"):
        gather.load(tmp_path)
    Image.new("RGB", (8, 8), (10, 20, 30)).save(tmp_path / "0000.png")
    (tmp_path / "bank.json").write_text(json.dumps({"photographs": [{"file": "0000.png", "source": "here"}]}))
    assert gather.load(tmp_path).shape == (1, 3, 8, 8)
    with pytest.raises(UsageError, match="opencv-doc"):
        gather.gather(tmp_path, tmp_path / "bank")


def test_drawings_and_copies_are_no_new_photographs(tmp_path: Path) -> None:
    noise = np.random.default_rng(1).integers(0, 256, (30, 50, 3), np.uint8)
    photograph = Image.fromarray(noise).resize((500, 300), Image.Resampling.BICUBIC)
    photograph.save(tmp_path / "a.png")
    photograph.save(tmp_path / "b.png")
    drawing = Image.new("RGB", (300, 300), "white")
    drawing.paste((255, 0, 0), (50, 50, 200, 200))
    drawing.save(tmp_path / "c.png")
    Image.fromarray(noise).save(tmp_path / "small.png")
    found = gather.Gathered()
    for path in sorted(tmp_path.iterdir()):
        gather._look(path, path.name, found)
    assert found.names == ["a.png", "a.png"]  # wide: a square from each end
    assert all(square.size == (448, 448) for square in found.squares)
