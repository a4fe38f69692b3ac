"""What training minimizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgekit.arrcoc.model import ArrCoc
from edgekit.arrcoc.questions import OUTLINE_FULL, Questions
from edgekit.arrcoc.scenes import ATTRIBUTES, CELL, EDGE, Scenes

AUXILIARY = {
    "information": 0.3,
    "salience": 0.3,
    "query": 0.1,
    "order": 0.3,
    "attributes": 0.2,
    "far": 0.02,
    "range": 1e-3,
}
"""Weights of the auxiliary terms, against 1 for relevance itself."""

NOISE = 0.03
"""Deviation of the noise on the features: answers must not hang on what INT8 or fp16 rounds away."""

RANGE = 8.0
"""Squashed scores (before the sigmoid) are free within this magnitude, beyond which fp16 would blur them."""

HALO = 0.02
"""Target beside what is asked for, at no distance; it falls off exponentially over `REACH` patches.

Without it, all that is far from an answer ends up equally irrelevant, and the order of the map is what rounding makes
of it: INT8 kept nearly every choice and yet fell to a rank correlation of 0.86 on the worst image.
"""

REACH = 2.0

FLOOR = 5e-5
"""Smallest target: a logit of -9.9."""

CLEAR = 0.25
"""Share of a patch that an object must cover for the patch's token to be asked for the object's attributes."""

Encode = Callable[[Tensor], tuple[Tensor, int, int]]
"""Images -> features, rows and columns of the patch grid."""

_EPSILON = 1e-5


class Trainee(nn.Module):
    """The model and a head that reads attributes off its tokens, which is thrown away after training."""

    def __init__(self, model: ArrCoc, width: int) -> None:
        super().__init__()
        self.model = model
        self.head = nn.Linear(width, sum(map(len, ATTRIBUTES)))


@dataclass(frozen=True)
class Window:
    """A crop in patches, which the scene's truth is cropped to as well.

    Attributes:
        top: First row.
        left: First column.
        rows: Height.
        columns: Width.
    """

    top: int
    left: int
    rows: int
    columns: int

    def pixels(self, images: Tensor) -> Tensor:
        """Crop [B, 3, 224, 224]."""
        rows = slice(CELL * self.top, CELL * (self.top + self.rows))
        return images[:, :, rows, CELL * self.left : CELL * (self.left + self.columns)]

    def patches(self, maps: Tensor) -> Tensor:
        """Crop [..., 196] to [..., rows * columns]."""
        grid = maps.reshape(*maps.shape[:-1], EDGE // CELL, EDGE // CELL)
        return grid[..., self.top : self.top + self.rows, self.left : self.left + self.columns].flatten(-2)


def objective(
    trainee: Trainee, scenes: Scenes, questions: Questions, table: Tensor, window: Window, encode: Encode
) -> tuple[Tensor, dict[str, Tensor]]:
    """Loss of a batch.

    Args:
        trainee: In training mode.
        scenes: B scenes.
        questions: Q queries about each.
        table: Rows of the concepts, [concepts, 768].
        window: What the model sees of the scenes.
        encode: The model's patch encoder, or a compiled form of it.

    Returns:
        The loss and its terms.
    """
    model = trainee.model
    pixels = window.pixels(scenes.images).to(torch.float32) / 255.0
    with torch.autocast(pixels.device.type, torch.bfloat16):
        features, rows, columns = encode(pixels)
    features = features.float()
    features = features + NOISE * torch.randn_like(features)
    truth = window.patches(questions.truth)
    asked = model.query_content(features, (queries := questions.encode(table)))
    information, salience = model.information(features), model.salience(features, rows, columns)
    scores = torch.stack([information.unsqueeze(1).expand_as(asked), salience.unsqueeze(1).expand_as(asked), asked], 2)
    relevance, maps, weights = model.balancing(scores, queries)

    visible = window.patches(scenes.visible).float() / CELL**2
    anything = visible.sum(1)
    outline = (window.patches(scenes.outline).float() / OUTLINE_FULL).clamp(max=1.0)
    answered = truth.sum(2)
    # Small answers count for more than their few patches; a crop without the answer counts for nothing.
    share = torch.where(answered > 0.25, (answered + 0.5).rsqrt(), 0.0)
    share = share / share.mean().clamp(min=1e-6)
    logits = model.balancing.scale.view(3, 1) * (scores - model.balancing.centre.view(3, 1))
    near = _nearness(rows, columns, truth.device)
    wanted, objects, edges = (_haloed(map_, near) for map_ in (truth, anything, outline))
    far = _far(relevance, wanted, truth) + _far(maps[:, 0, 0], objects, anything) + _far(maps[:, 0, 1], edges, outline)
    terms = {
        "relevance": (share * _entropy(relevance, wanted).mean(2)).mean(),
        "information": _entropy(maps[:, 0, 0], objects).mean(),
        "salience": _entropy(maps[:, 0, 1], edges).mean(),
        "far": far,
        "query": _pointing(torch.log_softmax(asked, 2), wanted, share * (questions.kind == 0)),
        "order": _pointing(torch.log(relevance.clamp(min=_EPSILON)), truth, share),
        "attributes": _attributes(trainee, features, visible, anything, scenes.attributes),
        "range": ((logits.abs() - RANGE).clamp(min=0.0) ** 2).mean(),
    }
    loss = terms["relevance"] + sum(weight * terms[name] for name, weight in AUXILIARY.items())
    terms |= {f"weight {index}": weights[..., index].mean() for index in range(3)}
    return loss, {name: term.detach() for name, term in terms.items()}


def _nearness(rows: int, columns: int, device: torch.device) -> Tensor:
    """exp(-distance / `REACH`) between all patches of a grid: [N, N]."""
    y, x = torch.meshgrid(torch.arange(rows, device=device), torch.arange(columns, device=device), indexing="ij")
    places = torch.stack([y.flatten(), x.flatten()], 1).float()
    return torch.exp(-torch.cdist(places, places) / REACH)


def _haloed(truth: Tensor, near: Tensor) -> Tensor:
    """Truth [..., N] with a little relevance around it."""
    halo = HALO * (1.0 - torch.exp(-(truth @ near)))
    return (truth + (1.0 - truth) * halo).clamp(min=FLOOR)


def _far(guess: Tensor, wanted: Tensor, truth: Tensor) -> Tensor:
    """Difference of log-odds where nothing is asked for; cross-entropy hardly sees it there."""
    difference = torch.logit(guess, _EPSILON) - torch.logit(wanted, _EPSILON)
    return (F.smooth_l1_loss(difference, torch.zeros_like(difference), reduction="none") * (truth == 0)).mean()


def _entropy(guess: Tensor, truth: Tensor) -> Tensor:
    """Binary cross-entropy of values in [0, 1]."""
    guess = guess.clamp(_EPSILON, 1.0 - _EPSILON)
    return -(truth * torch.log(guess) + (1.0 - truth) * torch.log1p(-guess))


def _pointing(logs: Tensor, truth: Tensor, share: Tensor) -> Tensor:
    """Cross-entropy between the answer's patches and scores ([B, Q, N], as logs) scaled to a sum of 1."""
    logs = logs - torch.logsumexp(logs, 2, keepdim=True)
    return (share * -(truth * logs).sum(2) / truth.sum(2).clamp(min=0.25)).mean()


def _attributes(trainee: Trainee, features: Tensor, visible: Tensor, anything: Tensor, attributes: Tensor) -> Tensor:
    """Cross-entropy of the attributes of each patch's main object, read off its token."""
    logits = trainee.head(trainee.model.realizing.realize(features, anything))
    cover, owner = visible.max(1)
    clear = (cover >= CLEAR).float()
    wanted = attributes.gather(1, owner.unsqueeze(2).expand(-1, -1, 4)).clamp(min=0)
    parts = logits.split([len(values) for values in ATTRIBUTES], 2)
    losses = [F.cross_entropy(part.transpose(1, 2), wanted[..., at], reduction="none") for at, part in enumerate(parts)]
    total: Tensor = (torch.stack(losses).sum(0) * clear).sum() / clear.sum().clamp(min=1.0)
    return total
