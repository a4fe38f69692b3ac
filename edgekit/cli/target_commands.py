"""`edgekit targets` and `edgekit doctor`: what can be exported, and what this host has."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from edgekit.cli.arguments import Json, print_json
from edgekit.cli.completion import target_names
from edgekit.cli.help import epilog


@epilog("Examples:\n\n`edgekit targets`\n\n`edgekit targets onnx-int8-static`\n\n`edgekit targets --json`")
def targets(
    name: Annotated[str, typer.Argument(help="Show one target with its options.", autocompletion=target_names)] = "",
    as_json: Json = False,
) -> None:
    """List the targets: what each makes, what it needs, whether it is installed; with a name its options and places."""
    from edgekit import registry
    from edgekit.cli.console import print_table, show_target

    if name:
        target = registry.find(name)
        if as_json:
            print_json(asdict(registry.info(name, target)))
        else:
            show_target(name, target)
        return
    loaded, broken = registry.loadable()
    rows = [registry.info(name, target) for name, target in loaded.items()]
    if as_json:
        print_json({"schema_version": 2, "targets": list(map(asdict, rows)), "broken": broken})
        return
    shown = [(row.name, row.summary, row.source, "; ".join(row.missing) or "installed") for row in rows]
    shown += [(name, sentence, "", "broken") for name, sentence in broken.items()]
    print_table(("target", "makes", "from", "state"), shown)


@epilog("Example: `edgekit doctor --json`")
def doctor(as_json: Json = False) -> None:
    """Show versions, devices, and what can be exported and verified on this host."""
    from edgekit.cli.doctor import examine

    facts = examine()
    if as_json:
        print_json(facts)
        return
    from edgekit.cli.console import print_table

    for title, rows in facts.items():
        print_table((title, ""), [(str(name), str(value)) for name, value in rows.items()])
