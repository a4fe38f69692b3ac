"""A detector whose boxes become a fixed number of detections with a count: non-maximum suppression inside the graph.

How many boxes non-maximum suppression leaves depends on the picture: no graph of fixed shapes holds that. `Detector`
computes the same, exactly, in a fixed number of steps of operators that every target has: the best pairs of a box and a
class, the overlap of each two, and then `most` times the best that is left, less what it overlaps too much
(greedy suppression within each class, as `torchvision.ops.batched_nms`).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from edgekit.errors import ModelError
from edgekit.model.spec import Output


class Detector(nn.Module):
    """A module that answers with boxes and scores, and the non-maximum suppression after it.

    It answers with `detections` [batch, most, 6] (left, top, right, bottom, score, class; the best first, zeros after
    the last) and `count` int64 [batch], how many of them there are. `Detector.outputs` are the outputs to declare,
    which are judged box by box.
    """

    def __init__(
        self, module: nn.Module, most: int = 100, threshold: float = 0.25, overlap: float = 0.5, candidates: int = 300
    ) -> None:
        """Put the suppression behind a module.

        Args:
            module: Answers with a tuple of boxes [batch, n, 4] (left, top, right, bottom, in any unit) and scores
                [batch, n, classes] in 0 to 1.
            most: Detections that an answer has room for.
            threshold: What a score has to exceed.
            overlap: Intersection over union with a better box of its class above which a box goes.
            candidates: Pairs of a box and a class, the best ones, that are looked at; with n times the classes none is
                left out. The graph holds the overlap of each two.

        Raises:
            ModelError: If a number is out of its range.
        """
        super().__init__()
        if not 1 <= most <= candidates:
            raise ModelError(f"most is '{most}' of {candidates} candidates: it has to be in 1 to {candidates}")
        for name, value in (("threshold", threshold), ("overlap", overlap)):
            if not 0 <= value < 1:
                raise ModelError(f"{name} is '{value}': it has to be at least 0 and less than 1")
        self.module = module
        self.most, self.threshold, self.overlap, self.candidates = most, threshold, overlap, candidates

    @property
    def outputs(self) -> tuple[Output, Output]:
        """What it answers with, for a `ModelSpec`."""
        axes = ("batch", "detections", "channels")
        return (
            Output("detections", role="detections", axes=axes, threshold=self.threshold or None),
            Output("count", role="count", of="detections", dtype="int64", axes=("batch",)),
        )

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """The detections [batch, most, 6] and their count int64 [batch] of the module's inputs."""
        boxes, scores = self.module(*inputs)
        return suppress(boxes, scores, self.most, self.threshold, self.overlap, self.candidates)


def suppress(
    boxes: Tensor, scores: Tensor, most: int, threshold: float, overlap: float, candidates: int
) -> tuple[Tensor, Tensor]:
    """What non-maximum suppression leaves of boxes [b, n, 4] with scores [b, n, classes]; arguments as of `Detector`.

    Returns:
        [b, most, 6] and int64 [b].
    """
    classes = scores.shape[2]
    sure = torch.where(scores > threshold, scores, torch.zeros_like(scores)).flatten(1)
    sure = nn.functional.pad(sure, (0, candidates))  # so that there are as many, of which the padded are none
    remaining, pairs = sure.topk(candidates, dim=1)
    pairs = torch.where(remaining > 0, pairs, torch.zeros_like(pairs))  # a pair of the padding has no box
    of = torch.div(pairs, classes, rounding_mode="floor")
    kinds = (pairs - of * classes).to(boxes.dtype)
    boxes = boxes.gather(1, of[:, :, None].expand(-1, -1, 4))
    rows = torch.cat([boxes, remaining[:, :, None], kinds[:, :, None]], 2)
    free = 1 - _suppresses(boxes, kinds, overlap).to(boxes.dtype)
    best = []
    for _ in range(most):
        first = remaining.argmax(1, keepdim=True)
        best.append(rows.gather(1, first[:, :, None].expand(-1, -1, 6)) * (remaining.amax(1) > 0)[:, None, None])
        remaining = remaining * free.gather(1, first[:, :, None].expand(-1, -1, candidates)).squeeze(1)
    detections = torch.cat(best, 1)
    return detections, (detections[:, :, 4] > 0).sum(1)


def _suppresses(boxes: Tensor, kinds: Tensor, overlap: float) -> Tensor:
    """Which of some boxes [b, k, 4] overlap too much and are of a class, each itself: bool [b, k, k]."""
    boxes = boxes / boxes.abs().amax((1, 2), keepdim=True).clamp(min=1e-3)  # squares of pixels leave fp16's range
    corner, end = boxes[:, :, None, :2], boxes[:, :, None, 2:]
    inner = (torch.minimum(end, end.transpose(1, 2)) - torch.maximum(corner, corner.transpose(1, 2))).clamp(min=0)
    shared = inner[..., 0] * inner[..., 1]
    sides = (boxes[:, :, 2:] - boxes[:, :, :2]).clamp(min=0)
    area = sides[:, :, 0] * sides[:, :, 1]
    over = shared > overlap * (area[:, :, None] + area[:, None, :] - shared)
    same = (kinds[:, :, None] - kinds[:, None, :]).abs() < 0.5
    itself = torch.eye(boxes.shape[1], dtype=torch.bool, device=boxes.device)  # a box without an area overlaps nothing
    return (over & same) | itself
