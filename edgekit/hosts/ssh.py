"""Where a pack is answered: on this host by another Python, which may be an emulated processor's, or over ssh.

Over ssh a folder of its own is made there, and removed whatever happens. ssh's own settings say how to log in; nothing
is asked on the terminal. Anything that fails on the way is `NotVerifiedHere`: it is no fault of the artifact's.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgekit.errors import NotVerifiedHere
from edgekit.evaluate.__main__ import ARCHIVE, COMMAND_VARIABLE
from edgekit.hosts.catalogue import FurtherPlace

ENGINE = "edgekit.evaluate"
CONNECT, STEP, RUN = 20, 600, 14_400
"""Seconds: to reach a host, to copy there or back, to answer everything."""


def answered(place: FurtherPlace, pack: Path, progress: Callable[[str], None]) -> Path:
    """Answer an unpacked pack in a place; returns the result archive, inside the pack's folder.

    Raises:
        NotVerifiedHere: If the host cannot be reached, has no Python, or breaks off.
    """
    if place.host:
        return _over_ssh(place, pack, progress)
    progress("answering")
    variables = {COMMAND_VARIABLE: shlex.join(place.python)}
    _ran([sys.executable, "-m", ENGINE], place.name, RUN, cwd=pack, env={**os.environ, **variables})
    return pack / ARCHIVE


def _over_ssh(place: FurtherPlace, pack: Path, progress: Callable[[str], None]) -> Path:
    if shutil.which("ssh") is None:
        raise NotVerifiedHere("there is no ssh on this host: install OpenSSH's client")
    progress(f"connecting to {place.host}")
    with _folder(place) as folder:
        progress(f"copying to {place.host}")
        with tempfile.TemporaryFile() as packed:
            with tarfile.open(fileobj=packed, mode="w") as archive:
                archive.add(pack, ".")
            packed.seek(0)
            _ran(_ssh(place, f"tar -C {folder} -xf -"), f"{place.host}: the copy broke off", STEP, stdin=packed)
        progress(f"answering on {place.host}")
        _ran(_ssh(place, f"cd {folder} && {shlex.join(place.python)} -m {ENGINE}"), place.host, RUN)
        progress(f"copying back from {place.host}")
        data = _ran(_ssh(place, f"cat {folder}/{ARCHIVE}"), place.host, STEP)
    (pack / ARCHIVE).write_bytes(data)
    return pack / ARCHIVE


@contextmanager
def _folder(place: FurtherPlace) -> Iterator[str]:
    """A new folder there, removed in the end."""
    said = _ran(_ssh(place, "mktemp -d"), place.host, 3 * CONNECT).decode(errors="replace").strip()
    if not said.startswith("/") or "\n" in said:
        raise NotVerifiedHere(f"{place.host} gave no folder to work in: its answer was '{said[:100]}'")
    folder = shlex.quote(said)
    try:
        yield folder
    finally:
        subprocess.run(_ssh(place, f"rm -rf {folder}"), capture_output=True, timeout=3 * CONNECT, check=False)


def _ssh(place: FurtherPlace, command: str) -> list[str]:
    options = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT}", "-o", "ServerAliveInterval=15"]
    return ["ssh", *options, "--", place.host, command]


def _ran(command: Sequence[str], what: str, seconds: float, stdin: Any = subprocess.DEVNULL, **options: Any) -> bytes:
    """Run a command to its end; returns what it printed."""
    try:
        ended = subprocess.run(command, capture_output=True, timeout=seconds, check=False, stdin=stdin, **options)
    except subprocess.TimeoutExpired as late:
        raise NotVerifiedHere(f"{what}: no end after {seconds:.0f} s") from late
    if ended.returncode:
        lines = [line for line in ended.stderr.decode(errors="replace").splitlines() if line.strip()]
        last = lines[-1].strip()[:300] if lines else f"ended with code {ended.returncode}"
        raise NotVerifiedHere(f"{what}: {last}")
    printed: bytes = ended.stdout
    return printed
