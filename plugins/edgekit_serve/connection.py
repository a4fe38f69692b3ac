"""Connections whose requests must begin in time, and whose headers must come whole."""

from __future__ import annotations

import asyncio
import json

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from edgekit_serve.measurements import REFUSED


def connection(seconds: float, most: int) -> type[HttpToolsProtocol]:
    """The class of connections that uvicorn closes, with a sentence, where a request's headers take longer.

    uvicorn itself waits for ever for a first request and for the rest of headers, and each such connection counts
    among those that it takes at once. It also hands a body on in parts of 64 KiB, and waits for each to be taken: a
    picture in floats has ten. Here it is handed on when it is whole.

    Args:
        seconds: For headers.
        most: Bytes of a body that are waited for; a larger one is handed on before its end, to be refused.
    """

    class Connection(HttpToolsProtocol):
        """Its clock runs from the connection, or a later request's first byte, to the end of the headers."""

        clock: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._start()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop()
            super().connection_lost(exc)

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._start()

        def on_headers_complete(self) -> None:
            self._stop()
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            if self.cycle.response_complete:
                return
            self.cycle.body += body
            if len(self.cycle.body) > most:
                self.flow.pause_reading()
                self.cycle.message_event.set()

        def _start(self) -> None:
            self._stop()
            self.clock = self.loop.call_later(seconds, self._refuse)

        def _stop(self) -> None:
            if self.clock is not None:
                self.clock.cancel()

        def _refuse(self) -> None:
            REFUSED.labels("slow").inc()
            body = json.dumps({"error": f"the request's headers did not arrive within {seconds:g} s"}).encode()
            head = f"HTTP/1.1 408 Request Timeout\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
            self.transport.write(b"".join((head.encode(), b"\r\nConnection: close\r\n\r\n", body)))
            self.transport.close()

    return Connection
