"""What the zoo's models are shown: seeded pictures, clips, sounds and words; and weights that answer to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from edgekit.model.spec import Array, Axis, EvaluationSet, Input, ModelSpec, Output
from tools.exam.pictures import evaluation
from tools.exam.pictures import pictures as drawn

TRUTH, CALIBRATION, STATISTICS = 1, 2, 3
"""Seeds: of evaluation sets, of calibration sets, and of what batch norms get their statistics from."""
ROWS = 16
"""Inputs of each evaluation set."""
BATCH = Axis(1, 1, 3)
GAIN = 1.2
KINDS = 5
"""Of samples: sample n is of kind n modulo this, and classifiers tell them apart."""
TINTS = np.array([(1, 0.3, 0.3), (0.3, 1, 0.3), (0.3, 0.3, 1), (1, 1, 0.3), (0.8, 0.8, 0.8)])
FITTED, CLEAR, RIDGE = 250, 6.0, 2e-2
"""Samples that heads are fitted on; by how much the right class is to lead; share of the features' mean square."""
OPEN = 1.5
"""Bias of a batch norm, in its own deviations: see `seeded`."""
QUIET = 0.05
"""Share of a layer's mean variance that a channel is given at the least."""
Samples = Callable[[int, int], dict[str, Array]]
"""(count, seed) -> inputs by name, [count, ...]."""


def pictures(name: str, side: int) -> Samples:
    """RGB pictures in 0 to 1; a kind has a tint."""

    def make(count: int, seed: int) -> dict[str, Array]:
        plain = drawn(count, seed, side, side, waves=0.15)
        return {name: ((0.4 + 0.6 * plain) * TINTS[np.arange(count) % KINDS][:, :, None, None]).astype(np.float32)}

    return make


def clips(name: str, frames: int, side: int) -> Samples:
    """Pictures that get brighter or darker, [count, frames, 3, side, side] in 0 to 1."""

    def make(count: int, seed: int) -> dict[str, Array]:
        still = pictures(name, side)(count, seed)[name][:, None]
        ends = np.random.default_rng(seed).uniform(0.3, 1.0, (2, count, 1, 1, 1, 1))
        times = np.linspace(0, 1, frames).reshape(1, -1, 1, 1, 1)
        return {name: (still * (ends[0] + (ends[1] - ends[0]) * times)).astype(np.float32)}

    return make


def sounds(name: str, shape: tuple[int, ...]) -> Samples:
    """Tones with overtones and noise along the last axis, [count, *shape] in -1 to 1; a kind has a range of pitches."""

    def make(count: int, seed: int) -> dict[str, Array]:
        draw = np.random.default_rng(seed)
        size = (count, *(1 for _ in shape))
        time, band = np.arange(shape[-1]), (np.arange(count) % KINDS).reshape(size)
        pitch, phase = 0.03 * 2.0 ** (band + draw.uniform(0, 0.5, size)), draw.uniform(0, 6.28, size)
        strength = draw.uniform(0.2, 0.6, (count, *shape[:-1], 1))
        tone = sum(np.sin(pitch * n * time + n * phase) / n for n in (1, 2, 3))
        made = strength * tone + draw.normal(0, 0.02, (count, *shape))
        return {name: np.clip(made, -1, 1).astype(np.float32)}

    return make


def vectors(**shapes: tuple[int, ...]) -> Samples:
    """Normal numbers cut at two deviations, by name; a kind has a mean."""

    def make(count: int, seed: int) -> dict[str, Array]:
        draw = np.random.default_rng(seed)
        made = {}
        for name, shape in shapes.items():
            means = np.random.default_rng(len(name)).normal(size=(KINDS, *shape))
            values = 0.6 * means[np.arange(count) % KINDS] + 0.6 * draw.normal(size=(count, *shape))
            made[name] = np.clip(values, -2, 2).astype(np.float32)
        return made

    return make


def words(vocabulary: int, length: int, mask: bool = True) -> Samples:
    """Ids as frequent as words are, and masks of one; a kind has words of its own."""

    def make(count: int, seed: int) -> dict[str, Array]:
        ranks = np.random.default_rng(seed).random((count, length)) ** 5
        own = (vocabulary - 2) / KINDS
        kinds = (np.arange(count) % KINDS)[:, None]
        found = {"input_ids": (1 + own * kinds + own * ranks).astype(np.int64)}
        return found | ({"attention_mask": np.ones((count, length), np.int64)} if mask else {})

    return make


def joined(samples: Samples, **numbers: tuple[int, int]) -> Samples:
    """Whole numbers by name (below how many, and how many of them), then others."""

    def make(count: int, seed: int) -> dict[str, Array]:
        draw = np.random.default_rng(seed)
        return {n: draw.integers(0, below, (count, size)) for n, (below, size) in numbers.items()} | samples(
            count, seed
        )

    return make


