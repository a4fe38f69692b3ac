import numpy as np
import torch

from edgekit.arrcoc import queries
from training import questions, scenes

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


def test_queries_that_objects_fit_have_an_answer_and_others_have_none() -> None:
    sums = ASKED.truth.sum(2)
    assert float(sums[ASKED.answer == 0].min()) > 0.2
    assert float(sums[ASKED.answer > 0].max()) == 0.0
    unanswered = (questions.ask(SCENES, torch.arange(6), 600).truth.sum(2) == 0).float().mean()
    assert float(unanswered) > 0.25


def test_hard_queries_name_what_is_there_and_absent_ones_what_is_not() -> None:
    checked = [0, 0, 0]
    for scene in range(6):
        objects = [
            {values[value] for values, value in zip(scenes.ATTRIBUTES, attributes, strict=True)}
            for attributes in SCENES.attributes[scene].tolist()
            if attributes[0] >= 0
        ]
        for query in torch.nonzero(ASKED.kind[scene] == 0)[:, 0].tolist():
            words = set(questions.describe(ASKED.concepts[scene, query]).split()) - {queries.OBJECT}
            there = any(words <= own for own in objects)
            somewhere = words <= set().union(*objects)
            expected = 0 if there else 2 if somewhere else 1
            assert int(ASKED.answer[scene, query]) == expected
            checked[expected] += 1
    assert min(checked) > 20


def test_shares_say_how_many_have_no_answer() -> None:
    for shares, answer in (((0, 0), 0), ((100, 0), 1), ((0, 100), 2)):
        asked = questions.ask(SCENES, torch.arange(6), 100, shares)
        assert float((asked.answer[asked.kind == 0] == answer).float().mean()) > 0.9


def test_nothing_grey_is_asked_for_its_colour_and_empty_scenes_can_be_asked() -> None:
    fields = {name: getattr(SCENES, name) for name in ("images", "visible", "outline", "area")}
    empty = torch.full_like(SCENES.attributes, -1)
    grey = scenes.Scenes(**fields, attributes=SCENES.attributes, grey=torch.ones_like(SCENES.grey))
    colours = slice(3, 3 + len(scenes.COLOURS))
    assert not bool(questions.ask(grey, torch.arange(6), 200).concepts[..., colours].any())
    nothing = scenes.Scenes(**fields | {"visible": 0 * SCENES.visible}, attributes=empty, grey=SCENES.grey)
    asked = questions.ask(nothing, torch.arange(6), 200)
    assert int(asked.concepts.sum(2).min()) > 0
    assert float(asked.truth[asked.kind != 2].max()) == 0.0


def test_queries_have_one_to_three_attributes_in_known_shares() -> None:
    many = questions.ask(SCENES, torch.arange(50, 56), 600, (0, 0))
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
        *(getattr(SCENES, name)[4:5] for name in ("images", "attributes", "visible", "outline", "area", "grey"))
    )
    asked = questions.ask(alone, torch.tensor([4]), 40)
    assert torch.equal(asked.concepts[0], ASKED.concepts[4])
    assert torch.equal(asked.truth[0], ASKED.truth[4])
