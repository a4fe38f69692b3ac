"""Four kinds of model, small and seeded, each of modules that can be broken one by one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import torch
from torch import Tensor, nn

from edgekit.model.spec import Axis, Input, ModelSpec, Output
from edgekit_targets.onnx.passes import dynamic, qdq
from edgekit_targets.onnx.passes.groups import QuantConfig
from edgekit_targets.onnx.quantization import calibration, conditioning
from edgekit_targets.onnx.quantization.calibration import Samples
from tools.bench.plain import export_own

WIDTH, LENGTH, WORDS = 32, 12, 50


def exported(spec: ModelSpec, place: Path) -> onnx.ModelProto:
    """The fp32 graph, by the exporter that makes artifacts."""
    return onnx.load(export_own(spec, place))


def quantized(spec: ModelSpec, graph: onnx.ModelProto, static: bool) -> onnx.ModelProto:
    """The INT8 graph, conditioned as artifacts are."""
    rows = [spec.random(seed) for seed in range(64)]
    inputs = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
    samples = Samples(inputs, tuple(map(str, range(64))))
    ready = conditioning.condition(graph, samples)
    if not static:
        return dynamic.quantize_dynamic(ready.graph, ready.floats)
    observed = calibration.observe(ready.graph, qdq.activations(ready.graph), samples, ("minmax",), lambda done: None)
    return qdq.quantize_static(ready.graph, QuantConfig(floats=ready.floats), observed)


def transformer() -> ModelSpec:
    """Linear embedding, a table of positions, attention, a multilayer perceptron, a classifier."""
    inputs = (Input("tokens", ("batch", LENGTH, 24), low=-1.0, high=1.0),)
    return _spec("transformer", Transformer(), inputs, (Output("logits", role="logits"),))


def convolutional() -> ModelSpec:
    """Convolutions with batch norms, a residual branch, pooling, a classifier."""
    inputs = (Input("images", ("batch", 3, 32, 32), kind="image"),)
    return _spec("convolutional", Convolutional(), inputs, (Output("logits", role="logits"),))


def words() -> ModelSpec:
    """Embedded words and positions, a multilayer perceptron, their mean."""
    inputs = (Input("ids", ("batch", LENGTH), dtype="int64", low=0, high=WORDS - 1),)
    return _spec("words", SpecOverrides(), inputs, (Output("vector", role="embedding"),))


def ranker() -> ModelSpec:
    """Scores, the best rows by top-K, and layers that read these."""
    inputs = (Input("rows", ("batch", 40, 24), low=-1.0, high=1.0),)
    outputs = (Output("scores", role="scores"), Output("indices", dtype="int64"), Output("boxes"))
    return _spec("ranker", Ranker(), inputs, outputs)


class Position(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(1, LENGTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.table


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (f(x).unflatten(-1, (4, -1)).transpose(1, 2) for f in (self.query, self.key, self.value))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        answer: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return answer


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.down(nn.functional.gelu(self.up(x)))
        return answer


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.position = nn.Linear(24, WIDTH), Position()
        self.norm, self.attention = nn.LayerNorm(WIDTH), Attention()
        self.second_norm, self.mlp = nn.LayerNorm(WIDTH), Perceptron()
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.position(self.embed(tokens))
        x = x + self.attention(self.norm(x))
        x = x + self.mlp(self.second_norm(x))
        answer: Tensor = self.head(x.mean(1))
        return answer


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
        self.norm = nn.BatchNorm2d(16)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.norm(self.second(torch.relu(self.first(x)))))


class Convolutional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.block = nn.Conv2d(3, 16, 3, 2, 1), Residual()
        self.last, self.classifier = nn.Conv2d(16, 32, 3, 2, 1), nn.Linear(32, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = self.last(self.block(torch.relu(self.stem(images))))
        answer: Tensor = self.classifier(torch.relu(x).mean((2, 3)))
        return answer


class SpecOverrides(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.mlp, self.norm, self.out = Perceptron(), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 16)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.positions(torch.arange(LENGTH))
        answer: Tensor = self.out(self.norm(x + self.mlp(x)).mean(1))
        return answer


class Ranker(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features, self.hidden = nn.Linear(24, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.scorer, self.refine, self.box = nn.Linear(WIDTH, 1), Perceptron(), nn.Linear(WIDTH, 4)

    def forward(self, rows: Tensor) -> tuple[Tensor, ...]:
        x = torch.relu(self.hidden(torch.relu(self.features(rows))))
        scores = torch.sigmoid(self.scorer(x)).squeeze(-1)
        indices = torch.topk(scores, 8, dim=1).indices
        best = torch.gather(x, 1, indices.unsqueeze(-1).expand(-1, -1, WIDTH))
        return scores, indices, self.box(best + self.refine(best))


def _spec(name: str, module: nn.Module, inputs: tuple[Input, ...], outputs: tuple[Output, ...]) -> ModelSpec:
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for path, parameter in module.named_parameters():
            if "norm" in path:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
                continue
            fan = max(parameter[0].numel(), 1) if parameter.dim() > 1 else 4
            scale = 0.5 if parameter.dim() != 2 and "weight" not in path else 1.5 / fan**0.5
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
    return ModelSpec(name, module.eval(), inputs, outputs, {"batch": Axis(1, 1, 8)}, f"{__name__}:{name}")
