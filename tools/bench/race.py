"""Our INT8, OpenVINO's and fp32 in one race: time, size and accuracy, in processes in turn.

    python -m tools.bench.race build/arr-coc-tiny

The build holds the artifacts, which this command makes:

    edgekit export -t onnx -t onnx-int8-static -t onnx-int8-dynamic -t intel -O openvino.weights=fp16

Each process opens one artifact with two threads, times one evaluation image and ends; every second round goes in the
other order. Speed is the median over the rounds of fp32 in ONNX Runtime over the candidate, with the least and the
most. Accuracy is over all evaluation images of the build, against the reference that it holds: Spearman on the mean and
the worst image, lost mass on the worst. The last column is the build's verdict, in the artifact's own places.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgekit.artifact.store import read_artifact
from edgekit.cli.console import print_table
from edgekit.judge import metrics
from edgekit.judge.limits import INT8
from edgekit.judge.verdict import score_tolerance
from edgekit.model.folder import load_builds_model
from edgekit.model.spec import ModelSpec
from edgekit.reference.batches import EVALUATION, Batch
from edgekit.reference.store import read_reference
from edgekit.runtime.openvino import OpenvinoRuntime
from edgekit.runtime.ort import OrtRuntime
from edgekit.runtime.protocol import Runtime
from tools.bench.turns import Contender, in_turn, ratio

FIRST = "fp32 ONNX, ONNX Runtime"


@dataclass(frozen=True)
class Racer:
    """What runs: an artifact of the build in a runtime."""

    target: str
    runtime: str


RACERS = {
    FIRST: Racer("onnx", "ort"),
    "fp32 ONNX, OpenVINO": Racer("onnx", "openvino"),
    "openvino, fp16 weights": Racer("openvino", "openvino"),
    "onnx-int8-static, ONNX Runtime": Racer("onnx-int8-static", "ort"),
    "onnx-int8-static, OpenVINO": Racer("onnx-int8-static", "openvino"),
    "onnx-int8-dynamic, ONNX Runtime": Racer("onnx-int8-dynamic", "ort"),
    "openvino-int8 (NNCF), OpenVINO": Racer("openvino-int8", "openvino"),
}


def main() -> None:
    """Race all, and print a table, the quickest first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path, help="a model's build folder")
    parser.add_argument("--rounds", type=int, default=10, help="processes of each racer")
    parser.add_argument("--seconds", type=float, default=2.0, help="that each process times, at least")
    chosen = parser.parse_args()
    missing = sorted({r.target for r in RACERS.values() if not (chosen.build / r.target / "manifest.json").is_file()})
    if missing:
        raise SystemExit(f"'{chosen.build}' has no {', '.join(missing)}: make them with the command in --help")
    spec = load_builds_model(chosen.build / "model", trusted=False)
    batch = next(b for b in read_reference(chosen.build / "reference").batches if b.name == EVALUATION)
    contenders: dict[str, Contender] = {n: (r.runtime, _entry(chosen.build, r.target)) for n, r in RACERS.items()}
    judged = {name: _accuracy(spec, batch, *contenders[name]) for name in RACERS}
    with tempfile.TemporaryDirectory() as folder:
        inputs = Path(folder) / "input.npz"
        np.savez(inputs, **next(batch.rows()))  # type: ignore[arg-type]  # numpy's stub
        timed = in_turn(contenders, inputs, chosen.rounds, chosen.seconds)
    rows = []
    for name, racer in RACERS.items():
        size, median = f"{_size(chosen.build, racer.target):,}", f"{np.median(timed[name]):.2f}"
        rows.append((name, size, median, *_speed(timed, name), *judged[name], _verdict(chosen.build, racer.target)))
    heads = (
        "artifact, runtime",
        "bytes",
        "p50 ms",
        "speed",
        "least to most",
        "Spearman, mean",
        "worst",
        "lost mass",
        "verdict",
    )
    rows.sort(key=lambda row: float(row[2]))
    print("\t".join(heads))
    print_table(heads, rows)
    print(f"the quickest that is verified: {next(row[0] for row in rows if row[-1] == 'verified')}")


def _entry(build: Path, target: str) -> Path:
    return build / target / read_artifact(build / target).entry


def _size(build: Path, target: str) -> int:
    """Bytes of what an app ships: the entry, and weights beside it."""
    made = read_artifact(build / target)
    return sum(file.size for file in made.files if Path(file.path).stem == Path(made.entry).stem)


def _verdict(build: Path, target: str) -> str:
    return "rejected" if read_artifact(build / target).rejected else "verified"


def _speed(timed: Mapping[str, list[float]], name: str) -> tuple[str, str]:
    middle, least, most = ratio(timed[FIRST], timed[name])
    return f"{middle:.2f}", f"{least:.2f} to {most:.2f}"


def _accuracy(spec: ModelSpec, batch: Batch, kind: str, path: Path) -> tuple[str, str, str]:
    """Spearman on the mean and the worst image, and lost mass on the worst."""
    runtime: Runtime = OrtRuntime(path) if kind == "ort" else OpenvinoRuntime(path)
    answers = [runtime.run(row) for row in batch.rows()]
    runtime.close()
    outputs = tuple(o for o in spec.outputs if o.role in ("scores", "counts", "ranking"))
    got = {o.name: np.concatenate([row[o.name] for row in answers]) for o in outputs}
    right = {o.name: batch.outputs[o.name] for o in outputs}
    found = metrics.compare(outputs, right, got, batch.names, score_tolerance=score_tolerance(INT8, 0.0))
    spearman = next(m.values for m in found.measures if m.metric == "spearman")
    lost = next(m.values for m in found.measures if m.metric == "lost mass")
    return f"{spearman.mean():.4f}", f"{spearman.min():.4f}", f"{100 * lost.max():.2f} %"


if __name__ == "__main__":
    main()
