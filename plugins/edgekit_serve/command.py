"""`edgekit serve`: answer requests with verified artifacts."""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from edgekit.cli.arguments import DEFAULT_BUILD, Device, Key, TrustBuild
from edgekit.cli.completion import target_names
from edgekit.cli.help import epilog
from edgekit.errors import DependencyError, UsageError, install_command
from edgekit.storage import verified_io

MEBIBYTE = 1 << 20
# At once. Further ones get 503.
CONNECTIONS = 2048
# The server logs itself, and believes no proxy's headers.
QUIET: dict[str, Any] = {"log_config": None, "access_log": False, "proxy_headers": False}
# Bytes of the file.
LONGEST_TOKEN = 64 << 10
# Seconds; a longer wait is a mistake.
DAY = 86_400
NEEDS = "fastapi", "uvicorn", "prometheus_client", "python_multipart"


@epilog(
    "Examples:\n\n`edgekit serve build/arr-coc-tiny`\n\n"
    "`edgekit serve build/arr-coc-tiny -t onnx-int8-dynamic --port 9000`\n\n"
    "`edgekit serve build/arr-coc-tiny -t torch-cuda --device cuda --batch 32`\n\n"
    "`edgekit serve s3://bucket/arr-coc-tiny@0123456789abcdef --key release.pub --host 0.0.0.0`\n\n"
    "Then: `curl -F image=@a.jpg -F query='red circle' http://127.0.0.1:8000/predict`"
)
def serve(
    builds: Annotated[list[Path] | None, typer.Argument(help="Build folders, or addresses in a store.")] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            "-t",
            "--target",
            help="Artifacts to serve, the default one first. Default: all verified ones that run in this process.",
            autocompletion=target_names,
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 accepts every device.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 selects a free one.", min=0, max=65535)] = 8000,
    device: Device = "cpu",
    queue: Annotated[int, typer.Option(help="Requests that may wait for an artifact; more get 429.", min=0)] = 64,
    batch: Annotated[int, typer.Option(help="Rows of waiting requests joined in one run, for GPUs.", min=1)] = 1,
    batch_wait: Annotated[
        float, typer.Option(help="ms that a run waits for others, with --batch.", min=0.0, max=60_000)
    ] = 2.0,
    timeout: Annotated[
        float, typer.Option(help="Seconds for a body to arrive, and for an answer.", min=0.1, max=DAY)
    ] = 30.0,
    max_body: Annotated[int, typer.Option(help="MiB of a request.", min=1, max=4096)] = 32,
    max_pixels: Annotated[int, typer.Option(help="Million pixels of an image.", min=1)] = 24,
    reload: Annotated[
        float, typer.Option(help="Seconds between checks for newer artifacts; 0: never.", min=0.0, max=DAY)
    ] = 2.0,
    allow_unverified: Annotated[
        bool, typer.Option("--allow-unverified", help="Serve unverified artifacts; every answer's header shows it.")
    ] = False,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option("--allowed-host", help="Name under which a proxy asks this server on a loopback address; repeat."),
    ] = None,
    token: Annotated[
        Path | None, typer.Option(help="File with a secret: all routes but health need Authorization: Bearer SECRET.")
    ] = None,
    trust_build: TrustBuild = False,
    key: Key = None,
) -> None:
    """Serve verified artifacts: Open Inference Protocol v2, forms with pictures and words, metrics; /docs lists all."""
    if missing := [name for name in NEEDS if find_spec(name) is None]:
        raise DependencyError(f"serving needs {missing[0]}. Run: {install_command('serve')}")
    from edgekit_serve.access import LOOPBACK, Access, guarded
    from edgekit_serve.application import Limits, Server, application
    from edgekit_serve.connection import connection
    from edgekit_serve.models import Batching, Models, ServeOptions
    from edgekit_serve.process import inherited_socket, listening, supervise

    secret = _secret(token) if token is not None else ""
    inherited = inherited_socket()
    if inherited is None:
        with listening(host, port) as shared:
            raise typer.Exit(supervise(shared, [sys.executable, "-P", "-m", "edgekit", *sys.argv[1:]]))
    import uvicorn

    listener, live = inherited
    models = Models(
        tuple(folder for build in builds or [DEFAULT_BUILD] for folder in _folders(build, key)),
        tuple(target or ()),
        ServeOptions(device, allow_unverified, trust_build, key, Batching(batch, batch_wait / 1e3)),
    )
    models.open()
    limits = Limits(max_body * MEBIBYTE, max_pixels * 1_000_000, queue, timeout)
    for name in models.names():
        print(f"{name}: {', '.join(models.versions(name))}")
    address, number = listener.getsockname()[:2]
    print(f"http://{f'[{address}]' if ':' in address else address}:{number}  (Ctrl-C stops)", flush=True)
    access = Access((*LOOPBACK, *(allowed_host or ())) if host in LOOPBACK else (), secret)
    config = uvicorn.Config(
        guarded(application(models, limits, reload, live), access),
        http=connection(timeout, limits.body),
        **QUIET,
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=int(timeout) + 1,
    )
    # uvicorn has stopped, and raises the signal again.
    with suppress(KeyboardInterrupt, SystemExit):
        Server(config).run(sockets=[listener])


def _secret(path: Path) -> str:
    try:
        secret = verified_io.read_named(path, LONGEST_TOKEN).decode().strip()
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read the token in '{path}' ({error}). Name a file with one line of text") from error
    if not secret.isascii() or not secret.isprintable() or not secret or " " in secret:
        raise UsageError(f"'{path}' holds no token. Write one word of ASCII letters into it")
    return secret


def _folders(build: Path, key: Path | None) -> tuple[Path, ...]:
    """Return a build's folder, fetched if it is a URL; for a composite model the folder of each part."""
    from edgekit.api import local
    from edgekit.artifact.run_record import PARTS, read_parts
    from edgekit.errors import ArtifactError
    from edgekit_serve.models import require_signature

    folder = local(build, progress="none")
    if not (folder / PARTS).is_file():
        return (folder,)
    # Each part has a signature of its own; this one covers their verdict as a whole.
    signature = require_signature(folder, key)
    if signature is not None and PARTS in signature.unsigned:
        raise ArtifactError(f"'{folder / PARTS}' is not what was signed. Sign the build again")
    return tuple(folder / part.folder for part in read_parts(folder).parts.values())