def both(one: Samples, other: Samples) -> Samples:
    """The inputs of both, of the same kinds."""
    return lambda count, seed: one(count, seed) | other(count, seed)


def model(
    name: str,
    module: nn.Module,
    inputs: tuple[Input, ...],
    outputs: tuple[Output, ...],
    samples: Samples,
    axes: Mapping[str, Axis] | None = None,
    seed: int | None = 1,
) -> ModelSpec:
    """A model with its sets; with a seed its weights are drawn, without one it keeps its own."""
    if seed is None:
        module.eval()  # of a program it returns nothing
    return ModelSpec(
        name=name,
        module=module if seed is None else seeded(module, seed, samples),
        inputs=inputs,
        outputs=outputs,
        axes={"batch": BATCH} if axes is None else axes,
        evaluation=lambda: evaluation(samples(ROWS, TRUTH)),
        calibration=lambda count: of(samples, count),
    )


def of(samples: Samples, count: int) -> EvaluationSet:
    """A calibration set."""
    return evaluation(samples(count, CALIBRATION))


def seeded(module: nn.Module, seed: int, samples: Samples) -> nn.Module:
    """Weights as of a trained network.

    Activations keep their size, batch norms know their inputs' statistics, and a layer with a class for each kind of
    sample tells them apart. Without that the likeliest class is left to rounding.

    Random convolutions, batch norms and activations multiply a small change by 1.2 a layer (Yang et al., A Mean Field
    Theory of Batch Normalization, 2019): a batch norm takes out what its inputs have in common, and an activation at
    zero takes out half of what is left. In MobileNetV2 with its 52 convolutions a change of 1e-4 of the pixels became
    0.19 of the answer; in trained networks (`shipped`) it becomes at most 0.0011. So where there are batch norms, their
    biases let most values through the activation, and the kernels of a convolution are orthogonal.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(like: Tensor) -> Tensor:
        return torch.randn(like.shape, generator=generator)

    norms = [m for m in module.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    with torch.no_grad():
        for name, tensor in module.named_parameters():
            if tensor.dim() > 2 and norms:
                kernels = nn.init.orthogonal_(torch.empty(tensor.shape).flatten(1), generator=generator)
                tensor.copy_((GAIN * nn.functional.normalize(kernels)).reshape(tensor.shape))
            elif tensor.dim() > 1:
                embeds = "embed" in name or "token" in name
                tensor.copy_(normal(tensor) * (0.5 if embeds else GAIN / float(tensor[0].numel()) ** 0.5))
            else:  # what scales stays near one
                tensor.copy_(0.1 * normal(tensor) + (1 if name.endswith(("weight", "lambda1")) else 0))
        module.eval()
        if norms:
            for norm in norms:
                norm.train()
                norm.momentum = None  # the mean of all batches
                if norm.bias is not None:
                    norm.bias.add_(OPEN)
            _asked(module, samples, 4 * ROWS)
            for norm in norms:  # a channel that hardly moves is not to be made of rounding alone
                if norm.running_var is not None:
                    norm.running_var.clamp_(min=QUIET * float(norm.running_var.mean()))
        module.eval()
        for head in module.modules():
            if isinstance(head, nn.Linear | nn.Conv1d | nn.Conv2d) and len(head.weight) == KINDS:
                _fit(head, module, samples)
    return module


def _fit(head: nn.Linear | nn.Conv1d | nn.Conv2d, module: nn.Module, samples: Samples) -> None:
    """Let a layer of so many outputs tell the kinds of samples apart, by ridge regression on what it is given."""
    given: list[Tensor] = []
    hook = head.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0]))
    _asked(module, samples, FITTED)
    hook.remove()
    features = given[0].double()
    if not isinstance(head, nn.Linear):
        features = features.movedim(1, -1)
    rows = features.reshape(FITTED, -1, features.shape[-1])
    kinds = (torch.arange(FITTED) % KINDS).repeat_interleave(rows.shape[1])
    wanted = CLEAR * nn.functional.one_hot(kinds, KINDS).double() - CLEAR / KINDS
    flat = torch.cat([rows.flatten(0, 1), torch.ones(len(kinds), 1, dtype=torch.float64)], 1)
    square = flat.T @ flat
    found = torch.linalg.solve(square + RIDGE * square.diagonal().mean() * torch.eye(len(square)), flat.T @ wanted)
    head.weight.copy_(found[:-1].T.reshape(head.weight.shape))
    if head.bias is not None:
        head.bias.copy_(found[-1])


def _asked(module: nn.Module, samples: Samples, count: int) -> None:
    module(*(torch.from_numpy(value) for value in samples(count, STATISTICS).values()))
