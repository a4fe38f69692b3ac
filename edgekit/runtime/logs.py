"""Suppression of coremltools' and torchao's output, and capture of a C++ library's own lines."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence coremltools, whose warnings the user cannot fix; errors still pass.

    They concern untested versions of torch, classes for macOS only, progress bars, deprecated functions, NumPy's
    overflow when constants are rounded to fp16, and a temporary folder left to the garbage collector.
    """
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.filterwarnings("ignore", message=".*LeafSpec.*", category=FutureWarning)
            warnings.filterwarnings("ignore", message=".*encountered in cast", category=RuntimeWarning)
            warnings.filterwarnings("ignore", message="Implicitly cleaning up", category=ResourceWarning)
            yield
    finally:
        logging.disable(before)


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Silence all warnings too, of libraries whose deprecations no user can fix."""
    with quiet(), warnings.catch_warnings(action="ignore"):
        yield


def caught(function: Callable[[], object]) -> str:
    """Return what a function writes to the process's standard error, including C++ code; its exceptions are dropped.

    Args:
        function: A function that fails again, or only writes. Other threads' lines are included.
    """
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        before = os.dup(2)
        try:
            os.dup2(log.fileno(), 2)
            with contextlib.suppress(Exception), contextlib.redirect_stderr(log):
                function()
            log.flush()
        finally:
            os.dup2(before, 2)
            os.close(before)
        log.seek(0)
        return log.read()
