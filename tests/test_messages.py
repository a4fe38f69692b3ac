"""A change of words is a reviewed change: all sentences of the Python code are in messages.txt."""

import re

import pytest

from tests.messages import GOLDEN, collect

PRIVATE = ("forgiv", " born", "mend", "strange", "unfit", "blind", "recommended", "stumble", "patience")


def test_every_sentence_is_reviewed() -> None:
    found, reviewed = set(collect()), set(GOLDEN.read_text().splitlines())
    new, gone = sorted(found - reviewed), sorted(reviewed - found)
    assert (new, gone) == ([], []), "review these sentences, then run `python tests/messages.py --write`"


@pytest.mark.parametrize("word", PRIVATE)
def test_no_private_words(word: str) -> None:
    lines = [line for line in GOLDEN.read_text().splitlines() if re.search(word, line)]
    assert not lines
