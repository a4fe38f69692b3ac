"""Options: every kind is parsed, refused with the possible values, described as JSON schema, and written as text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest

from edgekit import registry
from edgekit.artifact.option import Option, OptionValue, as_text
from edgekit.errors import UsageError

FLAG = Option(name="flag", default=False, help="a flag")
COUNT = Option(name="count", default=20, help="a count", minimum=1, maximum=64, unit="images")
OPSET = Option(name="opset", default=20, help="a version", choices=(20, 21))
SHARE = Option(name="share", default=0.5, help="a share", minimum=0.0, maximum=1.0)
ANY = Option(name="any", default=1.5, help="a number")
TEXT = Option(name="text", default="", help="a text")
WORD = Option(name="word", default="auto", help="a word", choices=("auto", "minmax"))
LIST = Option[tuple[str, ...]](name="list", default=(), help="words")
PARTS = Option[tuple[str, ...]](name="parts", default=("a",), help="parts", choices=(("a", "b"), ("c",)))
FOLDER = Option[Path | None](name="folder", default=None, help="a folder")
ALL: tuple[Option[Any], ...] = (FLAG, COUNT, OPSET, SHARE, ANY, TEXT, WORD, LIST, PARTS, FOLDER)


@pytest.mark.parametrize(
    ("option", "kind"),
    [(FLAG, "flag"), (COUNT, "integer"), (SHARE, "number"), (TEXT, "text"), (LIST, "list"), (FOLDER, "folder")],
)
def test_the_default_says_the_kind(option: Option[Any], kind: str) -> None:
    assert option.kind == kind


@pytest.mark.parametrize(
    ("option", "given", "value"),
    [
        *((FLAG, text, True) for text in ("yes", "true", "on", "1", "YES", True)),
        *((FLAG, text, False) for text in ("no", "false", "off", "0", "No", False)),
        (COUNT, "7", 7),
        (COUNT, 64, 64),
        (OPSET, "21", 21),
        (SHARE, 1, 1.0),
        (SHARE, "1e-3", 0.001),
        (ANY, "-3", -3.0),
        (TEXT, "", ""),
        (TEXT, "a=b, c", "a=b, c"),
        (WORD, "minmax", "minmax"),
        (WORD, "MinMax", "minmax"),
        (LIST, "", ()),
        (LIST, "a,,b,", ("a", "b")),
        (LIST, ["a", "b"], ("a", "b")),
        (LIST, ("a,b", "c"), ("a", "b", "c")),
        (PARTS, "c,a", ("c", "a")),
        (PARTS, "C,a", ("c", "a")),
        (FOLDER, "", None),
        (FOLDER, "photos", Path("photos")),
        (FOLDER, Path("photos/a"), Path("photos/a")),
    ],
)
def test_text_and_values_become_the_declared_type(option: Option[Any], given: object, value: OptionValue) -> None:
    parsed = option.parse("t", given)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("option", "given", "sentence"),
    [
        (FLAG, "maybe", "option 't.flag' cannot be 'maybe'. Possible values: yes, no"),
        (FLAG, 2, "option 't.flag' cannot be 2. Possible values: yes, no"),
        (COUNT, "many", "option 't.count' cannot be 'many'. Possible values: whole numbers at least 1 and at most 64"),
        (COUNT, "0", "option 't.count' cannot be '0'. Possible values: whole numbers at least 1 and at most 64"),
        (COUNT, "65", "option 't.count' cannot be '65'. Possible values: whole numbers at least 1 and at most 64"),
        (COUNT, True, "option 't.count' cannot be True. Possible values: whole numbers at least 1 and at most 64"),
        (OPSET, "7", "option 't.opset' cannot be '7'. Possible values: 20, 21"),
        (SHARE, "1.5", "option 't.share' cannot be '1.5'. Possible values: numbers at least 0 and at most 1"),
        (SHARE, "nan", "option 't.share' cannot be 'nan'. Possible values: numbers at least 0 and at most 1"),
        (ANY, "nan", "option 't.any' cannot be 'nan'. Possible values: numbers"),
        (ANY, "inf", "option 't.any' cannot be 'inf'. Possible values: numbers"),
        (WORD, "guess", "option 't.word' cannot be 'guess'. Possible values: auto, minmax"),
        (LIST, 3, "option 't.list' cannot be 3. Possible values: words with commas between"),
        (PARTS, "a,d", "option 't.parts' cannot be 'a,d'. Possible values: a,b, c"),
    ],
)
def test_what_is_not_possible_is_refused_with_what_is(option: Option[Any], given: object, sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        option.parse("t", given)
    assert str(refused.value) == sentence


@pytest.mark.parametrize("option", ALL, ids=lambda option: option.name)
def test_the_default_is_possible_fits_the_schema_and_survives_the_way_to_a_worker(option: Option[Any]) -> None:
    assert option.parse("t", option.default) == option.default
    assert option.parse("t", as_text(option.default)) == option.default
    schema = option.schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(schema["default"], schema)
    assert schema["description"] == option.help


@pytest.mark.parametrize(
    ("option", "fits", "does_not"),
    [
        (FLAG, True, "yes"),
        (COUNT, 64, 65),
        (COUNT, 1, 0),
        (COUNT, 1, 1.5),
        (OPSET, 21, 22),
        (SHARE, 0.5, -0.1),
        (TEXT, "a", 1),
        (WORD, "minmax", "guess"),
        (LIST, ["a"], "a"),
        (PARTS, ["b", "c"], ["d"]),
        (FOLDER, None, 3),
        (FOLDER, "photos", 3),
    ],
)
def test_the_schema_admits_what_is_possible_and_nothing_else(
    option: Option[Any], fits: object, does_not: object
) -> None:
    jsonschema.validate(fits, option.schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(does_not, option.schema())


def test_the_schema_names_the_unit() -> None:
    assert COUNT.schema() == {
        "type": "integer",
        "description": "a count",
        "default": 20,
        "minimum": 1,
        "maximum": 64,
        "x-unit": "images",
    }


def test_every_option_of_every_target_is_described_and_possible() -> None:
    targets, _ = registry.loadable()
    options = [(name, option) for name, target in targets.items() for option in target.options]
    assert {"onnx", "onnx-int8-static", "coreml", "web", "executorch"} <= {name for name, _ in options}
    for name, option in options:
        assert option.help
        assert option.parse(name, as_text(option.default)) == option.default
        for choice in option.choices:
            assert option.parse(name, as_text(choice)) == choice
        jsonschema.validate(option.schema()["default"], option.schema())
        with pytest.raises(UsageError, match="has no option 'colour'"):
            registry.parse_options(name, targets[name], {"colour": "red"})


def test_what_the_user_leaves_out_has_its_default_and_its_type() -> None:
    static = registry.find("onnx-int8-static")
    parsed = registry.parse_options("onnx-int8-static", static, {"search": "none", "reduce_range": "yes"})
    assert parsed["search"] == "none"
    assert parsed["reduce_range"] is True
    assert parsed["calibration"] is None
    assert {option.name for option in static.options} == set(parsed)
