"""The folder `hub` of a build of parts, as transformers.js and optimum look for a model's files.

Beside the files that travel with it, in `onnx` each part's verified ONNX files under its name, and decoders of two
parts in one file, which the driver runs before it is kept.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgekit.artifact.run_record import HUB
from edgekit.artifact.store import read_artifact
from edgekit.errors import ExportError
from edgekit.model.parts import Parts, Session
from edgekit.runtime.ort import OrtRuntime
from edgekit.storage.files import digest_file, staging
from edgekit_hub.branches import FLAG, joined

if TYPE_CHECKING:
    import onnx

    from edgekit.model.spec import Array

ONNX = ".onnx"
SUFFIXES = {"fp16": "_fp16", "int8": "_quantized", "int4": "_q4"}
"""Behind the name of an ONNX file, by its precision, as transformers.js and optimum look for it."""
Holds = Callable[[str, Mapping[str, Session]], bool]
"""(a target, sessions for some parts) -> whether the whole holds with them in the place of the target's artifacts."""


def write_hub(
    parts: Parts, root: Path, verified: Collection[str], written: Collection[str], holds: Holds
) -> dict[str, str]:
    """Write the folder.

    Args:
        parts: The model.
        root: Its build folder.
        verified: Targets of which the whole is verified.
        written: Files of the folder that an earlier run wrote.
        holds: Judges the whole with other sessions for some parts.

    Returns:
        The hash of each file, by its path there.

    Raises:
        ExportError: If a file of two parts answers otherwise than these.
    """
    with staging(root / HUB, lambda _: written) as staged:
        for name, path in parts.files.items():
            shutil.copyfile(path, staged / name)
        for target in verified:
            made = {part: read_artifact(root / part / target) for part in parts.parts}
            suffix = SUFFIXES.get(next(iter(made.values())).precision, "")
            paths = {part: staged / "onnx" / f"{part}{suffix}{ONNX}" for part in (*made, *parts.joined)}
            if not all(one.entry.endswith(ONNX) for one in made.values()) or any(p.exists() for p in paths.values()):
                continue  # of two in one precision the first
            (staged / "onnx").mkdir(exist_ok=True)
            for part, one in made.items():
                shutil.copyfile(root / part / target / one.entry, paths[part])
            for name, (first, further) in parts.joined.items():
                _write_joined(paths[name], {part: paths[part] for part in (first, further)}, target, holds)
        files = sorted(path for path in staged.rglob("*") if path.is_file())
        return {path.relative_to(staged).as_posix(): digest_file(path) for path in files}


def _write_joined(path: Path, of: Mapping[str, Path], target: str, holds: Holds) -> None:
    """Write two parts' graphs as one, and have the driver run it."""
    import onnx

    graph = joined(*map(onnx.load, of.values()))
    path.write_bytes(graph.SerializeToString(deterministic=True))
    with closing(OrtRuntime(path)) as runtime:
        if not holds(
            target, {part: _Branch(runtime, graph, further) for part, further in zip(of, (False, True), strict=True)}
        ):
            raise ExportError(
                f"'{path.name}' answers otherwise than {' and '.join(of)} of '{target}', which it is made of"
            )


class _Branch:
    """One branch of a joined graph as a part; what this branch does not read is empty."""

    def __init__(self, runtime: OrtRuntime, graph: onnx.ModelProto, further: bool) -> None:
        self._runtime, self._inputs = runtime, [i for i in graph.graph.input if i.name != FLAG]
        self._flag = np.array([further])

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Answer one batch."""
        given = {i.name: inputs[i.name] if i.name in inputs else _empty(i) for i in self._inputs}
        return self._runtime.run(given | {FLAG: self._flag})


def _empty(declared: onnx.ValueInfoProto) -> Array:
    from onnx import helper

    kind = declared.type.tensor_type
    return np.zeros([size.dim_value for size in kind.shape.dim], helper.tensor_dtype_to_np_dtype(kind.elem_type))
