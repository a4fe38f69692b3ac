"""What training minimizes."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgekit_arrcoc.model import ArrCoc
from edgekit_arrcoc.queries import NOUNS
from training.fake_quant import Coarse
from training.objects import Frame
from training.questions import OUTLINE_FULL, InputBatch
from training.scenes import ATTRIBUTES, CELL, Scenes

AUXILIARY = {
    "information": 0.3,
    "salience": 0.3,
    "query": 0.1,
    "order": 0.3,
    "attributes": 0.2,
    "far": 0.02,
    "range": 1e-3,
    "spread": 0.15,
    "agreement": 0.08,
}
"""Weights of the auxiliary terms, against 1 for relevance itself; that of presence is `Trainee.presence`.

The last two are there where each scene is seen twice, once with coarse arithmetic."""

AGREED = 1e-5
"""Share of relevance's power below which the difference that coarse arithmetic makes is as good as none: 50 dB."""

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

ANSWERED = 0.25
"""Patches of answer in sight from which a query counts as answered. Between nothing and this it counts for little."""

NOTHING = 0.5
"""Weight of a query that nothing answers, against 1 for the mean of those that are answered."""

DARKEST = 0.05
"""Smallest factor of a darkened image; its logarithm is drawn uniformly between this one's and 0."""

_EPSILON = 1e-5


