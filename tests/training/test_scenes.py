import hashlib

import torch

from training import photographs, questions, scenes
from training.background import soften

RENDERED = scenes.render(3_000_000_000 + torch.arange(48))


def test_the_bytes_are_these_on_every_platform() -> None:
    # The same on an H200 (torch 2.11, CUDA 13.0) and on a CPU (torch 2.13).
    digest = hashlib.sha256(RENDERED.images.numpy().tobytes()).hexdigest()
    assert digest == "cfeb9553552a91035cc00be746ff773c52eaeaaf702817d0bac8a1fee1dc0493"


def test_scenes_on_photographs_are_these_bytes_on_every_platform() -> None:
    # The same on an H100 (torch 2.11, CUDA 13.0) and on a CPU (torch 2.13).
    bank = photographs.held_out("evaluation")
    for frame, count, expected in (
        (scenes.Frame(), 24, "615638df4f0d78be"),
        (scenes.Frame(320, 512), 4, "a13c06138a0b7979"),
    ):
        seeds = 3_000_000_000 + torch.arange(count)
        rendered = scenes.render(seeds, frame, bank, 55)
        asked = questions.ask(rendered, seeds, 8)
        parts = (rendered.images, asked.truth, asked.concepts)
        digest = hashlib.sha256(b"".join(part.numpy().tobytes() for part in parts)).hexdigest()
        assert digest[:16] == expected


def test_a_scene_on_a_photograph_does_not_depend_on_its_batch() -> None:
    bank = photographs.held_out("evaluation")
    seeds = torch.arange(40, 52)
    whole, alone = scenes.render(seeds, bank=bank), scenes.render(seeds[7:8], bank=bank)
    assert torch.equal(whole.images[7], alone.images[0])
    assert torch.equal(whole.visible[7], alone.visible[0])


def test_frames_of_other_sizes_hold_more_or_fewer_objects() -> None:
    for frame, most in ((scenes.Frame(96, 96), 5), (scenes.Frame(320, 512), 22)):
        rendered = scenes.render(torch.arange(4), frame)
        assert rendered.images.shape == (4, 3, frame.height, frame.width)
        assert rendered.visible.shape == (4, most, frame.height * frame.width // 256)
        assert int(rendered.visible.sum(1).max()) <= scenes.CELL**2


def test_a_scene_does_not_depend_on_its_batch() -> None:
    alone = scenes.render(torch.tensor([3_000_000_003]))
    assert torch.equal(alone.images[0], RENDERED.images[3])
    assert torch.equal(alone.visible[0], RENDERED.visible[3])
    assert torch.equal(alone.attributes[0], RENDERED.attributes[3])


def test_scenes_hold_three_to_twelve_objects_with_known_attributes() -> None:
    exists = RENDERED.attributes[:, :, 0] >= 0
    counts = exists.sum(1)
    assert int(counts.min()) >= scenes.FEWEST_OBJECTS
    assert int(counts.max()) <= scenes.MOST_OBJECTS
    assert bool((RENDERED.attributes[~exists] == -1).all())
    for number, values in enumerate(scenes.ATTRIBUTES):
        kept = RENDERED.attributes[:, :, number][exists]
        assert int(kept.min()) >= 0
        assert int(kept.max()) < len(values)


def test_no_pixel_shows_two_objects_and_absent_ones_show_nowhere() -> None:
    assert int(RENDERED.visible.sum(1).max()) <= scenes.CELL**2
    exists = RENDERED.attributes[:, :, 0] >= 0
    assert int(RENDERED.visible[~exists].sum()) == 0
    assert bool((RENDERED.visible.sum(2)[exists] > 0).float().mean() > 0.9)


def test_truth_counts_the_pixels_of_a_patch() -> None:
    owner = torch.zeros(1, scenes.EDGE, scenes.EDGE, dtype=torch.int32)
    owner[0, 40:75, 90:130] = 1
    owner[0, 60:90, 120:140] = 2
    counts = torch.stack([scenes._count(owner == slot) for slot in (1, 2)], 1)[0].view(2, 14, 14)
    # The second object covers rows 60-74 of columns 120-129 of the first.
    assert int(counts[0].sum()) == 35 * 40 - 15 * 10
    assert int(counts[1].sum()) == 30 * 20
    assert int(counts[0, 3, 6]) == 16 * 16  # rows 48-63, columns 96-111
    assert int(counts[0, 2, 6]) == 8 * 16  # rows 40-47
    outline = scenes._count(scenes._outline(owner))[0].view(14, 14)
    assert int(outline[3, 6]) == 0
    assert int(outline[2, 6]) == 16
    assert int(outline.sum()) > 2 * (35 + 40)


def test_an_object_looks_as_its_attributes_say() -> None:
    """The median colour of a plain object's pixels is nearest to its own main tone, for nearly all of them."""
    tones = torch.tensor([tones[0] for tones in scenes.COLOURS.values()]).float()
    right = total = 0
    for scene in range(len(RENDERED.images)):
        pixels = RENDERED.images[scene].view(3, 14, 16, 14, 16).permute(1, 3, 0, 2, 4).reshape(196, 3, 256).float()
        for slot, (_, colour, texture, _) in enumerate(RENDERED.attributes[scene].tolist()):
            patch = int(RENDERED.visible[scene, slot].argmax())
            if texture == 0 and int(RENDERED.visible[scene, slot, patch]) > 240:
                distance = (pixels[patch].median(1).values - tones).abs().sum(1)
                total, right = total + 1, right + int(int(distance.argmin()) == colour)
    assert total >= 5
    assert right / total > 0.75


def test_neighbouring_seeds_give_different_scenes() -> None:
    flat = RENDERED.images.flatten(1).float()
    for row in range(1, len(flat)):
        assert float((flat[row] - flat[row - 1]).abs().mean()) > 10


def test_softening_keeps_the_mean_and_removes_detail() -> None:
    noise = torch.randint(0, 256, (1, 3, 96, 96), generator=torch.Generator().manual_seed(1)).to(torch.int32)
    soft = soften(noise, 4)[:, :, 20:-20, 20:-20].float()
    assert abs(float(soft.mean()) - float(noise.float().mean())) < 4
    assert float(soft.std()) < 0.15 * float(noise.float().std())
