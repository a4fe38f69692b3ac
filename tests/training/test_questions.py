import dataclasses

import numpy as np
import torch

from edgekit_arrcoc import queries
from training import questions, scenes

SCENES = scenes.render(torch.arange(200, 206))
ASKED = questions.ask(SCENES, torch.arange(6), 40)


def test_shares_say_how_many_have_no_answer() -> None:
    for shares, answer in (((0, 0), 0), ((100, 0), 1), ((0, 100), 2)):
        asked = questions.ask(SCENES, torch.arange(6), 100, shares)
        assert float((asked.answer[asked.kind == 0] == answer).float().mean()) > 0.9


def test_nothing_grey_is_asked_for_its_colour_and_empty_scenes_can_be_asked() -> None:
    fields = {name: getattr(SCENES, name) for name in ("images", "visible", "outline", "area", "nouns", "unclear")}
    empty = torch.full_like(SCENES.attributes, -1)
    grey = scenes.Scenes(**fields, attributes=SCENES.attributes, grey=torch.ones_like(SCENES.grey))
    colours = slice(3, 3 + len(scenes.COLOURS))
    assert not bool(questions.ask(grey, torch.arange(6), 200).concepts[..., colours].any())
    nothing = scenes.Scenes(**fields | {"visible": 0 * SCENES.visible}, attributes=empty, grey=SCENES.grey)
    asked = questions.ask(nothing, torch.arange(6), 200)
    assert int(asked.concepts.sum(2).min()) > 0
    assert float(asked.truth[asked.kind != 2].max()) == 0.0


def test_the_words_of_a_query_encode_to_the_same_vector() -> None:
    table, vocabulary = queries.concept_table(), queries.vocabulary()
    vectors = ASKED.encode(table)
    for query in range(40):
        text = questions.describe(ASKED.concepts[0, query])
        assert np.allclose(vocabulary.encode(text), vectors[0, query].numpy(), atol=1e-7)


def test_a_scene_asked_alone_gets_the_same_queries() -> None:
    alone = scenes.Scenes(*(getattr(SCENES, field.name)[4:5] for field in dataclasses.fields(scenes.Scenes)))
    asked = questions.ask(alone, torch.tensor([4]), 40)
    assert torch.equal(asked.concepts[0], ASKED.concepts[4])
    assert torch.equal(asked.truth[0], ASKED.truth[4])
