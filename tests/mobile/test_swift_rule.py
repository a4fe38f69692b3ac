"""The arithmetic of the Swift library, computed in Python: which size a picture gets, and in which patch a pixel lies.

There is no Swift compiler here. These functions are plain enough (`let`, `if`, `for`, arithmetic of numbers that are
not negative) to be rewritten line by line. All else of the library, types and calls of these functions, is parsed only.
"""

from __future__ import annotations

import json
import math
import re
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

SOURCES = Path(__file__).parents[2] / "mobile" / "apple" / "Sources" / "Edgekit"
GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "fitting.json").read_text())
SIZE = ("bestSize", "misfit", "quotient", "sizesNear")
FUNCTION = r"^( *)(?:private |public )*func {name}\((.*)\) -> .* \{{\n((?:.*\n)*?)\1\}}$"
LINES = (
    (r"^( *)(if|for) (.*) \{$", r"\1\2 \3:"),
    (r"^ *\}$", ""),
    (r"\b(?:let|var) (\w+)(?:: [\w\[\]]+)? = ", r"\1 = "),
    (r"\b(from|through|by|height|width|top|left): ", r"\1_="),
    (r"\|\|", "or"),
    (r"\bnil\b", "None"),
    (r"\bDouble\.infinity\b", "math.inf"),
    (r"^((?!.*Double\().*) / ", r"\1 // "),
)
"""A line of Swift -> the same in Python; a division of integers is one."""


def test_a_picture_gets_the_size_that_it_gets_in_the_other_languages() -> None:
    assert wrong_sizes((SOURCES / "InputSize.swift").read_text()) == []


def test_a_rule_that_is_changed_shows() -> None:
    text = (SOURCES / "InputSize.swift").read_text()
    for old, new in (
        ("square * square *", "square *"),
        ("[below, below + 1]", "[below]"),
        ("cost < least", "cost > least"),
    ):
        assert text.count(old) == 1
        assert wrong_sizes(text.replace(old, new)), old


def test_a_pixel_lies_in_the_patch_of_the_other_languages() -> None:
    names = translated((SOURCES / "Grid.swift").read_text(), ("middle", "share", "cell", "patch"))
    for case in GOLDEN["grids"]:
        picture, size = edges(*case["picture"]), edges(*case["size"])
        part, place = (box(*case[name]) for name in ("part", "place"))
        names |= {name: case[name] for name in ("rows", "columns")}
        names |= {
            "size": size,
            "placement": SimpleNamespace(part=part, place=place),
        }  # the record that it is a method of
        assert [names["patch"](y, x) for y, x, _ in case["patches"]] == [patch for *_, patch in case["patches"]]
        assert names["middle"](size, edges(place.height, place.width)) == place
        assert names["middle"](picture, edges(part.height, part.width)) == part
    assert (names["share"](32, 5, 7), names["share"](1, 1, 9)) == (23, 1)


def wrong_sizes(swift: str) -> list[Any]:
    """The pictures of the golden vectors that get another size by the rule of a Swift file."""
    names = translated(swift, SIZE)
    axis = SimpleNamespace(**GOLDEN["axis"], multipleOf=GOLDEN["axis"]["multiple_of"])
    usual, listed = edges(axis.default, axis.default), [edges(*size) for size in GOLDEN["listed"]["sizes"]]

    def size_of(picture: Any, possible: Any) -> Any:
        return names["bestSize"](possible, usual, picture)

    near = [(case, names["sizesNear"](axis, axis, edges(*case["picture"]))) for case in GOLDEN["cases"]]
    cases = [*near, *((case, listed) for case in GOLDEN["listed"]["cases"])]
    return [case for case, possible in cases if size_of(edges(*case["picture"]), possible) != edges(*case["size"])]


def translated(swift: str, names: tuple[str, ...]) -> dict[str, Any]:
    """Functions of a Swift file as those of Python."""
    known: dict[str, Any] = {"math": math, "Double": float, "InputSize": edges, "Box": box, "stride": stride}
    for name in names:
        found = re.search(FUNCTION.format(name=name), swift, re.MULTILINE)
        assert found is not None, name
        body = textwrap.dedent(found[3])
        for pattern, replacement in LINES:
            body = re.sub(pattern, replacement, body, flags=re.MULTILINE)
        parameters = ", ".join(one.split(":")[0].split()[-1] for one in found[2].split(", "))
        exec(f"def {name}({parameters}):\n{textwrap.indent(body, '    ')}", known)  # noqa: S102 - our own file
    return known


def edges(height_: int, width_: int) -> SimpleNamespace:
    return SimpleNamespace(height=height_, width=width_)


def box(top_: int, left_: int, height_: int, width_: int) -> SimpleNamespace:
    return SimpleNamespace(top=top_, left=left_, height=height_, width=width_)


def stride(from_: int, through_: int, by_: int) -> range:
    return range(from_, through_ + 1, by_)
