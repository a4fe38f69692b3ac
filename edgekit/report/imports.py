"""Results from other devices, which may be malicious: `imported/<name>/result.json` in a build.

A result is checked on import (`add_result`) and on every read, since anyone may copy a folder. The checks are its size,
its JSON and values, whether its status follows from them, and whether it is unchanged (`seal.json` names the files with
their hashes). A bad result is refused in a sentence, and the report lists it as unreadable.
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
# Bytes; a phone's result is about 2 KiB.
LARGEST = 1 << 20
# Bytes of the score maps of a result.
LARGEST_MAPS = 256 << 20
MOST_VALUES = 50_000
# Characters of a text in a result.
LONGEST_TEXT = 2_000
# Characters of an imported folder's name.
LONGEST_NAME = 100


def add_result(build: Path, path: Path, name: str) -> Path:
    """Copy a result.json from another device into a build; return the file there.

    Args:
        build: The model's build folder.
        path: The result.json.
        name: Its name in the report, for example "pixel-8-onnx"; letters, digits, dots, dashes and underscores.

    Raises:
        ArtifactError: If the result is unusable.
        UsageError: If the build is missing, or the name has other characters.
    """
    if not build.is_dir():
        raise UsageError(f"'{build}' is not a folder. Pass a build, for example 'build/arr-coc-tiny'")
    plain = name.isascii() and name.replace("-", "").replace("_", "").replace(".", "").isalnum()
    if not plain or name.startswith(".") or len(name) > LONGEST_NAME:
        raise UsageError(
            f"'{visible(name)[:LONGEST_NAME]}' is not a valid name. Use up to {LONGEST_NAME} letters, digits, dots, "
            "dashes and underscores, for example 'pixel-8-onnx'"
        )
    data = _content(path)
    _check(data, path)
    home = build / IMPORTED / name
    try:
        write_imported(home, {RESULT: data})
    except OSError as error:
        raise UsageError(f"cannot write to '{home}' ({error.strerror}). Make the folder writable") from error
    return home / RESULT


def write_imported(home: Path, files: Mapping[str, bytes]) -> None:
    """Write a result and its arrays, by name, into a separate folder, and last the hashes of all."""
    home.mkdir(parents=True, exist_ok=True)
    (home / SEAL).unlink(missing_ok=True)
    for name, data in files.items():
        write_bytes(home / name, data)
    record = {"schema_version": 1, "files": {name: digest_bytes(data) for name, data in sorted(files.items())}}
    write_text(home / SEAL, verified_io.seal_record(record))


def read_imported(home: Path) -> Result:
    """Return the result of an imported folder.

    Raises:
        ArtifactError: If it is unusable.
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
    """Return the record of an imported folder's files, after a check of each.

    Raises:
        ArtifactError: If anything changed since the import.
    """
    try:
        record = verified_io.read_record(home, SEAL)
        for name, sha256 in record["files"].items():
            verified_io.check_file(home, str(name), None, str(sha256))
    except (verified_io.RefusedError, KeyError, AttributeError) as error:
        _refuse(home / RESULT, f"was changed since the import ('{SEAL}' or a file that it names: {error})")
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
            # A forged status does not follow from the measures.
            wrong = [*verdict.reasons, *(measure.metric for measure in verdict.measures if not measure.passed)]
            if verdict.status == "verified" and wrong:
                raise ValueError(f"it says verified in '{verdict.place}', but a limit fails there ({wrong[0]})")
            if verdict.status == "rejected" and not wrong:
                raise ValueError(f"it says rejected in '{verdict.place}', but every limit holds")
        return result
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        _refuse(path, f"is damaged at '{'.'.join(map(str, first['loc']))}': {first['msg']}")
    except ValueError as error:
        _refuse(path, f"is damaged: {error}")


def _check_plain(record: object) -> None:
    """Raise unless a record holds few values, short texts and numbers of 64 bits."""
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
        raise ValueError("it has a key twice")
    return record


def _refuse(path: Path, why: str) -> NoReturn:
    raise ArtifactError(f"the imported result '{visible(str(path))}' {visible(why)}. Measure again on that device")
