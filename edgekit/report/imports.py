"""Results that other devices wrote: `imported/<name>/result.json` in a build. Whoever wrote one may have meant harm.

A result is checked before it is taken in (`add_result`) and again whenever it is read, since anyone may copy a folder:
its size before its content, then its JSON and its values, that its status follows from them, and that nothing was
changed since (`seal.json` names the files with their hashes). One that fails is refused in a sentence, and the report
shows it as unreadable beside everything else.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from pydantic import ValidationError

from edgekit.artifact.result import RESULT, Result
from edgekit.errors import ArtifactError, UsageError
from edgekit.storage import verified_io
from edgekit.storage.files import digest_bytes, load_json, write_bytes, write_text
from edgekit.storage.verified_io import visible

IMPORTED, SEAL = "imported", "seal.json"
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
    _check(data, path)
    home = build / IMPORTED / name
    try:
        write_imported(home, {RESULT: data})
    except OSError as error:
        raise UsageError(f"cannot write to '{home}' ({error.strerror}): make the folder writable") from error
    return home / RESULT


def write_imported(home: Path, files: Mapping[str, bytes]) -> None:
    """Write a result and its arrays, by name, into a folder of its own, and last the hashes of all."""
    home.mkdir(parents=True, exist_ok=True)
    (home / SEAL).unlink(missing_ok=True)
    for name, data in files.items():
        write_bytes(home / name, data)
    record = {"schema_version": 1, "files": {name: digest_bytes(data) for name, data in sorted(files.items())}}
    write_text(home / SEAL, verified_io.seal_record(record))


def read_imported(home: Path) -> Result:
    """The result of an imported folder.

    Raises:
        ArtifactError: If it cannot be taken.
    """
    arrays = [*home.glob("scores-*.safetensors"), *home.glob("errors-*.safetensors")]
    for path in arrays:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > LARGEST_MAPS:
            _refuse(path, f"is not a regular file of at most {LARGEST_MAPS} bytes")
    result = _check(_content(home / RESULT), home / RESULT)
    sealed = read_seal(home)["files"]
    if unknown := [path for path in (home / RESULT, *arrays) if path.name not in sealed]:
        _refuse(unknown[0], f"is not named in '{SEAL}'")
    return result


def read_seal(home: Path) -> dict[str, Any]:
    """The record of an imported folder's files, after it and each of them were checked.

    Raises:
        ArtifactError: If anything is not as it was imported.
    """
    try:
        record = verified_io.read_record(home, SEAL)
        for name, sha256 in record["files"].items():
            verified_io.check_file(home, str(name), None, str(sha256))
    except (verified_io.RefusedError, KeyError, AttributeError) as error:
        _refuse(home / RESULT, f"is not as it was imported ('{SEAL}' or a file that it names: {error})")
    return record


def _content(path: Path) -> bytes:
    try:
        return verified_io.read_bytes(path.parent, path.name, LARGEST)
    except verified_io.RefusedError as error:
        _refuse(path, str(error))
    except (OSError, ValueError) as error:
        _refuse(path, f"cannot be read ({getattr(error, 'strerror', None) or error})")


def _check(data: bytes, path: Path) -> Result:
    try:
        _check_plain(load_json(data, parse_constant=_no_number, object_pairs_hook=_once))
        result = Result.model_validate_json(data)
        for verdict in result.places:
            # See that a status follows from what was measured.
            wrong = [*verdict.reasons, *(measure.metric for measure in verdict.measures if not measure.passed)]
            if verdict.status == "verified" and wrong:
                raise ValueError(f"it says verified in '{verdict.place}', and what does not hold there ({wrong[0]})")
            if verdict.status == "rejected" and not wrong:
                raise ValueError(f"it says rejected in '{verdict.place}', where everything holds")
        return result
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        _refuse(path, f"is damaged at '{'.'.join(map(str, first['loc']))}': {first['msg']}")
    except ValueError as error:
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
