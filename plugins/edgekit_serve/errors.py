"""Why a request is refused: each error with its HTTP status."""

from __future__ import annotations

from edgekit.errors import EdgekitError


class RefusedError(EdgekitError):
    """A request that is refused; `status` is HTTP's, `reason` a word for the metrics."""

    status, reason = 400, "malformed"


class UnknownError(RefusedError):
    """No such model, or no such target of it."""

    status, reason = 404, "unknown"


class SlowClientError(RefusedError):
    """A body that did not arrive in time."""

    status, reason = 408, "slow"


class TooLargeError(RefusedError):
    """A body, picture or batch above its limit."""

    status, reason = 413, "large"


class BusyError(RefusedError):
    """A full queue."""

    status, reason = 429, "busy"


class LeftError(RefusedError):
    """A client that left before its body had arrived; nobody reads the answer."""

    status, reason = 499, "left"


class NotReadyError(RefusedError):
    """A server that starts or stops."""

    status, reason = 503, "not ready"


class TooSlowError(RefusedError):
    """A run that gave no answer in time."""

    status, reason = 504, "timeout"
