import numpy as np
import torch

from edgekit_arrcoc import texture

IMAGES = torch.rand(2, 3, 224, 224, generator=torch.Generator().manual_seed(3))


def test_the_thirteen_channels() -> None:
    # Smooth at first, so that sampling 512 x 512 down to 32 x 32 keeps what it looks at.
    images = torch.nn.functional.interpolate(IMAGES[:, :, :8, :8], size=[512, 512], mode="bicubic").clamp(0, 1)
    made = texture.texture_array(images)
    assert made.shape == (2, 13, 32, 32)
    assert float(made.min()) >= 0.0
    assert float(made.max()) <= 1.0
    small = torch.nn.functional.interpolate(images, size=[32, 32], mode="bilinear", align_corners=False)
    assert torch.allclose(made[:, :3], small, atol=1e-6)
    for channel in (5, 6, 7):
        assert torch.allclose(made[:, channel].amin((1, 2)), torch.zeros(2), atol=1e-6)
        assert torch.allclose(made[:, channel].amax((1, 2)), torch.ones(2), atol=1e-6)
    assert torch.allclose(made[0, 8, :, 5], torch.linspace(0, 1, 32))
    assert torch.allclose(made[0, 9, 5], torch.linspace(0, 1, 32))
    assert float(made[0, 10, 0, 0]) == 1.0
    assert float(made[0, 10, 16, 16]) < 0.05
    assert torch.equal(made[:, 11], made[:, 7])
    assert torch.equal(made[:, 12], made[:, 3])


def test_lab_of_known_colours() -> None:
    # L* and a* of sRGB white, red, lime and blue under D65 (Lindbloom's calculator, two decimals).
    known = {(1, 1, 1): (100.0, 0.0), (1, 0, 0): (53.24, 80.09), (0, 1, 0): (87.73, -86.18), (0, 0, 1): (32.30, 79.19)}
    for colour, (lightness, green_red) in known.items():
        made = texture.texture_array(torch.tensor(colour).float().view(1, 3, 1, 1).expand(-1, -1, 64, 64))
        assert abs(float(made[0, 3, 9, 9]) * 100 - lightness) < 0.05
        assert abs(float(made[0, 4, 9, 9]) * 255 - 128 - green_red) < 0.1


def test_sobel_sees_no_edge_at_the_border_and_a_step_in_the_middle() -> None:
    step = torch.zeros(1, 1, 6, 6)
    step[..., 3:] = 1.0
    gx, gy = texture.sobel(step)
    assert np.allclose(gx[0, 0].numpy(), np.tile([0, 0, 0.5, 0.5, 0, 0], (6, 1)))
    assert float(gy.abs().max()) == 0.0


def test_minmax_keeps_a_nearly_flat_map_nearly_flat() -> None:
    flat = 0.7 + 1e-7 * torch.rand(1, 1024)
    assert float(texture.minmax(flat, (1,)).max()) < 1e-4
    wide = torch.rand(1, 1024)
    assert float(texture.minmax(wide, (1,)).max()) == 1.0


def test_positions_are_those_learned_at_the_learned_size() -> None:
    encoder = texture.PatchEncoder(12, 2, 0)
    torch.nn.init.normal_(encoder.position)
    images = torch.rand(1, 3, 224, 224)
    features, rows, columns = encoder(images)
    plain = encoder.norm((encoder.patch(images * 2 - 1) + encoder.position).flatten(2).transpose(1, 2))
    assert (rows, columns) == (14, 14)
    assert torch.allclose(features, plain, atol=1e-6)
