"""Small models of several kinds with real inputs, which tests export, break on disk and have judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from edgekit.metrics import top_k
from edgekit.model.spec import Axis, EvaluationSet, Input, ModelSpec, Output

BATCH = {"batch": Axis(1, 1, 8)}
ROWS = 24


def seeded(module: nn.Module, seed: int, deviation: float | None = None) -> None:
    """Draw the weights; without a deviation it is 2 by the root of what is summed."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            fan = max(parameter[0].numel(), 1) if parameter.dim() > 1 else 16
            by = 2.0 / fan**0.5 if deviation is None else deviation
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * by)


class Network(nn.Module):
    """A small trunk with seeded weights, and a function that makes outputs of its features [B, 24]."""

    def __init__(self, head: Callable[[Tensor], tuple[Tensor, ...]]) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 24))
        self.head = head
        seeded(self, 11)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.head(self.trunk(x))


def real() -> EvaluationSet:
    draw = np.random.Generator(np.random.PCG64(3))
    x = draw.uniform(-1, 1, (ROWS, 16)).astype(np.float32)
    return EvaluationSet({"x": x}, tuple(f"sample {row}" for row in range(ROWS)))


def network(name: str, head: Callable[[Tensor], tuple[Tensor, ...]], *outputs: Output) -> ModelSpec:
    inputs = (Input("x", ("batch", 16), low=-1.0),)
    return ModelSpec(name, Network(head).eval(), inputs, outputs, dict(BATCH), evaluation=real)


class Looking(nn.Module):
    """Pictures of any size and a query -> a score for each patch of 8 x 8 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 12, 8, 8)
        self.query = nn.Linear(6, 12)
        seeded(self, 12)

    def forward(self, images: Tensor, query: Tensor) -> Tensor:
        seen = torch.tanh(self.patches(images)).flatten(2)
        return torch.sigmoid((seen * self.query(query).unsqueeze(-1)).sum(1) / 3)


def looking() -> ModelSpec:
    """Pictures and a query, with dynamic sizes, and no evaluation set: photographs are what is real."""
    return ModelSpec(
        name="looking",
        module=Looking().eval(),
        inputs=(
            Input("images", ("batch", 3, "height", "width"), kind="image"),
            Input("query", ("batch", 6), low=-1.0, kind="query"),
        ),
        outputs=(Output("relevance", role="scores"),),
        axes={"batch": Axis(1, 1, 8), "height": Axis(64, 32, 96, 8), "width": Axis(64, 32, 96, 8)},
    )


def axes() -> ModelSpec:
    """Outputs whose batch axis is second, last, or nowhere."""

    def head(y: Tensor) -> tuple[Tensor, ...]:
        return torch.stack([y, -y]), y.T, (y[:, :8] @ y[:, 8:16].T).sum((0, 1), keepdim=True)

    return network("axes", head, Output("second"), Output("last"), Output("one"))


def chosen() -> ModelSpec:
    """Scores, a ranking, and wide features of the chosen places, of more rows than are kept whole."""

    def head(y: Tensor) -> tuple[Tensor, ...]:
        scores = torch.sigmoid(y)
        indices = torch.topk(scores, 6, dim=1).indices
        wide = y.unsqueeze(-1) * torch.linspace(-1, 1, 48)
        features = torch.gather(wide, 1, indices.unsqueeze(-1).expand(-1, -1, 48))
        return scores, indices, features

    return network(
        "chosen",
        head,
        Output("scores", role="scores"),
        Output("places", role="ranking", of="scores", dtype="int64"),
        Output("features", role="features", of="places"),
    )


def classifier() -> ModelSpec:
    """Logits, what they are worth as probabilities, and the class."""

    def head(y: Tensor) -> tuple[Tensor, ...]:
        return y, torch.softmax(y, 1), y.argmax(1)

    return network(
        "classifier",
        head,
        Output("logits", role="logits"),
        Output("shares", role="probabilities"),
        Output("label", role="labels", of="logits", dtype="int64"),
    )


def table() -> ModelSpec:
    """Logits for rows of numbers, of half their range, with truth and a metric."""

    def labelled() -> EvaluationSet:
        draw = np.random.Generator(np.random.PCG64(6))
        x = draw.uniform(-0.5, 0.5, (64, 16)).astype(np.float32)
        truth = spec.module(torch.from_numpy(x))[0].argmax(1).numpy()
        return EvaluationSet({"x": x}, tuple(f"sample {row}" for row in range(64)), (), truth, top_k("logits"))

    spec = network("table", lambda y: (y,), Output("logits", role="logits"))
    return replace(spec, evaluation=labelled)


def detector() -> ModelSpec:
    """Six boxes of some hundred pixels with a confidence in 0 to 1, channels first as YOLO has them."""

    def head(y: Tensor) -> tuple[Tensor, ...]:
        y = y.reshape(-1, 4, 6)
        corner = 200 + 60 * y[:, :2]
        return torch.cat([corner, corner + 40 + 20 * y[:, 2:].abs(), torch.sigmoid(y[:, :1])], 1), y[:, 0] > 0

    boxes = Output("boxes", axes=("batch", "channels", "anchors"))
    return network("detector", head, boxes, Output("kept", dtype="bool"))


def embedding() -> ModelSpec:
    """An embedding of which one channel is large and constant, and a depth map."""

    def head(y: Tensor) -> tuple[Tensor, ...]:
        return torch.cat([y * 0.3, 60 + 0 * y[:, :1]], 1), torch.exp(y.reshape(-1, 1, 4, 6) / 3)

    return network("embedding", head, Output("embedding", role="embedding"), Output("depth", role="image"))


def attention() -> ModelSpec:
    """A softmax over many places, as scores: none is above a thousandth; and a mask."""

    def head(y: Tensor) -> tuple[Tensor, ...]:
        many = torch.softmax((y.unsqueeze(-1) * torch.linspace(-0.1, 0.1, 200)).flatten(1), 1)
        return many, torch.sigmoid(y.reshape(-1, 4, 6))

    return network("attention", head, Output("scores", role="scores"), Output("mask", role="mask"))


def pixels() -> ModelSpec:
    """Logits of four classes for each pixel, classes second, and the class of each pixel."""

    def head(y: Tensor) -> tuple[Tensor, ...]:
        logits = y.reshape(-1, 4, 2, 3)
        return logits, logits.argmax(1)

    logits = Output("logits", role="logits", axes=("batch", "channels", "height", "width"))
    return network("pixels", head, logits, Output("label", role="labels", of="logits", dtype="int64"))


def undeclared() -> ModelSpec:
    """The same without names of the axes: the labels tell which axis the classes have."""
    spec = pixels()
    return replace(spec, name="undeclared", outputs=(Output("logits", role="logits"), spec.outputs[1]))


TOKENS = ("batch", "tokens")


class Reader(nn.Module):
    """Token ids and a mask of 0 and 1 -> logits; a text of padding alone has no answer (NaN)."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.classes = nn.Embedding(50, 16), nn.Linear(16, 5)
        seeded(self, 14, 0.5)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        x = self.words(ids)
        likeness = (x @ x.transpose(1, 2)).masked_fill(mask.unsqueeze(1) == 0, float("-inf"))
        logits: Tensor = self.classes((torch.softmax(likeness, 2) @ x).mean(1))
        return logits


