from __future__ import annotations

import inspect
import re

import pytest

from edgekit import errors
from edgekit.errors import EdgekitError

KINDS = {
    name: kind
    for name, kind in vars(errors).items()
    if inspect.isclass(kind) and issubclass(kind, Exception) and kind.__module__ == errors.__name__
}


def test_the_tree_in_the_docstring_is_the_tree_of_the_classes() -> None:
    drawn = re.findall(r"^( *)(?:│ +)?(?:[├└]── )?(\w+(?:Error|Here)) {2,}", errors.__doc__ or "", re.MULTILINE)
    assert {name for _, name in drawn} == set(KINDS)


@pytest.mark.parametrize("name", sorted(set(KINDS) - {"EdgekitError"}))
def test_every_error_is_one_that_a_user_can_act_on_and_keeps_its_sentence(name: str) -> None:
    assert issubclass(KINDS[name], EdgekitError)
    assert str(KINDS[name]("the file 'a' is damaged: export again")) == "the file 'a' is damaged: export again"
    assert KINDS[name].__doc__


def test_a_bug_is_none_of_them() -> None:
    assert not issubclass(EdgekitError, ValueError | OSError | RuntimeError)
    assert EdgekitError.__mro__[1] is Exception
