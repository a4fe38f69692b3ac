import math

import pytest
import torch

from training import drawing
from training.objects import SIZES


def strokes(shape: int, texture: int = 0, radius: int = 100, angle: int = 0, period: int = 40) -> drawing.Strokes:
    return drawing.Strokes(
        *(torch.tensor([value], dtype=torch.int32) for value in (shape, texture, radius, angle, 0, period, 0))
    )


def test_no_table_entry_depends_on_how_a_platform_rounds_sines() -> None:
    exact = [4096 * math.sin(2 * math.pi * step / drawing.TURN) for step in range(drawing.TURN)]
    exact += [drawing.UNIT * math.sin(k * math.tau / n) for n in (3, 5) for k in range(n)]
    exact += [drawing.UNIT * math.cos(k * math.tau / n) for n in (3, 5) for k in range(n)]
    assert min(abs(abs(value - math.floor(value)) - 0.5) for value in exact) > 1e-6


@pytest.mark.parametrize("number", range(len(drawing.SHAPES)))
def test_every_shape_fits_its_window_at_every_angle(number: int) -> None:
    for _, radius, window in SIZES.values():
        for angle in range(0, 256, 16):
            alpha = drawing.stamp(strokes(number, radius=radius, angle=angle), window).alpha[0]
            border = torch.cat([alpha[0], alpha[-1], alpha[:, 0], alpha[:, -1]])
            assert int(border.sum()) == 0


def test_shapes_have_areas_of_their_own() -> None:
    areas = {
        name: float(drawing.stamp(strokes(number, radius=152), 88).alpha.sum()) / 4 / 38**2
        for number, name in enumerate(drawing.SHAPES)
    }
    assert areas["circle"] == pytest.approx(math.pi * (960 / 1024) ** 2, rel=0.01)
    assert areas["square"] == pytest.approx((2 * 780 / 1024) ** 2, rel=0.02)
    assert areas["ring"] == pytest.approx(math.pi * (1000**2 - 560**2) / 1024**2, rel=0.01)
    assert min(areas.values()) > 0.9


def test_a_quarter_turn_is_exact() -> None:
    upright = drawing.stamp(strokes(8), 88).alpha[0]
    turned = drawing.stamp(strokes(8, angle=64), 88).alpha[0]
    different = (torch.rot90(upright) != turned).float().mean(), (torch.rot90(upright, -1) != turned).float().mean()
    # Floor division is not symmetric about zero: single samples of the outline may differ, the shape does not.
    assert min(float(share) for share in different) < 0.02
    assert max(float(share) for share in different) > 0.05


@pytest.mark.parametrize("number", range(1, len(drawing.TEXTURES)))
def test_every_texture_but_plain_shows_both_tones(number: int) -> None:
    tone = drawing.stamp(strokes(1, texture=number), 88).tone[0, 22:66, 22:66]
    assert 0.2 < float(tone.float().mean()) / 4 < 0.8
    assert int(drawing.stamp(strokes(1), 88).tone.sum()) == 0
