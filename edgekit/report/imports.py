"""Results that other devices wrote: `imported/<name>/result.json` in a build. Whoever wrote one may have meant harm.

A result is checked before it is taken in (`add_result`) and again whenever it is read, since anyone may copy a folder:
its size before its content, then its JSON and its values. One that fails is refused in a sentence, and the report shows
it as unreadable beside everything else.
"""

from __future__ import annotations

import itertools
import json
import stat
from pathlib import Path
from typing import Any, NoReturn

from pydantic import ValidationError

from edgekit.artifact.result import RESULT, Result
from edgekit.errors import ArtifactError, UsageError
from edgekit.storage.door import visible
from edgekit.storage.files import write_bytes

IMPORTED = "imported"
LARGEST = 1 << 20  # bytes; a phone's result is about 2 KiB
LARGEST_MAPS = 256 << 20  # bytes of score maps that lie beside a result
MOST_VALUES = 50_000
LONGEST_TEXT = 2_000  # characters
LONGEST_NAME = 100  # characters of an imported folder's name


def add_result(build: Path, path: Path, name: str) -> Path:
    """Copy a result.json that another device wrote into a build; returns the file there.

    Args:
        build: The model's build folder.
        path: The result.json.
        name: What the report calls it, for example "pixel-8-onnx"; letters, digits, dots, dashes and underscores.

    Raises:
        ArtifactError: If the result cannot be taken.
        UsageError: If there is no build, or the name is no plain one.
    """
    if not build.is_dir():
        raise UsageError(f"'{build}' is not a folder: name a build, for example 'build/arr-coc-tiny'")
    plain = name.isascii() and name.replace("-", "").replace("_", "").replace(".", "").isalnum()
    if not plain or name.startswith(".") or len(name) > LONGEST_NAME:
        raise UsageError(
            f"'{visible(name)[:LONGEST_NAME]}' names no imported result: take up to {LONGEST_NAME} letters, digits, "
            "dots, dashes and underscores, for example 'pixel-8-onnx'"
        )
    data = _content(path)
    _checked(data, path)
    home = build / IMPORTED / name
    try:
        home.mkdir(parents=True, exist_ok=True)
        write_bytes(home / RESULT, data)
    except OSError as error:
        raise UsageError(f"cannot write to '{home}' ({error.strerror}): make the folder writable") from error
    return home / RESULT


def read_imported(home: Path) -> Result:
    """The result of an imported folder.

    Raises:
        ArtifactError: If it cannot be taken.
    """
    for maps in home.glob("scores-*.safetensors"):
        if maps.is_symlink() or not maps.is_file() or maps.stat().st_size > LARGEST_MAPS:
            _refuse(maps, f"is not a regular file of at most {LARGEST_MAPS} bytes")
    return _checked(_content(home / RESULT), home / RESULT)


def _content(path: Path) -> bytes:
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            _refuse(path, "is not a regular file")
        if status.st_size > LARGEST:
            _refuse(path, f"has {status.st_size} bytes, more than {LARGEST}")
        with path.open("rb") as stream:
            return stream.read(LARGEST)
    except (OSError, ValueError) as error:
        _refuse(path, f"cannot be read ({getattr(error, 'strerror', None) or error})")


def _checked(data: bytes, path: Path) -> Result:
    try:
        _check_plain(json.loads(data, parse_constant=_no_number, object_pairs_hook=_once))
        return Result.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        _refuse(path, f"is damaged at '{'.'.join(map(str, first['loc']))}': {first['msg']}")
    except (ValueError, RecursionError) as error:
        _refuse(path, f"is damaged: {error}")


def _check_plain(record: object) -> None:
    """See that what was read holds few values, short texts and numbers of 64 bits."""
    waiting = [record]
    for count in itertools.count(1):
        if not waiting:
            return
        if count > MOST_VALUES:
            raise ValueError(f"it holds more than {MOST_VALUES} values")
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += [*value.keys(), *value.values()]
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, str) and len(value) > LONGEST_TEXT:
            raise ValueError(f"it holds a text of {len(value)} characters, more than {LONGEST_TEXT}")
        elif isinstance(value, str) and visible(value) != value:
            raise ValueError(f"it holds a text with a character that cannot be shown: '{visible(value)[:80]}'")
        elif isinstance(value, int | float) and not abs(value) < 1 << 63:
            raise ValueError("it holds a number of more than 64 bits")


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"it holds '{name}', which is not a number")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(record := dict(pairs)) != len(pairs):
        raise ValueError("it names one thing twice")
    return record


def _refuse(path: Path, why: str) -> NoReturn:
    raise ArtifactError(f"the imported result '{visible(str(path))}' {visible(why)}: measure again on that device")
