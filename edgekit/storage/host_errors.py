"""Operating system errors that a user can fix, as one sentence."""

from __future__ import annotations

import contextlib
import errno
import shutil
from collections.abc import Iterator
from pathlib import Path

from edgekit.errors import HostError

_CURES = {
    errno.ENOSPC: "free some space and run the same command again",
    errno.EDQUOT: "free some space and run the same command again",
    errno.EFBIG: "raise the limit of file sizes (`ulimit -f`) or choose another file system",
    errno.EROFS: "choose a folder that can be written, for example with -o",
    errno.EACCES: "change its permissions or choose another folder, for example with -o",
    errno.EPERM: "change its permissions or choose another folder, for example with -o",
    errno.EMFILE: "close other programs or raise the limit of open files (`ulimit -n`)",
    errno.ENFILE: "close other programs",
    errno.EIO: "check the disk or the network drive and run the same command again",
    errno.ENAMETOOLONG: "choose a shorter name, for example with -o",
    errno.ELOOP: "remove the link",
    errno.ENOTDIR: "name a folder",
    errno.EISDIR: "name a file",
    errno.ENOTEMPTY: "another process writes there; run one at a time",
    errno.ESTALE: "check the network drive and run the same command again",
}
_LINK_TO_NOTHING = (errno.ENOENT, errno.EEXIST)


@contextlib.contextmanager
def as_sentences() -> Iterator[None]:
    """Turn a fixable operating system error into one sentence; other errors stay unchanged.

    Raises:
        HostError: With the path, the system's message, and a fix.
    """
    try:
        yield
    except OSError as error:
        if (sentence := sentence_of(error)) is None:
            raise
        raise HostError(sentence) from error


def sentence_of(error: OSError) -> str | None:
    """Return the sentence of an error; None if the user cannot fix it."""
    # Raised by copying a folder: it has a list of failures and no error number.
    if isinstance(error, shutil.Error):
        _, path, why = error.args[0][0]
        return f"'{path}' cannot be written ({why}). Check space and permissions and run the same command again"
    name = error.filename2 or error.filename
    path = Path(name) if isinstance(name, str) else None
    cure = _CURES.get(error.errno or 0)
    if cure is None and error.errno in _LINK_TO_NOTHING and path is not None and path.is_symlink():
        return f"'{path}' is a link to nothing. Remove it or make its target"
    if cure is None:
        return None
    where = f"'{path}' cannot be used" if path is not None else "a file cannot be used"
    return f"{where} ({error.strerror}): {cure}"
