"""Two detectors that `python -m training.detectors` trains on drawn scenes: one of cells and one of queries.

Both return few duplicates, so their suppression has little to do: `yolo` assigns each object to one cell (as YOLOv10
does), `detr` each to one query of a decoder (as RT-DETR does). Their ten classes are the shapes of `training.objects`.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

import edgekit.metrics
from edgekit import Axis, Detector, EvaluationSet, Input, ModelSpec
from edgekit_arrcoc.counter_rng import Chance
from edgekit_arrcoc.queries import ATTRIBUTES
from training.background import KINDS, backdrop
from training.objects import MARGIN, Frame, arrange, draw, paste, tones

SIDE = 160
"""Edge of a picture in pixels."""
CLASSES = len(ATTRIBUTES[3])
MOST = Frame(SIDE, SIDE).most
"""Objects that a picture holds at most."""
CLEAR = 0.35
"""Share of an object's window that is visible at least; other objects are not asked about."""
TRAINING, CALIBRATION, HELD_OUT = 1 << 24, 2 << 24, 3 << 24
"""Where the seeds of each set begin."""
THRESHOLD, OVERLAP, CANDIDATES = 0.05, 0.8, 40
"""Of the suppression: neither detector returns many duplicates."""
ROWS = 200
LEAST = 0.01
"""Scores below it are not ranked."""
WEIGHTS = Path(__file__).parent / "weights"


def scenes(first: int, count: int, device: str = "cpu") -> tuple[Tensor, Tensor]:
    """Draw pictures of objects on backgrounds.

    Args:
        first: Seed of the first picture; each has its own.
        count: Number of pictures.
        device: Where they are drawn; the pixels are the same everywhere.

    Returns:
        Pictures uint8 [count, 3, SIDE, SIDE], and objects int64 [count, MOST, 5]: class, left, top, right, bottom of
        the visible pixels. The class of padding is -1.
    """
    frame = Frame(SIDE, SIDE)
    chance = Chance(torch.arange(first, first + count, dtype=torch.int64, device=device))
    free, known = chance.below(256, 3, 3), tones(torch.device(device))[chance.below(len(ATTRIBUTES[1]), 3), 0]
    palette = torch.where(chance.bernoulli(40).view(-1, 1, 1), known, free).to(torch.int32)
    canvas = backdrop(chance, chance.below(len(KINDS)), palette, frame.canvas[0]).contiguous()
    things = arrange(chance, frame, None)
    owners = paste(canvas, draw(chance, things), chance.between(0, 18))[:, MARGIN:-MARGIN, MARGIN:-MARGIN]
    noise = chance.below(25, SIDE, SIDE).to(torch.int32).unsqueeze(1) - 12
    pictures = (canvas[:, :, MARGIN:-MARGIN, MARGIN:-MARGIN] + noise).clamp(0, 255).to(torch.uint8)
    objects = torch.full((count, MOST, 5), -1, dtype=torch.int64, device=device)
    for slot in range(MOST):
        pixels = owners == slot + 1
        across, down = pixels.any(1).long(), pixels.any(2).long()
        box = [across.argmax(1), down.argmax(1), SIDE - across.flip(1).argmax(1), SIDE - down.flip(1).argmax(1)]
        least = CLEAR * things.radius[:, slot] ** 2 / 16
        clear = (things.attributes[:, slot, 0] >= 0) & (pixels.sum((1, 2)) >= least.clamp(min=24))
        row = torch.stack([things.attributes[:, slot, 3], *box], 1)
        objects[:, slot] = torch.where(clear.unsqueeze(1), row, -1)
    return pictures, objects


