import numpy as np
import torch

from edgekit.arrcoc import queries, questions, scenes

SCENES = scenes.render(torch.arange(200, 206))
ASKED = questions.ask(SCENES, torch.arange(6), 40)


def test_truth_is_the_visible_share_of_every_object_that_fits() -> None:
    checked = 0
    for scene in range(6):
        for query in range(40):
            words = set(questions.describe(ASKED.concepts[scene, query]).split())
            if words == {queries.OUTLINE}:
                expected = (SCENES.outline[scene].float() / questions.OUTLINE_FULL).clamp(max=1.0)
            else:
                expected = torch.zeros(196)
                for slot, attributes in enumerate(SCENES.attributes[scene].tolist()):
                    names = {
                        values[value] for values, value in zip(scenes.ATTRIBUTES, attributes, strict=True) if value >= 0
                    }
                    if names and words - {queries.OBJECT} <= names:
                        expected += SCENES.visible[scene, slot].float() / 256
                        checked += 1
            assert torch.equal(ASKED.truth[scene, query], expected)
    assert checked > 200


def test_every_query_has_an_answer() -> None:
    assert float(ASKED.truth.sum(2).min()) > 0.2


def test_queries_have_one_to_three_attributes_in_known_shares() -> None:
    many = questions.ask(SCENES, torch.arange(50, 56), 600)
    shares = torch.bincount(many.kind.flatten(), minlength=3) / many.kind.numel()
    assert torch.allclose(shares, torch.tensor([0.88, 0.06, 0.06]), atol=0.02)
    attributes = many.concepts[..., : len(queries.CONCEPTS) - 2].sum(2)[many.kind == 0]
    words = torch.bincount(attributes, minlength=4) / len(attributes)
    assert torch.allclose(words, torch.tensor([0.0, 0.3, 0.4, 0.3]), atol=0.04)


def test_the_words_of_a_query_encode_to_the_same_vector() -> None:
    table, vocabulary = queries.concept_table(), queries.vocabulary()
    vectors = ASKED.encode(table)
    for query in range(40):
        text = questions.describe(ASKED.concepts[0, query])
        assert np.allclose(vocabulary.encode(text).vector, vectors[0, query].numpy(), atol=1e-7)


def test_a_scene_asked_alone_gets_the_same_queries() -> None:
    alone = scenes.Scenes(
        *(getattr(SCENES, name)[4:5] for name in ("images", "attributes", "visible", "outline", "area"))
    )
    asked = questions.ask(alone, torch.tensor([4]), 40)
    assert torch.equal(asked.concepts[0], ASKED.concepts[4])
    assert torch.equal(asked.truth[0], ASKED.truth[4])
