import torch

from edgekit_arrcoc.queries import ATTRIBUTES
from training import flat, objects
from training.objects import SIZES, Frame
from training.scenes import CELL

SEEDS = torch.arange(500, 516)


def test_a_picture_follows_from_its_seed_alone() -> None:
    together, alone = flat.render(SEEDS), flat.render(SEEDS[5:6])
    assert torch.equal(together.images[5:6], alone.images)
    assert torch.equal(together.visible[5:6], alone.visible)


def test_truth_is_the_place_of_the_objects() -> None:
    made = flat.render(SEEDS)
    exists = made.attributes[:, :, 0] >= 0
    assert exists.any()
    assert not made.visible[~exists].any()
    assert int(made.visible.max()) == CELL**2
    covered = made.visible.sum(1)
    assert int(covered.max()) <= CELL**2
    # What no object covers is ground; where all of a patch is one flat object, its pixels hardly differ.
    assert exists.sum(1).max() <= flat.MOST


def test_sizes_are_those_of_scenes() -> None:
    made = flat.render(torch.arange(200, 232))
    area, size = made.area.float() * 32, made.attributes[:, :, 0]
    radius = area.sqrt() / 4
    for number, (low, high, _) in enumerate(SIZES.values()):
        chosen = radius[size == number]
        assert len(chosen)
        assert float(chosen.min()) >= low / 4 - 8
        assert number == len(SIZES) - 1 or float(chosen.max()) <= high / 4 + 8
    assert float(radius.max()) > 64  # as large as the picture


def test_every_colour_has_its_tones() -> None:
    assert tuple(objects.TONES) == ATTRIBUTES[1] == tuple(objects.COLOURS)


def test_other_sizes_have_as_many_patches_as_they_need() -> None:
    frame = Frame(96, 160)
    made = flat.render(SEEDS[:2], frame)
    assert made.images.shape == (2, 3, 96, 160)
    assert made.visible.shape == (2, frame.most, 60)
