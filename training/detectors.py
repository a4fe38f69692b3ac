"""Train the zoo's detectors: `python -m training.detectors yolo --out tools/zoo/weights` (6 minutes on one H200).

An object is assigned to the cell or query whose class and box fit it best (task alignment, Feng et al., TOOD, 2021).
A second head of `yolo` has several cells for an object and is dropped in the end (Wang et al., YOLOv10, 2024).
"""

from __future__ import annotations

import argparse
import copy
import logging
import math
import time
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from tools.zoo.detectors import HELD_OUT, SIDE, TRAINING, Detr, Head, Yolo, corners, mean_average_precision, scenes

BATCH, PICTURES, CHUNK = 128, 60_000, 500
RATE, DECAY, AVERAGE = 2e-3, 0.02, 0.998
LOG = logging.getLogger("training.detectors")
Loss = Callable[[Tensor, Tensor], Tensor]


def main() -> None:
    """Train one detector for some seconds and write its weights."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=("yolo", "detr"))
    parser.add_argument("--out", type=Path, required=True, help="folder of the weights")
    parser.add_argument("--seconds", type=float, default=360.0)
    parser.add_argument("--pictures", type=int, default=PICTURES)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    module = (Yolo() if options.name == "yolo" else Detr()).to(device)
    pictures, objects = load_scenes(TRAINING, options.pictures, device)
    count = sum(parameter.numel() for parameter in module.parameters())
    LOG.info("%s: %d parameters, %d scenes", options.name, count, len(pictures))
    average = train(module, pictures, objects, options.seconds)
    if isinstance(average, Yolo):
        average.several = None
    options.out.mkdir(parents=True, exist_ok=True)
    weights = {
        name: value.half() if value.is_floating_point() else value for name, value in average.state_dict().items()
    }
    save_file(
        {name: value.contiguous().cpu() for name, value in weights.items()}, options.out / f"{options.name}.safetensors"
    )
    report(average.eval(), device)


def load_scenes(first: int, count: int, device: str) -> tuple[Tensor, Tensor]:
    """Draw scenes in chunks."""
    chunks = [scenes(first + at, min(CHUNK, count - at), device) for at in range(0, count, CHUNK)]
    return torch.cat([pictures for pictures, _ in chunks]), torch.cat([objects for _, objects in chunks])


def train(module: nn.Module, pictures: Tensor, objects: Tensor, seconds: float) -> nn.Module:
    """Return the average of the weights of the last steps."""
    if isinstance(module, Yolo):
        module.several = Head().to(pictures.device)
    loss_of: Loss = YoloLoss(module) if isinstance(module, Yolo) else DetrLoss(module)  # type: ignore[arg-type]
    decayed = [p for p in module.parameters() if p.dim() > 1]
    others = [p for p in module.parameters() if p.dim() <= 1]
    rate = RATE if isinstance(module, Yolo) else RATE / 4
    groups = [{"params": decayed, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=rate)
    average = copy.deepcopy(module)
    start, step, sums = time.monotonic(), 0, 0.0
    while (share := (time.monotonic() - start) / seconds) < 1:
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, (step + 1) / 300) * 0.5 * (1 + math.cos(math.pi * share))
        rows = torch.randint(len(pictures), (min(BATCH, len(pictures)),), device=pictures.device)
        loss = loss_of(*vary(pictures[rows], objects[rows]))
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(module.parameters(), 5.0)
        optimizer.step()
        with torch.no_grad():
            pace = min(AVERAGE, (step + 1) / (step + 10))
            for mean, now in zip(average.state_dict().values(), module.state_dict().values(), strict=True):
                if mean.is_floating_point():
                    mean.lerp_(now, 1 - pace)
                else:
                    mean.copy_(now)
        step += 1
        sums += float(loss.detach()) if step % 20 == 0 else 0.0
        if step % 500 == 0:
            LOG.info("step %d, %.0f %%: loss %.3f", step, 100 * share, sums / 25)
            sums = 0.0
    LOG.info("%d steps", step)
    return average


def vary(pictures: Tensor, objects: Tensor) -> tuple[Tensor, Tensor]:
    """Return pictures of [0, 1] flipped, in other light, with their objects."""
    images, objects = pictures.float() / 255, objects.float()
    shape = (len(images), 1, 1, 1)
    light = 1 + 0.3 * (torch.rand(shape, device=images.device) - 0.5)
    images = (images * light + 0.2 * (torch.rand(shape, device=images.device) - 0.5)).clamp(0, 1)
    if torch.rand(()) < 0.5:
        images = images.flip(3)
        objects = torch.stack(
            [objects[..., 0], SIDE - objects[..., 3], objects[..., 2], SIDE - objects[..., 1], objects[..., 4]], 2
        )
    if torch.rand(()) < 0.5:
        images = images.flip(2)
        objects = torch.stack(
            [objects[..., 0], objects[..., 1], SIDE - objects[..., 4], objects[..., 3], SIDE - objects[..., 2]], 2
        )
    return images, objects


def overlaps(boxes: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """Return the overlap of boxes [..., 4] that broadcast, and its generalized form (Rezatofighi et al., 2019)."""
    inner = (torch.minimum(boxes[..., 2:], others[..., 2:]) - torch.maximum(boxes[..., :2], others[..., :2])).clamp(
        min=0
    )
    outer = torch.maximum(boxes[..., 2:], others[..., 2:]) - torch.minimum(boxes[..., :2], others[..., :2])
    areas = [(x[..., 2:] - x[..., :2]).clamp(min=0).prod(-1) for x in (boxes, others)]
    union = areas[0] + areas[1] - inner.prod(-1)
    iou = inner.prod(-1) / union.clamp(min=1e-6)
    hull = outer.clamp(min=0).prod(-1).clamp(min=1e-6)
    return iou, iou - (hull - union) / hull


class YoloLoss:
    """Losses of the two heads."""

    def __init__(self, module: Yolo) -> None:
        self.module = module

    def __call__(self, images: Tensor, objects: Tensor) -> Tensor:
        """Return the loss of the two heads for pictures [b, 3, SIDE, SIDE] and objects [b, MOST, 5]."""
        module = self.module
        with torch.autocast(images.device.type, torch.bfloat16):
            features = module.neck(module.backbone(images))
            single = module.head([x.detach() for x in features])
            several = module.several(features) if module.several is not None else single
        return self.loss(single[0], single[1], objects, 1) + self.loss(several[0], several[1], objects, 10)

    def loss(self, raw: Tensor, logits: Tensor, objects: Tensor, most: int) -> Tensor:
        """Return the loss of one head whose objects have at most so many cells."""
        boxes, logits = self.module.decode(raw.float()), logits.float()
        classes = objects[..., 0].long()
        exists, truth = classes >= 0, objects[..., 1:]
        with torch.no_grad():
            iou, _ = overlaps(boxes[:, None], truth[:, :, None])
            places = self.module.get_buffer("places")
            inside = ((places > truth[:, :, None, :2]) & (places < truth[:, :, None, 2:])).all(-1) & exists[..., None]
            score = (
                logits.sigmoid()
                .gather(2, classes.clamp(min=0)[:, None].expand(-1, logits.shape[1], -1))
                .transpose(1, 2)
            )
            fit = score.sqrt() * iou.clamp(min=0) ** 4 * inside + 1e-9 * inside
            best = fit.topk(most, dim=2)
            chosen = torch.zeros_like(fit).scatter(2, best.indices, (best.values > 0).float())
            # A cell of several objects is that of the one that it overlaps most.
            owner = (chosen * (iou + 1e-6)).argmax(1)
            chosen = chosen * functional.one_hot(owner, objects.shape[1]).transpose(1, 2)
            fit = fit * chosen
            strength = fit / fit.amax(2, keepdim=True).clamp(min=1e-12) * (iou * chosen).amax(2, keepdim=True)
            target = torch.zeros_like(logits)
            target.scatter_add_(2, classes.clamp(min=0).gather(1, owner)[..., None], strength.sum(1)[..., None])
            weight = strength.sum(1)
            own = truth.gather(1, owner[..., None].expand(-1, -1, 4))
            total = weight.sum().clamp(min=1.0)
        scored = functional.binary_cross_entropy_with_logits(logits, target, reduction="sum") / total
        _, general = overlaps(boxes, own)
        return scored + 5 * ((1 - general) * weight).sum() / total


class DetrLoss:
    """Losses of all places and of the queries after each layer."""

    def __init__(self, module: Detr) -> None:
        self.module = module

    def __call__(self, images: Tensor, objects: Tensor) -> Tensor:
        """Return the loss of all places and of the queries after each layer, summed."""
        with torch.autocast(images.device.type, torch.bfloat16):
            stages = self.module.stages(images)
        return torch.stack([self.loss(boxes.float(), logits.float(), objects) for boxes, logits in stages]).sum()

    @staticmethod
    def loss(boxes: Tensor, logits: Tensor, objects: Tensor) -> Tensor:
        """Return the loss of one stage; each object is matched with the query that costs least, one after another."""
        classes = objects[..., 0].long()
        exists, truth = classes >= 0, objects[..., 1:] / SIDE
        edges = corners(boxes)
        with torch.no_grad():
            score = logits.sigmoid().gather(2, classes.clamp(min=0)[:, None].expand(-1, logits.shape[1], -1))
            _, general = overlaps(edges[:, :, None], truth[:, None])
            apart = (edges[:, :, None] - truth[:, None]).abs().sum(-1)
            worth = (2 * score - 2 * apart + 2 * general).masked_fill(~exists[:, None], -1e4)
            match = torch.full_like(classes, -1)
            for _ in range(objects.shape[1]):
                value, place = worth.flatten(1).max(1)
                query, slot = place // objects.shape[1], place % objects.shape[1]
                rows = torch.arange(len(worth), device=worth.device)
                match[rows, slot] = torch.where(value > -1e3, query, match[rows, slot])
                worth[rows, query], worth[rows, :, slot] = -1e4, -1e4
            matched = exists & (match >= 0)
            total = matched.sum().clamp(min=1)
        own = edges.gather(1, match.clamp(min=0)[..., None].expand(-1, -1, 4))
        iou, general = overlaps(own, truth)
        target = torch.zeros_like(logits)
        batch, slots = matched.nonzero(as_tuple=True)
        target[batch, match[batch, slots], classes[batch, slots]] = iou[batch, slots].detach().clamp(min=0)
        share = logits.sigmoid()
        weight = torch.where(target > 0, target, 0.75 * share.detach() ** 2)
        scored = (functional.binary_cross_entropy_with_logits(logits, target, reduction="none") * weight).sum()
        placed = 2 * (1 - general) + 5 * (own - truth).abs().sum(-1) / 2
        return (scored + (placed * matched).sum()) / total


def report(module: nn.Module, device: str, count: int = 500) -> None:
    """Log the mean average precision on held-out scenes."""
    pictures, objects = load_scenes(HELD_OUT, count, device)
    with torch.no_grad():
        outputs = [module(chunk.float() / 255) for chunk in torch.split(pictures, 100)]
    boxes, scores = (torch.cat(parts).float().cpu().numpy() for parts in zip(*outputs, strict=True))
    half, whole = (mean_average_precision(boxes, scores, objects.cpu().numpy(), steps) for steps in ((0.5,), None))
    LOG.info("held-out: mAP %.4f, mAP50 %.4f", whole, half)


if __name__ == "__main__":
    main()
