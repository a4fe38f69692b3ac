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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from edgekit.errors import NotVerifiedHere
from edgekit.evaluate.__main__ import ARCHIVE, COMMAND_VARIABLE
from edgekit.hosts.catalogue import FurtherPlace
from edgekit.hosts.command import ran

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
    ran([sys.executable, "-m", ENGINE], place.name, RUN, cwd=pack, env={**os.environ, **variables})
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
            ran(_ssh(place, f"tar -C {folder} -xf -"), f"{place.host}: the copy broke off", STEP, stdin=packed)
        progress(f"answering on {place.host}")
        ran(_ssh(place, f"cd {folder} && {shlex.join(place.python)} -m {ENGINE}"), place.host, RUN)
        progress(f"copying back from {place.host}")
        data = ran(_ssh(place, f"cat {folder}/{ARCHIVE}"), place.host, STEP)
    (pack / ARCHIVE).write_bytes(data)
    return pack / ARCHIVE


@contextmanager
def _folder(place: FurtherPlace) -> Iterator[str]:
    """A new folder there, removed in the end."""
    said = ran(_ssh(place, "mktemp -d"), place.host, 3 * CONNECT).decode(errors="replace").strip()
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