@dataclass(frozen=True)
class Batch:
    """What a step learns from: B crops of N patches, Q queries each.

    Attributes:
        pixels: [B, 3, H, W] uint8.
        queries: [B, Q, 768] float32.
        kind: [B, Q] int64, index into `questions.KINDS`.
        truth: [B, Q, N] float32 in [0, 1].
        visible: [B, P, N] float32 in [0, 1], the share of each patch that shows each object.
        outline: [B, N] float32 in [0, 1].
        attributes: [B, P, 4] int64, of the objects; -1 where there is none.
        nouns: [B, P] int64, likewise.
    """

    pixels: Tensor
    queries: Tensor
    kind: Tensor
    truth: Tensor
    visible: Tensor
    outline: Tensor
    attributes: Tensor
    nouns: Tensor


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
        """Crop [B, 3, H, W]."""
        rows = slice(CELL * self.top, CELL * (self.top + self.rows))
        return images[:, :, rows, CELL * self.left : CELL * (self.left + self.columns)]

    def patches(self, maps: Tensor, frame: Frame | None = None) -> Tensor:
        """Crop [..., N] of a frame (224 x 224 by default) to [..., rows * columns]."""
        frame = frame or Frame()
        grid = maps.reshape(*maps.shape[:-1], frame.height // CELL, frame.width // CELL)
        return grid[..., self.top : self.top + self.rows, self.left : self.left + self.columns].flatten(-2)


def crop(scenes: Scenes, questions: InputBatch, table: Tensor, window: Window, frame: Frame | None = None) -> Batch:
    """What a window shows of B scenes (of 224 x 224 by default) and their questions; table is [concepts, 768]."""
    outline = window.patches(scenes.outline, frame).float() / OUTLINE_FULL
    return Batch(
        pixels=window.pixels(scenes.images),
        queries=questions.encode(table),
        kind=questions.kind,
        truth=window.patches(questions.truth, frame),
        visible=window.patches(scenes.visible, frame).float() / CELL**2,
        outline=outline.clamp(max=1.0),
        attributes=scenes.attributes,
        nouns=scenes.nouns,
    )


class Trainee(nn.Module):
    """The model and a head that reads attributes off its tokens, which is thrown away after training.

    Attributes:
        coarse: Rounds what the layers of the model read, if anything does.
        presence: Weight of the loss of the highest relevance.
        dimmed: Share of the images that are darkened.
    """

    presence: Tensor
    dimmed: Tensor

    def __init__(self, model: ArrCoc, width: int) -> None:
        super().__init__()
        self.model = model
        self.coarse: Coarse | None = None
        self.head = nn.Linear(width, sum(map(len, ATTRIBUTES)) + len(NOUNS))
        # Tensors, since compiled code is made anew for every number.
        self.register_buffer("presence", torch.tensor(0.0), persistent=False)
        self.register_buffer("dimmed", torch.tensor(0.0), persistent=False)

    def forward(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Loss of a batch, and its terms."""
        images = _dimmed(batch.pixels.to(torch.float32) / 255.0, self.dimmed)
        twins = self.coarse is not None and self.coarse.twins
        if twins:
            batch, images = _twice(batch), torch.cat([images, images])
        model, truth, anything = self.model, batch.truth, batch.visible.sum(1)
        with torch.autocast(batch.pixels.device.type, torch.bfloat16):
            features, rows, columns = model.texture(images)
        features = features.float()
        noise = torch.randn_like(features[: len(features) // (1 + twins)])
        features = features + NOISE * (torch.cat([noise, noise]) if twins else noise)
        asked = model.query_content(features, batch.queries)
        information, salience = model.information(features), model.salience(features, rows, columns)
        scores = [information.unsqueeze(1).expand_as(asked), salience.unsqueeze(1).expand_as(asked), asked]
        stacked = torch.stack(scores, 2)
        relevance, maps, weights = model.balancing(stacked, batch.queries)
        logits = model.balancing.scale.view(3, 1) * (stacked - model.balancing.centre.view(3, 1))
        answered = truth.sum(2)
        there, nothing = answered > ANSWERED, answered == 0
        # Small answers count for more than their few patches.
        share = torch.where(there, (answered + 0.5).rsqrt(), 0.0)
        share = share * (there.sum() / share.sum().clamp(min=1e-6))
        near = _nearness(rows, columns, truth.device)
        wanted, objects, edges = (_haloed(map_, near) for map_ in (truth, anything, batch.outline))
        far = _far(maps[:, 0, 0], objects, anything) + _far(maps[:, 0, 1], edges, batch.outline)
        terms = {
            "relevance": ((share + NOTHING * nothing) * _entropy(relevance, wanted).mean(2)).mean(),
            "information": _entropy(maps[:, 0, 0], objects).mean(),
            "salience": _entropy(maps[:, 0, 1], edges).mean(),
            "far": _far(relevance, wanted, truth) + far,
            "query": _pointing(torch.log_softmax(asked, 2), wanted, share * (batch.kind == 0)),
            "order": _pointing(torch.log(relevance.clamp(min=_EPSILON)), truth, share),
            "attributes": _attributes(self, features, anything, batch),
            "presence": (_entropy(relevance.amax(2), there.float()) * (there | nothing)).mean(),
            "range": ((logits.abs() - RANGE).clamp(min=0.0) ** 2).mean(),
        }
        if self.coarse is not None and twins:
            terms |= {"spread": torch.stack(self.coarse.spreads).mean(), "agreement": _agreement(relevance)}
            self.coarse.spreads = []
        loss = terms["relevance"] + self.presence * terms["presence"]
        loss = loss + sum(weight * terms[name] for name, weight in AUXILIARY.items() if name in terms)
        terms |= {f"weight {index}": weights[..., index].mean() for index in range(3)}
        return loss, {name: term.detach() for name, term in terms.items()}


def _twice(batch: Batch) -> Batch:
    """The batch, and the same again behind it."""
    return Batch(*(torch.cat([values, values]) for values in (getattr(batch, one.name) for one in fields(batch))))


def _agreement(relevance: Tensor) -> Tensor:
    """Logarithm of the power of the difference between the halves [2 B, Q, N] over that of the first."""
    exact, coarse = relevance.chunk(2)
    return torch.log(((coarse - exact) ** 2).sum() / (exact**2).sum().clamp(min=1e-6) + AGREED)


def _dimmed(images: Tensor, share: Tensor) -> Tensor:
    """A share of the images [B, 3, H, W] darkened."""
    chosen, strength = torch.rand(2, len(images), 1, 1, 1, device=images.device)
    return images * torch.where(chosen < share, DARKEST**strength, 1.0)


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


def _attributes(trainee: Trainee, features: Tensor, anything: Tensor, batch: Batch) -> Tensor:
    """Cross-entropy of the attributes and the noun of each patch's main object, read off its token."""
    logits = trainee.head(trainee.model.realizing.realize(features, anything))
    cover, owner = batch.visible.max(1)
    clear = (cover >= CLEAR).float()
    facts = torch.cat([batch.attributes, batch.nouns.unsqueeze(2)], 2)
    wanted = facts.gather(1, owner.unsqueeze(2).expand(-1, -1, len(ATTRIBUTES) + 1))
    parts = logits.split([*(len(values) for values in ATTRIBUTES), len(NOUNS)], 2)
    total: Tensor = logits.new_zeros(())
    for at, part in enumerate(parts):
        known = clear * (wanted[..., at] >= 0)
        loss = F.cross_entropy(part.transpose(1, 2), wanted[..., at].clamp(min=0), reduction="none")
        total = total + (loss * known).sum() / clear.sum().clamp(min=1.0)
    return total
