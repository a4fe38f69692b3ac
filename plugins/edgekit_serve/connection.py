"""A client's connection: limits on the time and the size of what it sends."""

from __future__ import annotations

import asyncio
import json

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from edgekit_serve.models import REFUSED

# Bytes of a request's address and headers, and what each header takes besides its text.
HEADERS, HEADER = 64 << 10, 32
# Requests of one connection that wait for their answers to be read.
PIPELINE = 16


class _Connection(HttpToolsProtocol):
    """A connection that is closed, with a sentence, if a request is late, long or one of many.

    uvicorn waits without limit for a first request and for the rest of headers, and each such connection counts towards
    its limit. It counts neither headers, nor what follows a body, nor requests that are sent before the answers are
    read. It also passes a body on in parts of 64 KiB and waits for each: a picture in floats has ten. Here it is passed
    on when it is complete. The clock runs from the connection's start, or a later request's first byte.

    Attributes:
        seconds: Time limit for headers, and then again for the rest of the request.
        most: Bytes of a body to wait for; a larger one is passed on before its end, to be refused.
    """

    seconds = 30.0
    most = 32 << 20
    clock: asyncio.TimerHandle | None = None
    header_bytes = 0
    refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start(self.seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.header_bytes = 0
        self._start(self.seconds)

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        # Those that follow a body too.
        self._count(len(name) + len(value) + HEADER)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= PIPELINE:
            self._refuse("400 Bad Request", f"more than {PIPELINE} requests wait for their answers to be read")
        # The application answers a late body earlier, with its own sentence.
        self._start(self.seconds + 1.0)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if self.cycle.response_complete:
            return
        self.cycle.body += body
        if len(self.cycle.body) > self.most:
            self.flow.pause_reading()
            self.cycle.message_event.set()

    def on_message_complete(self) -> None:
        self._stop()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        if not self.refused:
            super().send_400_response(msg)

    def _start(self, limit: float) -> None:
        self._stop()
        self.clock = self.loop.call_later(limit, self._expire)

    def _stop(self) -> None:
        if self.clock is not None:
            self.clock.cancel()

    def _count(self, size: int) -> None:
        self.header_bytes += size
        if self.header_bytes > HEADERS:
            sentence = f"the request's headers have more than {HEADERS >> 10} KiB"
            self._refuse("431 Request Header Fields Too Large", sentence)

    def _expire(self) -> None:
        REFUSED.labels("slow").inc()
        # An answer that was sent ends with the connection.
        if self.cycle is not None and self.cycle.response_started:
            self.transport.close()
        else:
            self._answer("408 Request Timeout", f"the request's headers did not arrive within {self.seconds:g} s")

    def _refuse(self, status: str, sentence: str) -> None:
        """Answer, close, and end the parsing of what was received."""
        REFUSED.labels("inputs").inc()
        self._stop()
        self.refused = True
        self._answer(status, sentence)
        raise ValueError(sentence)

    def _answer(self, status: str, sentence: str) -> None:
        body = json.dumps({"error": sentence}).encode()
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        self.transport.write(b"".join((head.encode(), b"\r\nConnection: close\r\n\r\n", body)))
        self.transport.close()


def connection(seconds: float, most: int) -> type[HttpToolsProtocol]:
    """Return the class of connections with these limits, as uvicorn takes it."""
    return type("LimitedConnection", (_Connection,), {"seconds": seconds, "most": most})
