"""Commands on this host that reach another one, with their output, or a sentence on the failure."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgekit.errors import NotVerifiedHere
from edgekit.evaluate.__main__ import ARCHIVE, COMMAND_VARIABLE
from edgekit.hosts.catalogue import FurtherPlace

# Characters of another host's message.
LONGEST = 300
LOOK = 2.0  # seconds


def run_command(
    command: Sequence[str],
    what: str,
    seconds: float,
    stdin: Any = subprocess.DEVNULL,
    alive: Callable[[], None] = lambda: None,
    **options: Any,
) -> bytes:
    """Run a command and return its output.

    Args:
        command: The command and its arguments.
        what: Beginning of the error message.
        seconds: Time limit.
        stdin: As for `subprocess.run`.
        alive: Called every LOOK seconds; an exception in it ends the command.
        **options: As for `subprocess.run`.

    Raises:
        NotVerifiedHere: If it fails or takes longer.
    """
    late = time.monotonic() + seconds
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=stdin, stdout=pipe, stderr=pipe, **options) as process:
        try:
            while True:
                try:
                    printed, stderr = process.communicate(timeout=min(LOOK, max(0, late - time.monotonic())))
                    break
                except subprocess.TimeoutExpired:
                    alive()
                    if time.monotonic() > late:
                        raise NotVerifiedHere(f"{what}: no end after {seconds:.0f} s") from None
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise NotVerifiedHere(f"{what}: {_why(stderr or printed) or f'ended with code {process.returncode}'}")
    return bytes(printed)


def _why(stderr: bytes) -> str:
    """Return the first line with an error, or the last line."""
    lines = [line for line in stderr.decode(errors="replace").splitlines() if line.strip()]
    return plain(next((line for line in lines if "error:" in line), lines[-1] if lines else ""))


def plain(text: str) -> str:
    """Return another host's message in one line of printable characters."""
    return "".join(c if c.isprintable() else "?" for c in text.strip())[:LONGEST]


ENGINE = "edgekit.evaluate"
CONNECT, STEP, RUN = 20, 600, 14_400
"""Seconds: to reach a host, to copy there or back, to answer everything."""


def answer_pack(place: FurtherPlace, pack: Path, progress: Callable[[str], None]) -> Path:
    """Answer an unpacked pack in a place; return the result archive, inside the pack's folder.

    Raises:
        NotVerifiedHere: If the host cannot be reached, does not have Python, or breaks off.
    """
    if place.host:
        return _over_ssh(place, pack, progress)
    progress("answering")
    variables = {COMMAND_VARIABLE: shlex.join(place.python)}
    run_command([sys.executable, "-m", ENGINE], place.name, RUN, cwd=pack, env={**os.environ, **variables})
    return pack / ARCHIVE


def _over_ssh(place: FurtherPlace, pack: Path, progress: Callable[[str], None]) -> Path:
    if shutil.which("ssh") is None:
        raise NotVerifiedHere("ssh is not installed on this host. Install OpenSSH's client")
    progress(f"connecting to {place.host}")
    with _folder(place) as folder:
        progress(f"copying to {place.host}")
        with tempfile.TemporaryFile() as packed:
            with tarfile.open(fileobj=packed, mode="w") as archive:
                archive.add(pack, ".")
            packed.seek(0)
            run_command(_ssh(place, f"tar -C {folder} -xf -"), f"{place.host}: the copy broke off", STEP, stdin=packed)
        progress(f"answering on {place.host}")
        run_command(_ssh(place, f"cd {folder} && {shlex.join(place.python)} -m {ENGINE}"), place.host, RUN)
        progress(f"copying back from {place.host}")
        data = run_command(_ssh(place, f"cat {folder}/{ARCHIVE}"), place.host, STEP)
    (pack / ARCHIVE).write_bytes(data)
    return pack / ARCHIVE


@contextmanager
def _folder(place: FurtherPlace) -> Iterator[str]:
    """Yield a new temporary folder on the host."""
    path_text = run_command(_ssh(place, "mktemp -d"), place.host, 3 * CONNECT).decode(errors="replace").strip()
    if not path_text.startswith("/") or "\n" in path_text:
        raise NotVerifiedHere(f"{place.host} did not make a folder to work in. Its reply was '{path_text[:100]}'")
    folder = shlex.quote(path_text)
    try:
        yield folder
    finally:
        subprocess.run(_ssh(place, f"rm -rf {folder}"), capture_output=True, timeout=3 * CONNECT, check=False)


def _ssh(place: FurtherPlace, command: str) -> list[str]:
    options = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT}", "-o", "ServerAliveInterval=15"]
    return ["ssh", *options, "--", place.host, command]
