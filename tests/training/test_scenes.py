import hashlib

import torch

from edgekit_arrcoc.queries import DRAWN
from training import photographs, questions, scenes

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
        parts = (rendered.images, asked.truth, asked.concepts[..., : len(DRAWN)].contiguous())
        digest = hashlib.sha256(b"".join(part.numpy().tobytes() for part in parts)).hexdigest()
        assert digest[:16] == expected


def test_a_scene_on_a_photograph_does_not_depend_on_its_batch() -> None:
    bank = photographs.held_out("evaluation")
    seeds = torch.arange(40, 52)
    whole, alone = scenes.render(seeds, bank=bank), scenes.render(seeds[7:8], bank=bank)
    assert torch.equal(whole.images[7], alone.images[0])
    assert torch.equal(whole.visible[7], alone.visible[0])
