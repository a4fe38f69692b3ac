import io

import numpy as np
import torch
from PIL import Image

from edgekit_arrcoc.counter_rng import Chance
from training import exposure, photographs

PICTURE = photographs.held_out("calibration")[:1, :, 100:324, 100:324]


def test_jpeg_loses_what_a_codec_loses() -> None:
    for quality in (40, 75, 90):
        ours = exposure.jpeg(PICTURE.to(torch.int32), torch.tensor([quality]))[0].permute(1, 2, 0).numpy()
        stream = io.BytesIO()
        Image.fromarray(PICTURE[0].permute(1, 2, 0).numpy()).save(stream, "JPEG", quality=quality, subsampling=0)
        theirs = np.asarray(Image.open(stream)).astype(int)
        exact = PICTURE[0].permute(1, 2, 0).numpy().astype(int)
        lost, expected = np.abs(ours - exact).mean(), np.abs(theirs - exact).mean()
        assert 0.5 * expected < lost < 1.5 * expected
        assert np.abs(ours - theirs).mean() < 0.6 * expected + 1.0


def test_a_grey_image_has_no_colour_and_a_kept_one_is_unchanged() -> None:
    images = PICTURE.to(torch.int32).expand(2, -1, -1, -1)
    grey = torch.tensor([True, False])
    made = exposure.tone(Chance(torch.arange(2)), images, grey, contrast=0, level=0, cast=100, least=100)
    assert torch.equal(made[0, 0], made[0, 2])
    kept = exposure.tone(Chance(torch.arange(2)), images, ~grey, contrast=0, level=0, cast=0, least=100)
    assert torch.equal(kept[0], images[0])
