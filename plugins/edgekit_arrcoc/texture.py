"""Texture: features of each patch of an image, before any query.

There are two families. `PatchEncoder` is a vision transformer (Dosovitskiy et al., 2021,
https://arxiv.org/abs/2010.11929) in its pre-norm form, for arr-coc-tiny and arr-coc-base. `texture_array` makes the 13
channels that ARR-COC 0.1 reads.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PATCH = 16
"""Edge of a patch in pixels."""

GRID = 14
"""Edge of the learned position grid in patches: 224 / 16. Other sizes are interpolated from it."""

ARRAY_SIZE = 512
"""Edge in pixels to which ARR-COC 0.1 resizes every image."""

ARRAY_GRID = 32
"""Edge of ARR-COC 0.1's texture array, in cells."""

RANGE_FLOOR = 1e-2
"""Smallest divisor of min-max scaling: a map with a smaller range counts as flat, so its rounding noise stays small."""


class PatchEncoder(nn.Module):
    """Vision transformer over patches of 16 x 16 pixels.

    Positions are always interpolated, even at 224 x 224 where that changes nothing: capture would bake in a branch
    on the shape.

    Args:
        width: Features of a patch, D.
        heads: Attention heads.
        depth: Transformer blocks.
    """

    def __init__(self, width: int, heads: int, depth: int) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, PATCH, PATCH)
        self.position = nn.Parameter(torch.zeros(1, width, GRID, GRID))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)

    def forward(self, images: Tensor) -> tuple[Tensor, int, int]:
        """Encode images.

        Args:
            images: [B, 3, H, W], RGB in [0, 1]; H and W multiples of 16.

        Returns:
            Features [B, N, D], row-major, and the patch grid's rows H / 16 and columns W / 16.
        """
        # [0, 1] -> [-1, 1], so that a model takes pixels as on every platform.
        grid = self.patch(images * 2.0 - 1.0)
        rows, columns = grid.shape[2], grid.shape[3]
        position = F.interpolate(self.position, size=[rows, columns], mode="bilinear", align_corners=False)
        features = grid.flatten(2).transpose(1, 2) + position.flatten(2).transpose(1, 2)
        for block in self.blocks:
            features = block(features)
        return self.norm(features), rows, columns


class Block(nn.Module):
    """Pre-norm transformer block: attention, then an MLP four times as wide with GELU (erf)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, features: Tensor) -> Tensor:
        """Map [B, N, D] to [B, N, D]."""
        features = features + self.attention(self.attention_norm(features))
        mixed: Tensor = features + self.mlp(self.mlp_norm(features))
        return mixed


class Attention(nn.Module):
    """Multi-head self-attention with packed query, key and value weights."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.size = width // heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, features: Tensor) -> Tensor:
        """Map [B, N, D] to [B, N, D]."""
        batch, count = features.shape[0], features.shape[1]
        packed = self.qkv(features).reshape(batch, count, 3, self.heads, self.size).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(packed[0], packed[1], packed[2])
        merged: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, count, self.heads * self.size))
        return merged


def texture_array(images: Tensor) -> Tensor:
    """Return the 13 channels of ARR-COC 0.1, all in [0, 1].

    0-2 RGB, 3 L*, 4 a*, 5-7 Sobel x, y and magnitude of the grey image (each min-max scaled per image), 8 y, 9 x,
    10 distance from the centre, 11 = channel 7, 12 = channel 3.

    Args:
        images: [B, 3, H, W], RGB in [0, 1], any size.

    Returns:
        [B, 13, 32, 32].
    """
    large = F.interpolate(images, size=[ARRAY_SIZE, ARRAY_SIZE], mode="bilinear", align_corners=False)
    # L* in [0, 100] and a* of sRGB images under D65 (IEC 61966-2-1 and CIE 15), each [B, 1, h, w].
    linear = torch.where(large > 0.04045, ((large.clamp(min=0.04045) + 0.055) / 1.055) ** 2.4, large / 12.92)
    weights = [[0.412453 / 0.95047, 0.357580 / 0.95047, 0.180423 / 0.95047], [0.212671, 0.715160, 0.072169]]
    matrix = torch.tensor(weights, dtype=large.dtype, device=large.device)
    xy = (matrix.view(1, 2, 3, 1, 1) * linear.unsqueeze(1)).sum(2)
    f = torch.where(xy > 0.008856, xy.clamp(min=0.008856) ** (1.0 / 3.0), 7.787 * xy + 4.0 / 29.0)
    lightness, green_red = 116.0 * f[:, 1:] - 16.0, 500.0 * (f[:, :1] - f[:, 1:])
    luma = torch.tensor([0.299, 0.587, 0.114], dtype=images.dtype, device=images.device)
    gx, gy = sobel((large * luma.view(1, 3, 1, 1)).sum(1, keepdim=True))
    edges = torch.cat([gx, gy, torch.sqrt(gx * gx + gy * gy + 1e-8)], 1)
    maps = torch.cat([large, lightness / 100.0, (green_red + 128.0) / 255.0, edges], 1)
    maps = F.interpolate(maps, size=[ARRAY_GRID, ARRAY_GRID], mode="bilinear", align_corners=False)
    scaled = torch.cat([maps[:, :5], minmax(maps[:, 5:], (2, 3))], 1)
    line = torch.linspace(0.0, 1.0, ARRAY_GRID, dtype=images.dtype, device=images.device)
    y, x = torch.meshgrid(line, line, indexing="ij")
    distance = torch.sqrt((y - 0.5) ** 2 + (x - 0.5) ** 2)
    places = torch.stack([y, x, distance / distance.max()]).expand(images.shape[0], -1, -1, -1)
    return torch.cat([scaled, places, scaled[:, 7:8], scaled[:, 3:4]], 1)


def minmax(values: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Scale to [0, 1] per image over some axes, dividing by at least `RANGE_FLOOR`: a flat map becomes zero."""
    low = values.amin(axes, keepdim=True)
    return (values - low) / (values.amax(axes, keepdim=True) - low).clamp(min=RANGE_FLOOR)


def sobel(maps: Tensor) -> tuple[Tensor, Tensor]:
    """Return Sobel x and y, divided by 8, with repeated borders so that they are not edges.

    Args:
        maps: [B, 1, h, w].

    Returns:
        Two tensors [B, 1, h, w].
    """
    wide = torch.cat([maps[..., :1], maps, maps[..., -1:]], -1)
    padded = torch.cat([wide[..., :1, :], wide, wide[..., -1:, :]], -2)
    down = padded[..., :-2, :] + 2.0 * padded[..., 1:-1, :] + padded[..., 2:, :]
    across = padded[..., :-2] + 2.0 * padded[..., 1:-1] + padded[..., 2:]
    return (down[..., 2:] - down[..., :-2]) / 8.0, (across[..., 2:, :] - across[..., :-2, :]) / 8.0