def texts() -> EvaluationSet:
    draw = np.random.Generator(np.random.PCG64(15))
    mask = np.arange(12) < draw.integers(3, 13, (ROWS, 1))
    inputs = {"ids": draw.integers(0, 50, (ROWS, 12)), "mask": mask.astype(np.int64)}
    return EvaluationSet(inputs, tuple(f"text {row}" for row in range(ROWS)))


def reader() -> ModelSpec:
    """A classifier of texts with masks."""
    ids = Input("ids", TOKENS, dtype="int64", high=49.0)
    axes = {**BATCH, "tokens": Axis(12, 2, 24)}
    inputs = (ids, Input("mask", TOKENS, dtype="int64"))
    return ModelSpec("reader", Reader().eval(), inputs, (Output("logits", role="logits"),), axes, evaluation=texts)


ANCHORS = 40


def _bound(y: Tensor) -> Tensor:
    """Forty boxes bound to their places, each with a confidence of its own and of twenty classes, all below 0.4."""
    some = (y[:, :8] @ torch.linspace(-1, 1, 8 * ANCHORS).reshape(8, ANCHORS)).unsqueeze(-1)
    moved = torch.linspace(10, 600, ANCHORS).reshape(1, -1, 1) + 6 * torch.tanh(some)
    sure, classes = torch.sigmoid(0.3 * some), 0.4 * torch.sigmoid(some + torch.linspace(-2, 2, 20))
    return torch.cat([moved - 12, moved - 12, moved + 12, moved + 12, sure, classes], 2)


def anchors() -> ModelSpec:
    """Boxes with classes, in rows."""
    boxes = Output("boxes", role="boxes", axes=("batch", "anchors", "channels"))
    return network("anchors", lambda y: (_bound(y),), boxes)


def anchors_last() -> ModelSpec:
    """The same with the channels second."""
    boxes = Output("boxes", role="boxes", axes=("batch", "channels", "anchors"))
    return network("anchors_last", lambda y: (_bound(y).transpose(1, 2),), boxes)


def keypoints() -> ModelSpec:
    """Twelve points that lie far apart and move little."""

    def head(y: Tensor) -> tuple[Tensor, ...]:
        places = torch.linspace(0, 1, 24).reshape(12, 2).flip(0)
        return (places + 0.05 * torch.tanh(y.reshape(-1, 12, 2)),)

    return network("keypoints", head, Output("points"))


class Bytes(nn.Module):
    """Pictures in bytes -> logits."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.classes = nn.Conv2d(3, 8, 8, 8), nn.Linear(8, 6)
        seeded(self, 13, 0.3)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.classes(torch.relu(self.patches(images.float() / 255 - 0.5)).mean((2, 3)))
        return logits


def in_bytes() -> ModelSpec:
    """A classifier of pictures whose values are bytes."""
    images = Input("images", ("batch", 3, 32, 32), dtype="uint8", high=255.0, kind="image")
    return ModelSpec("in_bytes", Bytes().eval(), (images,), (Output("logits", role="logits"),), dict(BATCH))
