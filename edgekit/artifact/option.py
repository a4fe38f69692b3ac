"""Option of a target: declared once with its type; parsed, refused and described only here.

On the command line an option is text (`-O onnx.opset=21`), in Python a value (`options={"onnx": {"opset": 21}}`). Both
go through `Option.parse`, so a target only sees values of the declared type.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from edgekit.errors import UsageError, in_any_case

OptionValue = bool | int | float | str | Path | tuple[str, ...] | None
T_co = TypeVar("T_co", bound=OptionValue, covariant=True)

_FLAGS = {"yes": True, "true": True, "on": True, "1": True, "no": False, "false": False, "off": False, "0": False}
_KINDS: dict[type, str] = {
    bool: "flag",
    int: "integer",
    float: "number",
    str: "text",
    tuple: "list",
    type(None): "folder",
}
_SCHEMAS: dict[str, dict[str, object]] = {
    "flag": {"type": "boolean"},
    "integer": {"type": "integer"},
    "number": {"type": "number"},
    "text": {"type": "string"},
    "list": {"type": "array", "items": {"type": "string"}},
    "folder": {"type": ["string", "null"], "format": "path"},
}


@dataclass(frozen=True, kw_only=True)
class Option(Generic[T_co]):
    """An option of a target: `-O TARGET.NAME=VALUE` on the command line.

    Attributes:
        name: Its name for users.
        default: The default value. Its type is the option's: bool (yes or no), int, float, str, tuple (a list of words,
            separated by commas) or None (a folder, whose content but not its path is part of the artifact's key).
        help: One line.
        choices: The possible values; empty for all of the type.
        minimum: Smallest number.
        maximum: Largest number.
        unit: Unit of a number, for example "ms" or "images".
    """

    name: str
    default: T_co
    help: str
    choices: tuple[T_co, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    unit: str = ""

    @property
    def kind(self) -> str:
        """Its type in a word: flag, integer, number, text, list or folder."""
        return _KINDS[type(self.default)]

    @property
    def possible(self) -> str:
        """Possible values, for an error."""
        if self.choices:
            return ", ".join(as_text(choice) for choice in self.choices)
        bounds = [f"at least {self.minimum:g}"] if self.minimum is not None else []
        bounds += [f"at most {self.maximum:g}"] if self.maximum is not None else []
        kinds = {
            "flag": "yes, no",
            "integer": "whole numbers",
            "number": "numbers",
            "list": "words with commas between",
        }
        return " ".join([kinds.get(self.kind, f"a {self.kind}"), *([" and ".join(bounds)] if bounds else [])])

    def parse(self, target: str, raw: object) -> OptionValue:
        """Return the user's text or value as a value of the option's type.

        Args:
            target: The target's name, for the error.
            raw: Text of the command line, or a value from Python.

        Raises:
            UsageError: With the option, the value and the possible values.
        """
        value = self._convert(raw)
        inside = not isinstance(value, int | float) or (
            (self.minimum is None or value >= self.minimum) and (self.maximum is None or value <= self.maximum)
        )
        members = value if isinstance(value, tuple) else (value,)
        allowed = not self.choices or all(member in _members(self.choices) for member in members)
        if isinstance(value, _InvalidValue) or not inside or not allowed:
            # A text as the command line writes it, anything else as Python does.
            text = f"'{raw}'" if isinstance(raw, str) else repr(raw)
            raise UsageError(f"option '{target}.{self.name}' cannot be {text}. Possible values: {self.possible}")
        return value

    def schema(self) -> dict[str, object]:
        """Return its JSON schema (draft 2020-12)."""
        schema = {**_SCHEMAS[self.kind], "description": self.help, "default": _plain(self.default)}
        if self.kind == "list" and self.choices:
            schema["items"] = {"type": "string", "enum": sorted(map(str, _members(self.choices)))}
        elif self.choices:
            schema["enum"] = [_plain(choice) for choice in self.choices]
        bounds = {"minimum": self.minimum, "maximum": self.maximum, "x-unit": self.unit or None}
        return schema | {name: bound for name, bound in bounds.items() if bound is not None}

    def _convert(self, value: object) -> OptionValue | _InvalidValue:
        if self.kind == "flag":
            return value if isinstance(value, bool) else _FLAGS.get(str(value).lower(), _InvalidValue())
        if self.kind in ("integer", "number"):
            try:
                number = int(str(value)) if self.kind == "integer" else float(str(value))
            except ValueError:
                return _InvalidValue()
            # float() also accepts "nan" and "inf".
            return number if math.isfinite(number) else _InvalidValue()
        if self.kind == "list":
            if not isinstance(value, str | list | tuple):
                return _InvalidValue()
            words = (word for word in as_text(value).split(",") if word)
            return tuple(in_any_case(word, map(str, _members(self.choices))) for word in words)
        if self.kind == "folder":
            return Path(str(value)) if value else None
        return in_any_case(str(value), map(str, self.choices))


class _InvalidValue:
    """Marker for an invalid value."""


def as_text(value: object) -> str:
    """Return a value as in the command line and the manifest: yes and no, words with commas, "" for no folder."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple | list):
        return ",".join(str(word) for word in value)
    return str(value)


def _members(choices: tuple[object, ...]) -> set[object]:
    return {member for choice in choices for member in (choice if isinstance(choice, tuple) else (choice,))}


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else str(value) if isinstance(value, Path) else value
