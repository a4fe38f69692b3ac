"""What libraries say to nobody: coremltools' and torchao's talk left out, a C++ library's own lines caught."""

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
    """Coremltools' talk is not the user's to fix: untested versions of torch, classes for macOS only, progress bars.

    It and what it imports use deprecated functions, it rounds constants to fp16 with NumPy's overflow warnings, and it
    leaves a temporary folder to the garbage collector. Errors still pass.
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
    """Quiet, and no warning at all: of libraries that warn of their own deprecations, which no user can fix."""
    with quiet(), warnings.catch_warnings(action="ignore"):
        yield


def caught(function: Callable[[], object]) -> str:
    """What is written to the process's standard error, by C++ too, while a function runs; what it raises is dropped.

    Args:
        function: What is to fail once more, or only talks. Other threads' lines are caught with its own.
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
