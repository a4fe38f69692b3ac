"""The command `edgekit operators`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from edgekit.artifact.store import read_artifact
from edgekit.cli.arguments import Json, print_json
from edgekit.errors import UsageError


def operators(
    artifact: Annotated[Path, typer.Argument(help="The artifact's folder in its build.")],
    as_json: Json = False,
) -> None:
    """Count the operators of an ONNX artifact, the most frequent first."""
    import onnx

    from edgekit.cli.console import print_table

    manifest = read_artifact(artifact)  # checks the hash of each file
    if not manifest.entry.endswith(".onnx"):
        raise UsageError(f"'{artifact}' is a {manifest.target} artifact. Name the folder of an ONNX artifact.")
    graph = onnx.load(artifact / manifest.entry, load_external_data=False).graph
    counts = Counter(node.op_type for node in graph.node).most_common()
    if as_json:
        print_json({"operators": dict(counts)})
    else:
        print_table(("operator", "count"), [(name, str(count)) for name, count in counts])
