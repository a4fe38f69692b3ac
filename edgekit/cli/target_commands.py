"""Commands `edgekit targets` and `edgekit doctor`: possible targets, and this host's facts."""

from __future__ import annotations

import platform
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from importlib import metadata, util
from pathlib import Path
from typing import Annotated

import typer

from edgekit import doors, registry
from edgekit.cli.arguments import Json, print_json
from edgekit.cli.completion import target_names
from edgekit.cli.help import epilog
from edgekit.errors import DISTRIBUTION, EdgekitError, UsageError
from edgekit.hosts import process
from edgekit.pipeline.run_log import missing_requirements
from edgekit.reference.record import host
from edgekit.runtime.processor import int8_arithmetic
from edgekit.storage import environment


@epilog("Example: `edgekit skill > .agents/skills/edgekit/SKILL.md`")
def skill() -> None:
    """Print a skill for coding agents: when to use edgekit, its commands, and how to read a verdict."""
    print(Path(__file__).with_name("SKILL.md").read_text(encoding="utf-8"), end="")


@epilog("Examples:\n\n`edgekit targets`\n\n`edgekit targets onnx-int8-static`\n\n`edgekit targets --json`")
def targets(
    name: Annotated[str, typer.Argument(help="Show one target with its options.", autocompletion=target_names)] = "",
    as_json: Json = False,
) -> None:
    """List the targets with summary, requirements and state; with a name, show its options and places."""
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
    table = [(row.name, row.summary, row.source, "; ".join(row.missing) or "installed") for row in rows]
    table += [(name, sentence, "", "broken") for name, sentence in broken.items()]
    print_table(("target", "makes", "from", "state"), table)


@epilog("Example: `edgekit doctor --json`")
def doctor(as_json: Json = False) -> None:
    """Show versions, devices, and the targets and places that work on this host."""
    facts = examine()
    if as_json:
        print_json(facts)
        return
    from edgekit.cli.console import print_table

    for title, rows in facts.items():
        print_table((title, ""), [(str(name), str(value)) for name, value in rows.items()])


# Device files of NVIDIA's driver, and of Windows Subsystem for Linux.
NVIDIA = (Path("/dev/nvidiactl"), Path("/dev/dxg"))
LIBRARIES = (DISTRIBUTION, "torch", "onnx", "onnxscript", "onnxruntime", "onnxruntime-gpu", "coremltools", "executorch")


def examine() -> dict[str, dict[str, str]]:
    """Return facts of this host: titles -> names -> states."""
    versions = {"python": platform.python_version()} | {name: _version(name) for name in LIBRARIES}
    cuda = "none visible to PyTorch"
    # Importing PyTorch takes seconds, and without a driver's device file it sees none.
    if sys.platform != "linux" or any(path.exists() for path in NVIDIA):
        import torch

        cuda = torch.cuda.get_device_name() if torch.cuda.is_available() else cuda
    targets, broken = registry.loadable()
    states = broken | dict.fromkeys(targets, "installed") | missing_requirements(targets)
    facts = {
        "versions": versions,
        "host": host() | {"cuda device": cuda, "int8 arithmetic": int8_arithmetic()},
        "targets": dict(sorted(states.items())),
        "places": {name: _place(name) for name in doors.places.entries()},
        "environments": environments(),
    }
    plugins = broken_records(broken)
    return facts | {"plugins": plugins} if plugins else facts


def broken_records(targets: Mapping[str, str]) -> dict[str, str]:
    """Return why each broken record of a package is unusable, by its kind and name.

    Args:
        targets: The same for targets, by name.
    """
    broken = {f"target {name}": sentence for name, sentence in targets.items()}
    for door in (doors.commands, doors.sources, doors.places):
        broken |= {f"{door.noun} {name}": sentence for name, sentence in door.load_all()[1].items()}
    return dict(sorted(broken.items()))


def environments() -> dict[str, str]:
    """Return the environments of `edgekit env add`, and the state of each."""
    return {
        name: "ready" if environment.ready(name) else f"not installed: {environment.command(name)}"
        for name in environment.LOCKED
    }


def _place(name: str) -> str:
    """Return whether artifacts can be judged there, or what is missing."""
    try:
        runtime = doors.places.find(name)
    except UsageError as error:
        return f"broken: {error}"
    if runtime.status:
        return str(doors.resolve(runtime.status)())
    if util.find_spec(runtime.library) is None:
        return f"needs {runtime.library}: {runtime.install}"
    provider = runtime.settings.get("provider")
    if provider is not None:
        import onnxruntime

        if provider not in onnxruntime.get_available_providers():
            return (
                f"this ONNX Runtime does not have {provider}: {runtime.install}, or name a host: {name}@ssh:USER@HOST"
            )
        try:
            # Listed providers may still fail to load their libraries, so one is started.
            process.call(start_provider, {"settings": dict(runtime.settings)})
        except EdgekitError as missing:
            return f"{missing}: {runtime.install}, or name a host: {name}@ssh:USER@HOST"
    return "ready"


def start_provider(settings: dict[str, str], progress: process.Progress) -> dict[str, object]:
    """Run a product of two matrices with a provider of ONNX Runtime, in a worker.

    Raises:
        NotVerifiedHere: If it cannot start.
        ArtifactError: If it fails.
    """
    import numpy as np
    from onnx import TensorProto, helper

    from edgekit.runtime.ort_session import OrtSession

    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, 8]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "x"], ["y"])], "started", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with tempfile.TemporaryDirectory(prefix="edgekit-") as folder:
        path = Path(folder) / "started.onnx"
        path.write_bytes(model.SerializeToString())
        OrtSession(path, settings).run({"x": np.eye(8, dtype=np.float32)})
    return {}


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
