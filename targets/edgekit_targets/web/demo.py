"""`edgekit demo`: serve a build's browser bundle on this machine."""

from __future__ import annotations

import io
import socket
import sys
from importlib import util
from typing import Annotated

import typer

from edgekit.cli.arguments import DEFAULT_BUILD, BuildFolder
from edgekit.cli.help import epilog

LOCAL, EVERY = "127.0.0.1", "0.0.0.0"  # noqa: S104 - only where the user asks for it
OPEN_TO_ALL = (
    "Warning: every device of this network can open the page. Over plain HTTP browsers give other devices no threads, "
    "no WebGPU, no camera and no offline use. Serve the folder over HTTPS for these."
)
NO_CODE = "For a QR code of the address, run: pip install segno"


@epilog(
    "Examples:\n\n`edgekit demo`\n\n`edgekit demo build/arr-coc-tiny --port 8000 --no-open`\n\n"
    "`edgekit demo --host 0.0.0.0`"
)
def demo(
    build: BuildFolder = DEFAULT_BUILD,
    port: Annotated[int, typer.Option(help="Port on this machine. 0 takes a free one.", min=0, max=65535)] = 0,
    host: Annotated[
        str, typer.Option(help="Address to listen on. 0.0.0.0 admits every device of the network, such as a phone.")
    ] = LOCAL,
    browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the default browser.")] = True,
) -> None:
    """Serve a build's browser bundle, or a bundle, on this machine until interrupted."""
    from edgekit.api import local
    from edgekit_targets.web.server import Server

    build = local(build)
    with Server(build if (build / "index.html").is_file() else build / "web", host, port) as server:
        for url in _reachable(server.url):
            print(f"{url}  (Ctrl-C stops)", flush=True)
            if sys.stdout.isatty() and not url.startswith(f"http://{LOCAL}:"):
                print(qr_code(url) or NO_CODE, flush=True)
        if host not in ("localhost", LOCAL, "::1"):
            print(OPEN_TO_ALL, file=sys.stderr)
        if browser:
            import webbrowser

            webbrowser.open(server.url)
        server.wait()


def _reachable(url: str) -> tuple[str, ...]:
    """Return a page's addresses: for this machine, and for others if the server listens on every address."""
    from urllib.parse import urlsplit

    address = urlsplit(url)
    if address.hostname != EVERY:
        return (url,)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
        try:
            # A documentation address. Nothing is sent: the route gives the host's own address.
            connection.connect(("192.0.2.1", 9))
            own = connection.getsockname()[0]
        # Raised without a network.
        except OSError:
            own = LOCAL
    return tuple(f"http://{name}:{address.port}/" for name in dict.fromkeys((LOCAL, own)))


def qr_code(url: str) -> str:
    """Return a QR code of an address, in block characters. Empty if segno is not installed."""
    if util.find_spec("segno") is None:
        return ""
    import segno

    svg = io.StringIO()
    segno.make(url, error="m", micro=False).terminal(out=svg, compact=True)
    return svg.getvalue()
