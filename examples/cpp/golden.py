"""Golden vectors of a build: `python golden.py BUILD FOLDER TARGET...` writes golden.json and golden.bin."""

import sys
from pathlib import Path

import edgekit
from edgekit.artifact.run_record import MODEL, REFERENCE
from edgekit.model.folder import load_model
from edgekit.reference.golden import choose_golden, write_golden
from edgekit.runtime.eager import EagerRuntime


def write(build: Path, folder: Path, targets: list[str]) -> None:
    """Choose rows, and limit each target by its gate and by what it shows in Python."""
    spec = load_model(build / MODEL)
    chosen = choose_golden(spec, build / REFERENCE, EagerRuntime(spec).run, tuple(spec.axes))
    # The build was made here: opening its libraries runs its author's code.
    shown = {t: chosen.largest_errors(edgekit.load(build / t, trust_build=True).run) for t in targets}
    folder.mkdir(parents=True, exist_ok=True)
    write_golden(folder, chosen, {target: chosen.limits("fp32", errors) for target, errors in shown.items()})


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
