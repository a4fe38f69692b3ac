"""On a CPU: aoti, TorchScript, MNN, ONNX Runtime and OpenVINO in one race, in processes in turn.

    edgekit export -t onnx -t torchscript -t aoti -t mnn -t mnn-int8
    python -m tools.bench.compiled build/arr-coc-tiny

Each process opens one artifact with two threads, times one evaluation image and ends; every second round goes in the
other order. Speed is the median over the rounds of the ONNX file in ONNX Runtime over the candidate, with the least and
the most.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from edgekit.artifact.store import read_artifact
from edgekit.cli.console import print_table
from edgekit.reference.batches import EVALUATION
from edgekit.reference.store import read_reference
from tools.bench.turns import Contender, in_turn, ratio

FIRST = ("onnx", "ort")
RACERS = (
    FIRST,
    ("onnx", "openvino"),
    ("torchscript", "torchscript"),
    ("aoti", "aoti"),
    ("mnn", "mnn"),
    ("mnn-int8", "mnn"),
)
"""Target and runtime."""


def main() -> None:
    """Race all, and print a table, the quickest first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path, help="a model's build folder, with the targets above")
    parser.add_argument("--rounds", type=int, default=10, help="processes of each racer")
    parser.add_argument("--seconds", type=float, default=2.0, help="that each process times, at least")
    chosen = parser.parse_args()
    racers = [one for one in RACERS if one == FIRST or (chosen.build / one[0]).is_dir()]
    made = {target: read_artifact(chosen.build / target) for target, _ in racers}
    contenders: dict[str, Contender] = {
        f"`{target}`, {runtime}": (runtime, chosen.build / target / made[target].entry) for target, runtime in racers
    }
    batch = next(b for b in read_reference(chosen.build / "reference").batches if b.name == EVALUATION)
    row = next(batch.rows())
    with tempfile.TemporaryDirectory() as folder:
        inputs = Path(folder) / "input.npz"
        np.savez(inputs, **{i.name: row[i.name] for i in made["onnx"].inputs})  # type: ignore[arg-type]  # numpy's stub
        timed = in_turn(contenders, inputs, chosen.rounds, chosen.seconds)
    first = timed[next(iter(contenders))]
    rows = []
    for (target, _), (name, times) in zip(racers, timed.items(), strict=True):
        median, least, most = ratio(first, times)
        size = f"{sum(file.size for file in made[target].entry_files):,}"
        rows.append((name, size, f"{np.median(times):.2f}", f"{median:.2f}", f"{least:.2f} to {most:.2f}"))
    rows.sort(key=lambda row: float(row[2]))
    print_table(("artifact, runtime", "bytes", "p50 ms", "speed", "least to most"), rows)


if __name__ == "__main__":
    main()
