"""Using coremltools without its talk."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Coremltools' talk is not the user's to mend: untested versions of torch, classes for macOS only, progress bars.

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
