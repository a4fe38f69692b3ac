"""Tree of errors. Every message says what failed, with the value in quotes, and what to do.

    EdgekitError              a mistake or a state that the user can fix: exit code 2
    ├── UsageError            an unknown name, an impossible option, a folder that cannot be written
    │   ├── ShapeMissingError  a plain module without input shapes
    │   └── HostError         this host ran out of memory, time or disk, or denies a file; not the artifact's fault
    ├── ModelError            a factory that raises, a model whose declaration does not fit its module
    │   └── CaptureError      the module cannot be captured, or capture would bake a branch or a size in
    ├── CheckpointError       a file of weights that is missing, damaged, hostile or of another model
    ├── DependencyError       a target whose libraries are not installed
    ├── RecordError           a recorded reference that is missing, damaged or of another model
    ├── ArtifactError         an artifact that is missing, damaged or not what its manifest says
    ├── DataError             a folder of inputs that is missing, too small, broken or not what the model takes
    │   └── CalibrationError  calibration data that are missing, too few, of a wrong shape or not finite
    ├── ExportError           a converter failed or its process died
    │   └── NeedlessExportError  the artifact would bring nothing, and the user did not select it
    ├── VerdictError          an artifact was rejected or could not be made, and the caller required a verified one
    └── NotVerifiedHere       this host cannot run the artifact; not a failure of the artifact
        └── RuntimeMissingError  its runtime is not installed; a DependencyError too

Anything else that escapes is a bug of edgekit: exit code 1 and a traceback.
"""

from __future__ import annotations

import difflib
import functools
import json
import sys
import traceback
from collections.abc import Iterable
from importlib import metadata
from urllib.parse import unquote, urlsplit

# Name of edgekit's distribution on package indexes.
DISTRIBUTION = "edgekit-export"


class EdgekitError(Exception):
    """Base of all errors that a user can fix.

    Attributes:
        report: `traceback_of` the error if another process raised it; else empty.
    """

    report: str = ""


class UsageError(EdgekitError):
    """The command or call asks for something that does not exist or cannot be done."""


class ShapeMissingError(UsageError):
    """A plain module whose input shapes the user did not declare.

    Attributes:
        parameters: Names of the parameters of its `forward`.
    """

    def __init__(self, message: str, parameters: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.parameters = parameters


class HostError(UsageError):
    """This host lacks memory, time, disk space or permission."""


class ModelError(EdgekitError):
    """The model's factory or its declaration is wrong."""


class CaptureError(ModelError):
    """The module cannot be captured as one graph that is right for every declared shape."""


class CheckpointError(EdgekitError):
    """A file of weights cannot be used."""


class DependencyError(EdgekitError):
    """A target needs a library that is not installed."""


class RecordError(EdgekitError):
    """A recorded reference cannot be used."""


class ArtifactError(EdgekitError):
    """An artifact is missing, damaged or not what its manifest says."""


class DataError(EdgekitError):
    """The user's data cannot be used."""


class CalibrationError(DataError):
    """Calibration data cannot be used."""


class ExportError(EdgekitError):
    """A converter failed, or the process that ran it died."""


class NeedlessExportError(ExportError):
    """The artifact would bring nothing, and the user did not select it: skipped, not a fault."""


class VerdictError(EdgekitError):
    """An artifact was rejected or could not be made."""


class NotVerifiedHere(EdgekitError):  # noqa: N818 - it names a verdict, not a fault
    """This host lacks a requirement of the artifact, which the message names."""


class RuntimeMissingError(NotVerifiedHere, DependencyError):
    """The artifact's runtime is not installed on this host; the message has the command to install it."""


# Phrases in libraries' messages when memory runs out.
OUT_OF_MEMORY = (
    "MemoryError",
    "bad_alloc",
    "bad allocation",
    "can't allocate memory",
    "Cannot allocate memory",
    "Failed to allocate memory",
    "can't start new thread",
)


def out_of_memory(text: str) -> bool:
    """Return whether a library's message reports that memory ran out."""
    return any(words in text for words in OUT_OF_MEMORY)


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return a question with the known name nearest to a misspelt one; empty if none is near."""
    near = difflib.get_close_matches(name, list(names), n=1)
    return f"Did you mean '{near[0]}'?" if near else ""


def suggestion(name: str, names: Iterable[str]) -> str:
    """Return `did_you_mean` with a trailing space, for a sentence that lists all names; or nothing."""
    meant = did_you_mean(name, names)
    return f"{meant} " if meant else ""


def traceback_of(error: EdgekitError) -> str:
    """Return the traceback if the user's code or a converter raised the cause; nothing for an ordinary mistake."""
    cause = error.__cause__
    frames = list(traceback.walk_tb(cause.__traceback__)) if cause is not None else []
    modules = [(str(frame.f_globals.get("__name__", "")), frame.f_code.co_filename) for frame, _ in frames]
    is_users = any(
        not name.startswith("edgekit") and name.partition(".")[0] not in sys.stdlib_module_names
        for name, path in modules
        if "site-packages" not in path
    )
    is_converters = cause is not None and isinstance(error, CaptureError | ExportError)
    return "".join(traceback.format_exception(error)) if is_users or is_converters else ""


def in_any_case(word: str, names: Iterable[str]) -> str:
    """Return the name that equals a word in upper or lower case; the word itself if none does."""
    return next((name for name in names if name.lower() == word.lower()), word)


def reason(error: Exception) -> str:
    """Return the first line of a library's message; the error's class name if it is empty."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def whole_reason(error: Exception) -> str:
    """Return a library's message in one line, if its cause stands after the first line, as ONNX Runtime's does."""
    return " ".join(str(error).split()) or reason(error)


@functools.cache
def install_command(extra: str) -> str:
    """Return the command that adds an extra of edgekit, for the way edgekit is installed here."""
    try:
        record = metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        record = None
    origin = json.loads(record) if record else {}
    if origin.get("dir_info", {}).get("editable"):
        return f"pip install -e '{unquote(urlsplit(origin['url']).path)}[{extra}]'"
    return f"pip install '{DISTRIBUTION}[{extra}]'"
