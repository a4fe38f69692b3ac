"""Who may ask the server: no page of another site, and with a token only those who have it.

A browser sends forms and plain texts to any address without asking first, also to one of the visitor's own machine. So
a request from another origin, or under another host name, is refused before it is read.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, urlsplit

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Any, Send], Awaitable[None]]

LOOPBACK = ("127.0.0.1", "localhost", "::1")
# A load balancer asks these without a token.
OPEN = ("/health/live", "/health/ready", "/v2/health/live", "/v2/health/ready")
# Types that a page of another site may send without the browser asking this server first.
SIMPLE = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data")


@dataclass(frozen=True)
class Access:
    """Rules for requests.

    Attributes:
        hosts: Names under which the server may be asked; empty allows all.
        token: Secret that a request must have as `Authorization: Bearer`; empty asks for none.
    """

    hosts: tuple[str, ...] = ()
    token: str = ""

    def refusal(self, path: str, headers: dict[str, str]) -> tuple[int, str]:
        """Return status and sentence of a refusal; 0 and an empty one if the request may go on."""
        host = headers.get("host", "")
        name = _address(f"//{host}").hostname or ""
        if self.hosts and name not in self.hosts:
            return 421, f"the server is not called '{name[:80]}'. Its names: {', '.join(self.hosts)}"
        origin = headers.get("origin", "")
        if origin and _address(origin).netloc != host:
            return 403, f"a page of '{origin[:80]}' may not ask this server"
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if path.endswith("/infer") and kind in SIMPLE:
            return 415, f"the type '{kind}' is not JSON. Send Content-Type: application/json"
        # Compared in constant time, so that nobody finds the token letter by letter.
        given = headers.get("authorization", "").encode()
        if self.token and path not in OPEN and not hmac.compare_digest(given, f"Bearer {self.token}".encode()):
            return 401, "the token is missing or wrong. Send Authorization: Bearer TOKEN"
        return 0, ""


def _address(text: str) -> SplitResult:
    """Return the parts of a URL; empty ones if it is not a URL."""
    try:
        return urlsplit(text)
    except ValueError:
        return urlsplit("")


def guarded(app: App, access: Access) -> App:
    """Return an application that refuses what the rules do not allow, before a body is read."""

    async def guard(scope: Scope, receive: Any, send: Send) -> None:
        if scope["type"] == "http":
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            status, sentence = access.refusal(scope["path"], headers)
            if status:
                body = json.dumps({"error": sentence}).encode()
                challenge = [(b"www-authenticate", b"Bearer")] if status == 401 else []
                head = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
                await send({"type": "http.response.start", "status": status, "headers": [*head, *challenge]})
                await send({"type": "http.response.body", "body": body})
                return
        await app(scope, receive, send)

    return guard
