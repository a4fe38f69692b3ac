"""The command line: parse, call, print."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import tomllib
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel, ConfigDict, ValidationError

from edgekit.cli.arguments import INTERRUPTED, READER_LEFT, TERMINATED, USER_ERROR, VERBOSE
from edgekit.cli.arguments import app as app
from edgekit.errors import EdgekitError, UsageError, traceback_of
from edgekit.storage.host_errors import as_sentences
from edgekit.storage.verified_io import visible


def main() -> None:
    """Run the command line: print one sentence and exit with 2 for what a user can fix; explain an interruption."""
    _open_missing_streams()
    # SIGTERM ends as Ctrl-C does, so that workers and temporary folders are removed.
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(TERMINATED))
    try:
        with as_sentences():
            _require_working_directory()
            app()
    except EdgekitError as error:
        _end_if_reader_left(error)
        if {"-v", VERBOSE} & set(sys.argv):
            from edgekit.model.capture_errors import plain

            print(plain(error.report or traceback_of(error)), end="", file=sys.stderr)
        # A full disk behind standard error changes nothing about the exit code.
        with contextlib.suppress(OSError):
            print(visible(f"edgekit: {error}", "\n\t"), file=sys.stderr)
        sys.exit(USER_ERROR)
    except BaseException as error:
        _end_if_reader_left(error)
        # Typer turns Ctrl-C into its exit code.
        ends = (KeyboardInterrupt, SystemExit)
        # pydantic wraps an interruption that comes while it writes a record.
        cause = error.__cause__ if isinstance(error.__cause__, ends) else error
        if not isinstance(cause, ends):
            raise
        if isinstance(cause, SystemExit) and (where := _foreign(cause)):
            print(f"edgekit: the model's code ended the process at {where}. Let it return or raise", file=sys.stderr)
            sys.exit(USER_ERROR)
        code = INTERRUPTED if isinstance(cause, KeyboardInterrupt) else cause.code
        if code in (INTERRUPTED, TERMINATED):
            print("edgekit: interrupted; finished steps are kept. Run the same command to continue", file=sys.stderr)
        sys.exit(code)
    finally:
        signal.signal(signal.SIGTERM, before)


def _open_missing_streams() -> None:
    """Open a null device for each standard stream that is closed, as by `>&-`: the next file would take its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def _end_if_reader_left(error: BaseException) -> None:
    """End quietly, as other tools do, if the reader of standard output left, as in `| head -1`."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, BrokenPipeError):
        cause = cause.__cause__ or cause.__context__
    if cause is not None and isinstance(error, SystemExit):
        # Rich and click noticed it, and closed standard output.
        sys.exit(READER_LEFT)
    if cause is None and getattr(error, "code", 1) not in (0, None):
        return
    try:
        sys.stdout.flush()
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        if not any(event & select.POLLERR for _, event in poll.poll(0)):
            return
    except BrokenPipeError:
        pass
    except (AttributeError, OSError, ValueError):  # no poll on Windows, no descriptor in a test
        return
    # Python flushes once more when it exits, which would fail again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(READER_LEFT)


def _foreign(ended: SystemExit) -> str:
    """Return `file:line` of the code that ended the process, unless it belongs to edgekit or its libraries."""
    frames = [
        (f"{f.f_code.co_filename}:{n}", str(f.f_globals.get("__name__", "")).partition(".")[0])
        for f, n in traceback.walk_tb(ended.__traceback__)
    ]
    if not frames or frames[-1][1].startswith("edgekit") or frames[-1][1] in ("typer", "click", "rich", "uvicorn"):
        return ""
    return next((where for where, package in reversed(frames) if package not in sys.stdlib_module_names), frames[-1][0])


def _require_working_directory() -> None:
    try:
        Path.cwd()
    except FileNotFoundError as error:
        sentence = "the working directory was removed. Change to another one and run the command again"
        raise UsageError(sentence) from error


@app.callback(invoke_without_command=True)
def edgekit(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Export a PyTorch model to edge formats, and verify each artifact against a recorded reference."""
    if version:
        import edgekit as package

        print(f"edgekit {package.__version__}")
        raise typer.Exit
    context.default_map = defaults(Path.cwd())


if __name__ == "__main__":
    main()


FILE, TABLE = "pyproject.toml", "tool.edgekit"
# Marks a place that names a command: a foreign project must not choose what runs here.
COMMAND = "python:"


class Project(BaseModel):
    """Settings of a project.

    Attributes:
        targets: For `edgekit export -t`.
        output: For `edgekit export -o`.
        places: For `edgekit export --place`.
        budget: For `--budget` of `edgekit export` and `edgekit verify`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    targets: tuple[str, ...] = ()
    output: str | None = None
    places: tuple[str, ...] = ()
    budget: tuple[str, ...] = ()


def defaults(folder: Path) -> dict[str, dict[str, Any]]:
    """Return values for the commands' options, by command and option; empty if the project sets none.

    Raises:
        UsageError: If the file is not TOML, or the table has an unknown setting.
    """
    try:
        text = (folder / FILE).read_text()
    except (OSError, UnicodeDecodeError):
        return {}
    # A file without settings for edgekit need not be valid TOML.
    if "edgekit" not in text:
        return {}
    try:
        table = tomllib.loads(text).get("tool", {}).get("edgekit", {})
        project = Project.model_validate(table)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        possible = ", ".join(Project.model_fields)
        raise UsageError(f"[{TABLE}] in '{FILE}': {name}: {first['msg']}. Possible settings: {possible}") from error
    # Python refuses integers of thousands of digits with a plain ValueError.
    except ValueError as error:
        raise UsageError(f"'{FILE}' is not TOML: {error}") from error
    if commands := [place for place in project.places if COMMAND in place]:
        raise UsageError(
            f"[{TABLE}] in '{FILE}': places: '{commands[0]}' names a command. Pass it with --place instead"
        )
    export: dict[str, Any] = {
        "target": project.targets,
        "place": project.places,
        "budget": project.budget,
        "output": project.output,
    }
    values: dict[str, dict[str, Any]] = {"export": export, "verify": {"budget": project.budget}}
    return {command: {name: value for name, value in options.items() if value} for command, options in values.items()}
