import dataclasses
from pathlib import Path

import pytest
import torch

from edgekit.errors import UsageError
from edgekit_arrcoc.queries import ATTRIBUTES, DRAWN, GROUPS, MEANINGS, NAMES, NOUN_SYNONYMS, NOUNS, concept_table
from training import flat, naming, questions, scenes, sprites, train
from training.names import ALSO, SLUGS

THINGS = sprites.load(sprites.HERE, (sprites.HELD_OUT,))
SEEDS = torch.arange(300, 308)
SCENES = scenes.render(SEEDS, sprites=THINGS)
PLAIN = flat.render(SEEDS, None, THINGS)


def test_every_noun_is_in_the_held_out_set_which_is_not_trained_on() -> None:
    assert int((THINGS.counts > 0).sum()) == len(NOUNS)
    assert sprites.HELD_OUT not in train.TAUGHT
    assert sprites.CALIBRATION in train.TAUGHT


def test_words_name_what_there_is() -> None:
    assert len(set(MEANINGS)) == len(MEANINGS)
    assert set(SLUGS) <= set(NOUNS)
    assert set(ALSO) <= set(NOUNS)
    assert {word for words in ALSO.values() for word in words} <= set(MEANINGS)
    assert set(NOUN_SYNONYMS) <= set(NAMES)
    assert not {word for words in NOUN_SYNONYMS.values() for word in words} & set(MEANINGS)


def test_rows_of_nouns_follow_from_the_word_and_are_all_different() -> None:
    table = concept_table()
    assert len(torch.unique(table, dim=0)) == len(MEANINGS)
    # the rows of the first editions
    assert (table[0, :3] * 256).tolist() == [-207.0, 91.0, 1.0]


def test_a_sprite_has_the_colour_that_one_sees() -> None:
    colours = ATTRIBUTES[1]
    for noun, colour in (("lemon", "yellow"), ("broccoli", "green"), ("snowman", "white")):
        row = int(torch.nonzero(THINGS.noun == NOUNS.index(noun))[0])
        assert THINGS.colour[row] == colours.index(colour)
        assert not THINGS.unclear[row, MEANINGS.index(colour)]
    ladybug = int(torch.nonzero(THINGS.noun == NOUNS.index("ladybug"))[0])
    assert THINGS.colour[ladybug] == -1
    assert THINGS.unclear[ladybug, [MEANINGS.index("red"), MEANINGS.index("black")]].all()


@pytest.mark.parametrize("rendered", [SCENES, PLAIN])
def test_scenes_have_sprites_among_their_objects(rendered: scenes.Scenes) -> None:
    shown = rendered.nouns >= 0
    assert shown.any()
    assert (rendered.attributes[shown][:, 2:] == -1).all()
    assert (rendered.attributes[shown][:, 0] >= 0).all()
    assert (rendered.visible[shown].sum(1) > 0).float().mean() > 0.8


def test_scenes_without_sprites_are_as_they_were() -> None:
    drawn = scenes.render(SEEDS[:2])
    assert (drawn.nouns == -1).all()
    assert not drawn.unclear.any()


def test_a_sprite_is_where_its_truth_is() -> None:
    alone = PLAIN.visible.sum(2).gt(0).sum(1) == 1
    row = int(torch.nonzero(alone & (PLAIN.nouns[:, 0] >= 0))[0])
    image = PLAIN.images[row].float()
    ground = image[:, 0, 0].view(3, 1, 1)
    inked = ((image - ground).abs().sum(0) > 60).reshape(14, 16, 14, 16).sum((1, 3)).flatten().float()
    seen = PLAIN.visible[row, 0].float()
    assert torch.corrcoef(torch.stack([inked, seen]))[0, 1] > 0.8


@pytest.mark.parametrize("rendered", [SCENES, PLAIN])
def test_answers_are_true_and_what_nobody_can_say_is_not_asked(rendered: scenes.Scenes) -> None:
    posed = naming.pose(rendered, SEEDS, 60)
    asked = questions.answered(rendered, posed)
    groups = sprites.group_of()
    seen = {0: 0, 1: 0, 2: 0}
    for scene, query in torch.nonzero(posed.kind == 0).tolist():
        words = torch.nonzero(posed.concepts[scene, query])[:, 0]
        words = words[words != MEANINGS.index("object")]
        assert not rendered.unclear[scene, words].any()
        fits = []
        for slot in range(rendered.nouns.shape[1]):
            own = set()
            for part, (start, value) in enumerate(
                zip(naming.STARTS, rendered.attributes[scene, slot].tolist(), strict=False)
            ):
                own |= {start + value} if value >= 0 and part < len(ATTRIBUTES) else set()
            noun = int(rendered.nouns[scene, slot])
            own |= {len(DRAWN) + noun, int(groups[noun])} if noun >= 0 else set()
            fits.append(set(words.tolist()) <= own)
        assert fits == posed.fits[scene, query].tolist()
        seen[int(posed.answer[scene, query])] += 1
        assert (int(posed.answer[scene, query]) == 0) == any(fits)
        if not any(fits):
            assert asked.truth[scene, query].sum() == 0
    assert min(seen.values()) > 0


def test_a_group_fits_all_that_is_of_it() -> None:
    groups = sprites.group_of()
    assert MEANINGS[groups[NOUNS.index("duck")]] == "bird"
    assert groups[NOUNS.index("robot")] == -1
    assert all(MEANINGS[groups[NOUNS.index(noun)]] == "fruit" for noun in GROUPS["fruit"])


def test_nouns_are_asked_about_scenes_without_sprites_too() -> None:
    drawn = scenes.render(SEEDS[:4])
    posed = questions.pose(drawn, SEEDS[:4], 200)
    more = naming.elsewhere(posed, SEEDS[:4])
    changed = more.concepts[..., len(DRAWN) :].any(2)
    assert 0.02 < float(changed.float().mean()) < 0.15
    assert not more.fits[changed].any()
    assert (more.answer[changed] == 1).all()
    for field in dataclasses.fields(posed):
        assert torch.equal(getattr(more, field.name)[~changed], getattr(posed, field.name)[~changed])


def test_a_folder_without_sprites_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"training\.sprites --out"):
        sprites.load(tmp_path, ("noto",))