class Convolution(nn.Sequential):
    """A convolution, a norm and SiLU."""

    def __init__(self, before: int, after: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> None:
        convolution = nn.Conv2d(before, after, kernel, stride, kernel // 2, groups=groups, bias=False)
        super().__init__(convolution, nn.BatchNorm2d(after, momentum=0.03), nn.SiLU())


class Stage(nn.Module):
    """Halves the size; then a part of the channels passes through residual blocks, whose results are all kept."""

    def __init__(self, before: int, after: int, blocks: int, stride: int = 2) -> None:
        super().__init__()
        self.down = Convolution(before, after, 3, stride) if stride == 2 else Convolution(before, after)
        half = after // 2
        self.blocks = nn.ModuleList(
            nn.Sequential(Convolution(half, half, 3), Convolution(half, half, 3)) for _ in range(blocks)
        )
        self.out = Convolution(half * (2 + blocks), after)

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.down(x).chunk(2, 1))
        for block in self.blocks:
            parts.append(parts[-1] + block(parts[-1]))
        return torch.as_tensor(self.out(torch.cat(parts, 1)))


class Backbone(nn.Module):
    """Pictures of [0, 1] -> features at strides 8, 16 and 32: 64, 128 and 160 channels."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(Convolution(3, 16, 3, 2), Stage(16, 32, 1))
        self.stages = nn.ModuleList([Stage(32, 64, 2), Stage(64, 128, 2), Stage(128, 160, 1)])

    def forward(self, images: Tensor) -> list[Tensor]:
        x, features = self.stem(images), []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        return features


class Neck(nn.Module):
    """Features of three strides, each mixed with its coarser and finer neighbours; 64 channels each."""

    def __init__(self) -> None:
        super().__init__()
        self.middle = Stage(128 + 160, 96, 1, 1)
        self.fine = Stage(64 + 96, 64, 1, 1)
        self.down = nn.ModuleList([Convolution(64, 64, 3, 2), Convolution(64, 64, 3, 2)])
        self.up = nn.ModuleList([Stage(64 + 96, 64, 1, 1), Stage(64 + 160, 64, 1, 1)])

    def forward(self, features: list[Tensor]) -> list[Tensor]:
        fine, middle, coarse = features
        middle = self.middle(torch.cat([middle, functional.interpolate(coarse, scale_factor=2.0)], 1))
        fine = self.fine(torch.cat([fine, functional.interpolate(middle, scale_factor=2.0)], 1))
        middle = self.up[0](torch.cat([self.down[0](fine), middle], 1))
        return [fine, middle, self.up[1](torch.cat([self.down[1](middle), coarse], 1))]


class Head(nn.Module):
    """Features of three strides -> four raw distances and the logits of the classes of each cell."""

    def __init__(self) -> None:
        super().__init__()
        self.boxes = nn.ModuleList(self.branch(4) for _ in range(3))
        self.classes = nn.ModuleList(self.branch(CLASSES) for _ in range(3))
        for branch in self.classes:
            nn.init.constant_(branch[-1].bias, -5.0)  # type: ignore[index]

    @staticmethod
    def branch(channels: int) -> nn.Sequential:
        """Return layers that end in so many channels."""
        return nn.Sequential(Convolution(64, 64, 3, groups=64), Convolution(64, 64), nn.Conv2d(64, channels, 1))

    def forward(self, features: list[Tensor]) -> tuple[Tensor, Tensor]:
        boxes = [branch(x).flatten(2) for branch, x in zip(self.boxes, features, strict=True)]
        classes = [branch(x).flatten(2) for branch, x in zip(self.classes, features, strict=True)]
        return torch.cat(boxes, 2).transpose(1, 2), torch.cat(classes, 2).transpose(1, 2)


class Yolo(nn.Module):
    """Pictures [batch, 3, SIDE, SIDE] -> boxes [batch, 525, 4] in pixels and scores [batch, 525, CLASSES].

    While it is trained, `several` teaches the features with several cells an object; it is not used afterwards.
    """

    def __init__(self) -> None:
        super().__init__()
        self.backbone, self.neck, self.head = Backbone(), Neck(), Head()
        self.several: Head | None = None
        places, strides = [], []
        for stride in (8, 16, 32):
            line = (torch.arange(SIDE // stride) + 0.5) * stride
            places.append(torch.stack([line.repeat(len(line)), line.repeat_interleave(len(line))], 1))
            strides.append(torch.full((len(line) ** 2, 1), float(stride)))
        self.register_buffer("places", torch.cat(places))
        self.register_buffer("strides", torch.cat(strides))

    def decode(self, raw: Tensor) -> Tensor:
        """Return boxes in pixels of the distances from each cell's middle."""
        distances = functional.softplus(raw) * self.get_buffer("strides")
        places = self.get_buffer("places")
        return torch.cat([places - distances[..., :2], places + distances[..., 2:]], -1)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        raw, logits = self.head(self.neck(self.backbone(images)))
        return self.decode(raw), torch.sigmoid(logits)


WIDTH, QUERIES, HEADS = 128, 40, 8


class Attention(nn.Module):
    """Attention of several heads."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        split = [
            layer(x).unflatten(2, (HEADS, WIDTH // HEADS)).transpose(1, 2)
            for layer, x in ((self.query, query), (self.key, key), (self.value, value))
        ]
        mixed = functional.scaled_dot_product_attention(*split)
        return torch.as_tensor(self.out(mixed.transpose(1, 2).flatten(2)))


class Layer(nn.Module):
    """Self-attention, attention to the picture if there is one, and two linear layers."""

    def __init__(self, crossed: bool) -> None:
        super().__init__()
        self.own, self.cross = Attention(), Attention() if crossed else None
        self.wide, self.narrow = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(3 if crossed else 2))

    def forward(self, x: Tensor, place: Tensor, memory: Tensor | None = None, where: Tensor | None = None) -> Tensor:
        x = self.norms[0](x + self.own(x + place, x + place, x))
        if self.cross is not None and memory is not None and where is not None:
            x = self.norms[2](x + self.cross(x + place, memory + where, memory))
        return torch.as_tensor(self.norms[1](x + self.narrow(functional.gelu(self.wide(x)))))


def waves(places: Tensor) -> Tensor:
    """Return WIDTH sines and cosines of places [..., 4] in 0 to 1."""
    rates = 2 * torch.pi * 2.0 ** torch.arange(WIDTH // 8, dtype=places.dtype, device=places.device).mul(0.4)
    angles = (places.unsqueeze(-1) * rates).flatten(-2)
    return torch.cat([angles.sin(), angles.cos()], -1)


class Detr(nn.Module):
    """Pictures [batch, 3, SIDE, SIDE] -> boxes [batch, QUERIES, 4] in pixels and scores [batch, QUERIES, CLASSES].

    The places of the picture that look most like objects are the decoder's first queries.
    """

    def __init__(self, layers: int = 3) -> None:
        super().__init__()
        self.backbone = Backbone()
        self.project = nn.ModuleList(nn.Conv2d(channels, WIDTH, 1) for channels in (64, 128, 160))
        self.encoder = Layer(crossed=False)
        self.layers = nn.ModuleList(Layer(crossed=True) for _ in range(layers))
        self.guess, self.score = Steps(), nn.Linear(WIDTH, CLASSES)
        self.boxes = nn.ModuleList(Steps() for _ in range(layers))
        self.classes = nn.ModuleList(nn.Linear(WIDTH, CLASSES) for _ in range(layers))
        for layer in (self.score, *self.classes):
            nn.init.constant_(layer.bias, -4.0)
        self.norm = nn.LayerNorm(WIDTH)
        places = []
        for stride, side in ((8, 0.1), (16, 0.2), (32, 0.4)):
            line = (torch.arange(SIDE // stride) + 0.5) * stride / SIDE
            middle = torch.stack([line.repeat(len(line)), line.repeat_interleave(len(line))], 1)
            places.append(torch.cat([middle, torch.full_like(middle, side)], 1))
        self.register_buffer("places", torch.cat(places))

    def stages(self, images: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return boxes (middle and sides, in 0 to 1) and logits of all places, and of the queries after each layer."""
        maps = [layer(x) for layer, x in zip(self.project, self.backbone(images), strict=True)]
        places = self.get_buffer("places")
        where = waves(places).unsqueeze(0)
        coarse = maps[2].flatten(2).transpose(1, 2)
        coarse = self.encoder(coarse, where[:, -coarse.shape[1] :])
        memory = self.norm(torch.cat([*(x.flatten(2).transpose(1, 2) for x in maps[:2]), coarse], 1))
        logits = self.score(memory)
        boxes = self.guess(memory, places.unsqueeze(0))
        results = [(boxes, logits)]
        best = logits.amax(2).topk(QUERIES, dim=1).indices.unsqueeze(2)
        x = memory.gather(1, best.expand(-1, -1, WIDTH))
        box = boxes.gather(1, best.expand(-1, -1, 4))
        for layer, step, classes in zip(self.layers, self.boxes, self.classes, strict=True):
            box = box.detach() if self.training else box
            x = layer(x, waves(box), memory, where)
            box = step(x, box)
            results.append((box, classes(x)))
        return results

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        boxes, logits = self.stages(images)[-1]
        return corners(boxes) * SIDE, torch.sigmoid(logits)


class Steps(nn.Module):
    """Features and boxes in 0 to 1 -> better boxes."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 4)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, x: Tensor, boxes: Tensor) -> Tensor:
        boxes = boxes.clamp(0.001, 0.999)
        return torch.sigmoid(torch.log(boxes / (1 - boxes)) + self.out(functional.gelu(self.hidden(x))))


def corners(boxes: Tensor) -> Tensor:
    """Return left, top, right, bottom of boxes by their middles and sides."""
    return torch.cat([boxes[..., :2] - boxes[..., 2:] / 2, boxes[..., :2] + boxes[..., 2:] / 2], -1)


STEPS = tuple(0.5 + 0.05 * step for step in range(10))
"""Overlaps over which COCO takes the mean."""


def mean_average_precision(
    boxes: np.ndarray[Any, Any],
    scores: np.ndarray[Any, Any],
    objects: np.ndarray[Any, Any],
    overlaps: tuple[float, ...] | None = None,
) -> float:
    """Return the mean average precision of a set, as COCO: over classes and overlaps, all pictures ranked together.

    Args:
        boxes: [n, k, 4].
        scores: [n, k, CLASSES].
        objects: [n, MOST, 5], class and box.
        overlaps: Least overlaps of a correct box; those of COCO by default.
    """
    steps = overlaps or STEPS
    return float(
        np.mean([_average_precision(kind, boxes, scores[..., kind], objects, steps) for kind in range(CLASSES)])
    )


def _average_precision(
    kind: int,
    boxes: np.ndarray[Any, Any],
    scores: np.ndarray[Any, Any],
    objects: np.ndarray[Any, Any],
    steps: tuple[float, ...],
) -> float:
    """Return the area under precision over recall of one class, mean over the least overlaps."""
    ranks, rights, total = [], [], 0
    for box, score, truth in zip(boxes, scores, objects, strict=True):
        truth = truth[truth[:, 0] == kind, 1:]
        total += len(truth)
        order = np.argsort(-score, kind="stable")
        order = order[score[order] > LEAST]
        ranks.append(score[order])
        rights.append(_matches(box[order], truth, steps))
    rank = np.argsort(-np.concatenate(ranks), kind="stable")
    right = np.concatenate(rights)[rank]
    precision = right.cumsum(0) / np.arange(1, len(right) + 1)[:, None]
    highest = np.maximum.accumulate(precision[::-1], 0)[::-1]
    return float((highest * right).sum(0).mean() / total)


def _matches(
    boxes: np.ndarray[Any, Any], truth: np.ndarray[Any, Any], steps: tuple[float, ...]
) -> np.ndarray[Any, Any]:
    """Return which boxes [k, 4], the best first, are right at each least overlap: bool [k, steps]."""
    low, high = np.maximum(boxes[:, None, :2], truth[None, :, :2]), np.minimum(boxes[:, None, 2:], truth[None, :, 2:])
    shared = (high - low).clip(0).prod(2)
    areas = [(x[:, 2:] - x[:, :2]).clip(0).prod(1) for x in (boxes, truth)]
    overlap = shared / (areas[0][:, None] + areas[1][None] - shared)
    right = np.zeros((len(boxes), len(steps)), bool)
    for column, least in enumerate(steps):
        free = np.ones(len(truth), bool)
        for row in range(len(boxes)) if len(truth) else ():
            best = int(np.where(free, overlap[row], -1.0).argmax())
            if free[best] and overlap[row, best] >= least:
                free[best], right[row, column] = False, True
    return right


def yolo() -> ModelSpec:
    """The detector of cells."""
    return _specify("yolo", Yolo())


def detr() -> ModelSpec:
    """The detector of queries."""
    return _specify("detr", Detr())


def _specify(name: str, module: nn.Module) -> ModelSpec:
    weights = {
        key: value.float() if value.is_floating_point() else value
        for key, value in load_file(WEIGHTS / f"{name}.safetensors").items()
    }
    module.load_state_dict(weights)
    detector = Detector(module.eval(), most=MOST, threshold=THRESHOLD, overlap=OVERLAP, candidates=CANDIDATES).eval()
    return ModelSpec(
        name,
        detector,
        (Input("images", ("batch", 3, SIDE, SIDE), kind="image"),),
        detector.outputs,
        {"batch": Axis(1, 1, 8)},
        evaluation=functools.partial(evaluation, ROWS),
        calibration=calibration,
    )


@functools.cache
def evaluation(count: int) -> EvaluationSet:
    """Held-out scenes with their objects."""
    return _draw(HELD_OUT, count)


def _draw(first: int, count: int) -> EvaluationSet:
    pictures, objects = scenes(first, count)
    return EvaluationSet(
        {"images": pictures.numpy().astype(np.float32) / 255},
        tuple(f"scene {number}" for number in range(count)),
        truth=objects.numpy().astype(np.float64),
        metric=edgekit.metrics.parse_metric("mean_average_precision:detections"),
        metric_name="mAP",
    )


def calibration(count: int) -> EvaluationSet:
    """Scenes that are neither trained on nor held out."""
    return _draw(CALIBRATION, count)
