import pytest
import torch
from torch import Tensor

from edgekit.model.spec import EvaluationSet
from edgekit_arrcoc import datasets, presets
from edgekit_arrcoc.arr_coc_01 import ArrCoc01
from edgekit_arrcoc.model import initialize
from edgekit_arrcoc.texture import texture_array

NAMES = {
    *(f"participatory_scorer.texture_proj.{layer}.{kind}" for layer in (0, 2) for kind in ("weight", "bias")),
    *(f"balancer.weight_predictor.{layer}.{kind}" for layer in (0, 2, 4) for kind in ("weight", "bias")),
}


@pytest.fixture(scope="module")
def model() -> ArrCoc01:
    made = ArrCoc01(1536)
    initialize(made, 5, fan_in=True)
    return made.eval()


@pytest.fixture(scope="module")
def inputs() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(4)
    return torch.rand(3, 13, 32, 32, generator=generator), torch.randn(3, 1536, generator=generator)


def research_code(model: ArrCoc01, textures: Tensor, queries: Tensor) -> Tensor:
    """Relevance of one image as ARRCOC.md states it, written out once more: minima and maxima without a floor."""
    p = torch.softmax(textures, 1)
    entropy = -(p * torch.log(p + 1e-10)).sum(1).flatten(1)
    entropy = (entropy - entropy.min()) / (entropy.max() - entropy.min() + 1e-8)
    content = model.participatory_scorer.texture_proj(textures).flatten(2)
    asked = (torch.cosine_similarity(content, queries.unsqueeze(2), 1) + 1) / 2
    maps = [entropy, textures[:, 7].flatten(1), asked]
    summaries = [summary for m in maps for summary in (m.mean(1), m.max(1)[0], m.std(1))]
    weights = torch.softmax(model.balancer.weight_predictor(torch.cat([torch.stack(summaries, 1), queries], 1)), 1)
    mixed = sum(weights[:, k : k + 1] * m for k, m in enumerate(maps))
    assert isinstance(mixed, Tensor)
    return (mixed - mixed.min()) / (mixed.max() - mixed.min() + 1e-8)


def test_the_state_dict_has_the_public_names(model: ArrCoc01) -> None:
    assert set(model.state_dict()) == NAMES


def test_it_computes_what_the_research_code_does_for_one_image(model: ArrCoc01, inputs: tuple[Tensor, Tensor]) -> None:
    with torch.no_grad():
        for row in range(3):
            textures, queries = inputs[0][row : row + 1], inputs[1][row : row + 1]
            assert torch.allclose(
                model.of_textures(textures, queries)[0], research_code(model, textures, queries), atol=2e-5
            )


def test_outputs_are_as_the_interface_says(model: ArrCoc01, inputs: tuple[Tensor, Tensor]) -> None:
    with torch.no_grad():
        relevance, budgets, indices, tokens = model.of_textures(*inputs)
    assert relevance.shape == budgets.shape == (3, 1024)
    assert indices.shape == (3, 200)
    assert tokens.shape == (3, 200, 13)
    first = int(indices[0, 0])
    assert torch.allclose(tokens[0, 0], inputs[0][0].flatten(1)[:, first] * relevance[0, first])
    assert (int(budgets.min()), int(budgets.max())) == (64, 400)


def test_the_presets_evaluation_set_fits_it() -> None:
    whole = datasets.evaluation_set(presets.HOME / "evaluation")
    few = EvaluationSet({"images": whole.inputs["images"][:3], "queries": whole.inputs["queries"]}, whole.names)
    made = datasets.with_wide_queries(lambda: few, 1536)
    spec = presets.arr_coc_0_1()
    for declared in spec.inputs:
        assert made.inputs[declared.name].shape[1:] == spec.shape(declared.name)[1:]
        assert float(made.inputs[declared.name].min()) >= declared.low
        assert float(made.inputs[declared.name].max()) <= declared.high
    assert made.truth is None


@pytest.mark.parametrize("size", [(224, 224), (96, 160)])
def test_the_texture_array_is_computed_inside_for_each_picture_alone(model: ArrCoc01, size: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(6)
    images, queries = torch.rand(3, 3, *size, generator=generator), torch.randn(3, 1536, generator=generator)
    with torch.no_grad():
        together = model(images, queries)[0]
        for row in range(3):
            textures = texture_array(images[row : row + 1])
            alone = model.of_textures(textures, queries[row : row + 1])[0]
            assert float((alone[0] - together[row]).abs().max()) <= 2e-6
            assert torch.allclose(alone, research_code(model, textures, queries[row : row + 1]), atol=2e-5)


def test_where_nothing_differs_the_research_code_answers_with_rounding_and_this_one_with_zero(model: ArrCoc01) -> None:
    flat = torch.full((1, 13, 32, 32), 0.4)
    flat += 1e-7 * torch.randn(flat.shape, generator=torch.Generator().manual_seed(7))
    query = torch.randn(1, 1536, generator=torch.Generator().manual_seed(8))
    with torch.no_grad():
        assert float(research_code(model, flat, query).max()) > 0.9
        assert float(model.of_textures(flat, query)[0].max()) < 1e-3


def test_manifests_tell_its_numbers_from_the_public_ones() -> None:
    spec = presets.arr_coc_0_1()
    assert any("not the research code's" in note for note in spec.notes)
    assert any("budgets are edgekit's" in note for note in spec.notes)
    assert presets.arr_coc_base().notes == ()
