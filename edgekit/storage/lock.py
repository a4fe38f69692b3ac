"""One run at a time in a build folder on one host; where there is no lock, runs do not wait, and files stay whole."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from edgekit.storage.files import digest_text


@contextlib.contextmanager
def locked(folder: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold a folder's lock: a file beside the host's temporary files, so that none is left in the folder itself.

    A process that dies gives its lock back, since the operating system holds it. Correctness does not depend on the
    lock: every write is a rename.

    Args:
        folder: It need not be there yet.
        waiting: Called once if another process holds the lock, before waiting for it.
    """
    from filelock import FileLock, Timeout

    locks = Path(tempfile.gettempdir()) / f"edgekit-{os.getuid()}"
    with contextlib.ExitStack() as stack:
        try:
            locks.mkdir(mode=0o700, exist_ok=True)
            lock = FileLock(locks / f"{digest_text(str(folder.resolve()))}.lock")
            try:
                stack.enter_context(lock.acquire(timeout=0))
            except Timeout:
                waiting()
                stack.enter_context(lock.acquire())
        except (OSError, NotImplementedError):
            pass  # a file system without locks, or a folder that is not ours
        yield
