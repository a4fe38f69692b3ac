import copy
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from edgekit_arrcoc import presets
from edgekit_arrcoc.balancing import summarize
from edgekit_arrcoc.knowing import InformationScorer, QueryContentScorer, SalienceScorer
from edgekit_arrcoc.model import TINY, ArrCoc, initialize

SHAPES = ((1, 96, 96), (2, 224, 160), (5, 112, 240))


@pytest.fixture(scope="module")
def model() -> ArrCoc:
    module = presets.arr_coc_tiny().module
    assert isinstance(module, ArrCoc)
    return module


@pytest.fixture(scope="module")
def inputs() -> tuple[Tensor, Tensor]:
    spec = presets.arr_coc_tiny()
    assert spec.evaluation is not None
    made = spec.evaluation().inputs
    return torch.from_numpy(made["images"][:5]), torch.from_numpy(made["queries"][:5])


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def pair(batch: int, height: int, width: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(height)
    images = torch.rand(batch, 3, height // 8, width // 8, generator=generator)
    images = torch.nn.functional.interpolate(images, size=[height, width], mode="bilinear", align_corners=False)
    return images, torch.rand(batch, 768, generator=generator) * 2 - 1


@pytest.mark.parametrize(("batch", "height", "width"), SHAPES)
def test_outputs_are_as_the_interface_says(model: ArrCoc, batch: int, height: int, width: int) -> None:
    relevance, budgets, indices, tokens = model(*pair(batch, height, width))
    count = height * width // 256
    assert relevance.shape == budgets.shape == (batch, count)
    assert indices.shape == (batch, 32)
    assert tokens.shape == (batch, 32, 192)
    assert (relevance.dtype, budgets.dtype, indices.dtype) == (torch.float32, torch.int64, torch.int64)
    assert float(relevance.min()) >= 0.0
    assert float(relevance.max()) <= 1.0
    assert torch.equal(budgets, torch.floor(64 + 336 * relevance.double() + 0.5).long())
    chosen = relevance.gather(1, indices)
    assert bool((chosen[:, :-1] >= chosen[:, 1:]).all())
    assert torch.equal(chosen, relevance.sort(1, descending=True)[0][:, :32])


def test_an_answer_does_not_depend_on_batch_mates(model: ArrCoc, inputs: tuple[Tensor, Tensor]) -> None:
    together = model(*inputs)
    for row in range(5):
        alone = model(inputs[0][row : row + 1], inputs[1][row : row + 1])
        # The same kernels with other blockings: a few units in the last place of the features.
        assert float((alone[0][0] - together[0][row]).abs().max()) <= 1e-6
        assert torch.equal(alone[2][0], together[2][row])


def test_half_precision_stays_within_its_gate(model: ArrCoc, inputs: tuple[Tensor, Tensor]) -> None:
    half = copy.deepcopy(model).half()(inputs[0].half(), inputs[1].half())[0]
    assert bool(torch.isfinite(half).all())
    assert float((half.float() - model(*inputs)[0]).abs().max()) < 1e-2


def test_a_flat_image_has_a_nearly_flat_map(model: ArrCoc, inputs: tuple[Tensor, Tensor]) -> None:
    grey = torch.full((1, 3, 224, 224), 0.5)
    for query in inputs[1]:
        assert float(np.ptp(model(grey, query[None])[0].numpy())) < 0.2


def test_flat_features_give_flat_scores() -> None:
    features = torch.randn(1, 1, 192).expand(1, 36, 192)
    assert float(np.ptp(InformationScorer(192)(features).detach().numpy())) < 1e-5
    # Cells differ within a patch, but all patches are alike but for those at the border.
    inner = SalienceScorer(192)(features, 6, 6).detach().view(6, 6)[1:-1, 1:-1]
    assert float(np.ptp(inner.numpy())) < 1e-5
    scores = QueryContentScorer(192)(features, torch.randn(1, 2, 768))
    assert float(np.ptp(scores.detach().numpy(), 2).max()) < 1e-5


def test_the_scorers_formulas() -> None:
    features = torch.randn(2, 36, 192)
    information, query = InformationScorer(192), QueryContentScorer(192)
    p = torch.softmax(information.code(features), -1)
    assert torch.allclose(information(features), -(p * torch.log(p + 1e-8)).sum(-1), atol=1e-5)
    asked = torch.randn(2, 1, 768)
    logits = (query.question(asked) * query.content(features)).sum(-1) / 192**0.5
    # One answer more, "nothing here", counts as all the patches.
    nothing = query.nothing + float(np.log(36))
    shares = torch.softmax(torch.cat([logits, nothing.expand(2, 1)], 1), -1)[:, :-1]
    assert torch.allclose(query(features, asked)[:, 0], torch.log(36 * shares), atol=1e-5)


def test_the_balancer_sees_mean_maximum_and_deviation() -> None:
    maps = torch.rand(1, 1, 3, 50)
    seen = summarize(maps)[0, 0]
    assert torch.allclose(seen[:3], maps.mean(-1)[0, 0])
    assert torch.equal(seen[3:6], maps.amax(-1)[0, 0])
    assert torch.allclose(seen[6:], maps.std(-1, correction=0)[0, 0], atol=1e-5)


def test_an_explanation_adds_up(model: ArrCoc, inputs: tuple[Tensor, Tensor]) -> None:
    why = model.explain(*inputs)
    assert torch.allclose(why.weights.sum(1), torch.ones(5))
    assert torch.allclose((why.maps * why.weights.unsqueeze(2)).sum(1), why.relevance, atol=1e-6)
    assert torch.equal(why.relevance, model(*inputs)[0])


def test_initial_weights_follow_the_seed() -> None:
    models = [ArrCoc(TINY) for _ in range(3)]
    for made, seed in zip(models, (1, 1, 2), strict=True):
        initialize(made, seed)
    first, same, other = (made.state_dict()["texture.blocks.0.mlp.0.weight"] for made in models)
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
