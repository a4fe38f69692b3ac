"""The commands that push, pull and list builds in object stores."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgekit.cli.arguments import Json, Key, RequireSignature, print_json, required_key
from edgekit.cli.build_commands import progress_style
from edgekit.cli.help import epilog

if TYPE_CHECKING:
    from edgekit_stores.remote import Transfer

Place = Annotated[
    str, typer.Argument(help="Location of a model's builds: s3://BUCKET/NAME, or gs://, az://, hf://, file://.")
]
Pinned = Annotated[
    str, typer.Argument(help="A build in a store: s3://BUCKET/NAME@VERSION. Default: the last pushed version.")
]

Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Print errors only.")]


@epilog(
    "Examples:\n\n`edgekit push build/arr-coc-tiny s3://bucket/arr-coc-tiny`\n\n"
    "`edgekit push build/arr-coc-tiny file:///srv/builds/arr-coc-tiny --json`"
)
def push(
    build: Annotated[Path, typer.Argument(help="A model's build folder, for example build/arr-coc-tiny.")],
    url: Place,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Upload a build to an object store. Only changed files are sent; an interrupted push is resumed, never visible."""
    from edgekit_stores import api as stores

    result = stores.push(build, url, progress=progress_style(as_json or quiet))
    if as_json:
        print_json(result.as_record())
        return
    if not quiet:
        for path in result.left_out:
            print(f"left out: {path} (edgekit did not write it)")
        print(_transfer_text(result, "sent"))
        print(f"{result.address}")


@epilog(
    "Examples:\n\n`edgekit pull s3://bucket/arr-coc-tiny`\n\n"
    "`edgekit pull s3://bucket/arr-coc-tiny@0123456789abcdef --into builds`\n\n"
    "`edgekit pull s3://bucket/arr-coc-tiny@0123456789abcdef --key release.pub`"
)
def pull(
    url: Pinned,
    into: Annotated[Path, typer.Option("--into", help="Folder of builds.")] = Path("build"),
    key: Key = None,
    require_signature: RequireSignature = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Download a build from an object store. The folder appears when it is complete and checked."""
    from edgekit_stores import api as stores
    from edgekit_stores.remote import SHORT

    public = required_key(key, require_signature)
    result = stores.pull(url, into=into, key=public, progress=progress_style(as_json or quiet))
    if as_json:
        print_json(result.as_record())
    elif not quiet:
        print(_transfer_text(result, "fetched"))
        print(f"{result.path}: version {result.address.version[:SHORT]}")


@epilog("Examples:\n\n`edgekit builds s3://bucket/arr-coc-tiny`\n\n`edgekit builds s3://bucket/arr-coc-tiny --json`")
def builds(url: Place, as_json: Json = False) -> None:
    """List the versions of a build in an object store, and their verdicts. The last pushed version comes first."""
    from edgekit.cli.console import print_table
    from edgekit_stores import api as stores
    from edgekit_stores.remote import SHORT

    indexes = stores.builds(url)
    if as_json:
        versions = [
            {"version": version, "bytes": index.size, **index.model_dump(include={"name", "began", "verdicts"})}
            for version, index in indexes.items()
        ]
        print_json({"schema_version": 1, "versions": versions})
        return
    rows = []
    for version, index in indexes.items():
        verified = [name for name, state in index.verdicts.items() if state == "verified"]
        status_text = f"{len(verified)} of {len(index.verdicts)} artifacts verified"
        size = f"{index.size / 1e6:.1f} MB"
        rows.append((version[:SHORT], index.began, size, status_text))
    print_table(("version", "last run", "size", "verdicts"), rows)


def _transfer_text(transfer: Transfer, how: str) -> str:
    """Return a line on the transfer and the build; files with the same content are one object."""
    moved, size = f"{transfer.moved_size / 1e6:.1f} MB", f"{transfer.index.size / 1e6:.1f} MB"
    return f"{transfer.moved} objects {how}, {moved}; the build has {len(transfer.index.files)} files, {size}"
