"""A detector with a fixed number of detections and a count: non-maximum suppression inside the graph.

The number of boxes after non-maximum suppression depends on the image, which no graph of fixed shapes can hold.
`Detector` computes the same result exactly, in a fixed number of steps of operators that every target has. It takes the
best pairs of a box and a class and the overlap of each two. Then it takes the best remaining pair `most` times and
removes those that overlap it too much (greedy suppression per class, as `torchvision.ops.batched_nms`).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from edgekit.errors import ModelError
from edgekit.model.spec import Output


class Detector(nn.Module):
    """A module that returns boxes and scores, followed by non-maximum suppression.

    Returns `detections` [batch, most, 6] (left, top, right, bottom, score, class; best first, zero-padded) and `count`
    int64 [batch], the number of detections. Declare `Detector.outputs`, which are judged box by box.
    """

    def __init__(
        self, module: nn.Module, most: int = 100, threshold: float = 0.25, overlap: float = 0.5, candidates: int = 300
    ) -> None:
        """Add the suppression to a module.

        Args:
            module: Returns a tuple of boxes [batch, n, 4] (left, top, right, bottom, in any unit) and scores
                [batch, n, classes] in 0 to 1.
            most: Largest number of detections.
            threshold: Lower limit of a score, exclusive.
            overlap: Intersection over union with a better box of the same class above which a box is removed.
            candidates: Number of best pairs of a box and a class that are considered; n times the classes considers
                all. The graph holds the overlap of each two.

        Raises:
            ModelError: If a number is outside its range.
        """
        super().__init__()
        if not 1 <= most <= candidates:
            raise ModelError(f"most is '{most}' of {candidates} candidates. Use a number from 1 to {candidates}")
        for name, value in (("threshold", threshold), ("overlap", overlap)):
            if not 0 <= value < 1:
                raise ModelError(f"{name} is '{value}'. Use a number of at least 0 and less than 1")
        self.module = module
        self.most, self.threshold, self.overlap, self.candidates = most, threshold, overlap, candidates

    @property
    def outputs(self) -> tuple[Output, Output]:
        """Outputs to declare in a `ModelSpec`."""
        axes = ("batch", "detections", "channels")
        return (
            Output("detections", role="detections", axes=axes, threshold=self.threshold or None),
            Output("count", role="count", of="detections", dtype="int64", axes=("batch",)),
        )

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the detections [batch, most, 6] and their count int64 [batch] of the module's inputs."""
        boxes, scores = self.module(*inputs)
        return suppress(boxes, scores, self.most, self.threshold, self.overlap, self.candidates)


def suppress(
    boxes: Tensor, scores: Tensor, most: int, threshold: float, overlap: float, candidates: int
) -> tuple[Tensor, Tensor]:
    """Apply non-maximum suppression to boxes [b, n, 4] with scores [b, n, classes]; arguments as of `Detector`.

    Returns:
        [b, most, 6] and int64 [b].
    """
    classes = scores.shape[2]
    sure = torch.where(scores > threshold, scores, torch.zeros_like(scores)).flatten(1)
    # topk needs at least `candidates` values; a score of 0 marks the padding.
    sure = nn.functional.pad(sure, (0, candidates))
    remaining, pairs = sure.topk(candidates, dim=1)
    # A padded pair has no box to gather.
    pairs = torch.where(remaining > 0, pairs, torch.zeros_like(pairs))
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
    """Return which boxes [b, k, 4] of one class overlap too much, each with itself: bool [b, k, k]."""
    # Squared pixels would leave fp16's range.
    boxes = boxes / boxes.abs().amax((1, 2), keepdim=True).clamp(min=1e-3)
    corner, end = boxes[:, :, None, :2], boxes[:, :, None, 2:]
    inner = (torch.minimum(end, end.transpose(1, 2)) - torch.maximum(corner, corner.transpose(1, 2))).clamp(min=0)
    shared = inner[..., 0] * inner[..., 1]
    sides = (boxes[:, :, 2:] - boxes[:, :, :2]).clamp(min=0)
    area = sides[:, :, 0] * sides[:, :, 1]
    over = shared > overlap * (area[:, :, None] + area[:, None, :] - shared)
    same = (kinds[:, :, None] - kinds[:, None, :]).abs() < 0.5
    # A box without area overlaps nothing, not even itself.
    itself = torch.eye(boxes.shape[1], dtype=torch.bool, device=boxes.device)
    return (over & same) | itself
