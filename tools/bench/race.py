"""Artifacts in one race: time, size and accuracy, in processes in turn.

    edgekit export -t onnx -t onnx-int8-static -t onnx-int8-dynamic -t intel -O openvino.weights=fp16
    python -m tools.bench.race build/arr-coc-tiny

Every artifact of the builds that has a runtime here runs in it, and ONNX files in OpenVINO too. Each process opens one
with two threads, times one evaluation image and ends; every second round goes in the other order. Speed is the median
over the rounds of the first build's `onnx` over the candidate, with the least and the most. Accuracy is over all
evaluation images, against the first build's reference: Spearman on the mean and the worst image, lost mass on the
worst. The last column is the build's verdict, in the artifact's own places.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import edgekit
from edgekit import registry
from edgekit.artifact.manifest import Manifest
from edgekit.artifact.store import read_artifact
from edgekit.cli.console import print_table
from edgekit.errors import EdgekitError
from edgekit.judge import metrics
from edgekit.judge.limits import INT8
from edgekit.judge.verdict import score_tolerance
from edgekit.model.folder import load_builds_model
from edgekit.model.spec import ORDERED, ModelSpec
from edgekit.reference.batches import EVALUATION, Batch
from edgekit.reference.store import read_reference
from edgekit_targets.openvino.runtime import OpenvinoRuntime
from tools.bench.turns import Contender, in_turn, ratio

HEADS = ("artifact", "bytes", "p50 ms", "speed", "least to most", "Spearman, mean", "worst", "lost mass", "verdict")
FIRST = "onnx"


@dataclass(frozen=True)
class Racer:
    """An artifact, and what runs it: "own" or "openvino"."""

    folder: Path
    manifest: Manifest
    runtime: str = "own"

    @property
    def contender(self) -> Contender:
        """What a process opens."""
        return self.runtime, self.folder if self.runtime == "own" else self.folder / self.manifest.entry

    @property
    def size(self) -> int:
        """Bytes of what an app ships: the entry, and weights beside it."""
        stem = Path(self.manifest.entry).stem
        return sum(file.size for file in self.manifest.files if Path(file.path).stem == stem)


def main() -> None:
    """Race all, and print a table, the quickest first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", type=Path, nargs="+", help="a model's build folders; the first one has `onnx`")
    parser.add_argument("-t", "--target", action="append", help="these targets alone")
    parser.add_argument("--rounds", type=int, default=10, help="processes of each racer")
    parser.add_argument("--seconds", type=float, default=2.0, help="that each process times, at least")
    chosen = parser.parse_args()
    first = chosen.builds[0]
    if not (first / FIRST / "manifest.json").is_file():
        raise SystemExit(f"'{first}' has no {FIRST}: make it with the command in --help")
    spec = load_builds_model(first / "model", trusted=False)
    batch = next(b for b in read_reference(first / "reference").batches if b.name == EVALUATION)
    racers: dict[str, Racer] = {}
    judged: dict[str, tuple[str, str, str]] = {}
    for name, racer in _racers(chosen.builds, chosen.target):
        try:
            judged[name] = _accuracy(spec, batch, racer)
            racers[name] = racer
        except EdgekitError as error:
            print(f"{name} does not race: {error}")
    with tempfile.TemporaryDirectory() as folder:
        inputs = Path(folder) / "input.npz"
        np.savez(inputs, **next(batch.rows()))  # type: ignore[arg-type]  # numpy's stub
        contenders = {name: racer.contender for name, racer in racers.items()}
        timed = in_turn(contenders, inputs, chosen.rounds, chosen.seconds)
    rows = []
    for name, racer in racers.items():
        middle, least, most = ratio(timed[next(iter(timed))], timed[name])
        speed = (f"{np.median(timed[name]):.2f}", f"{middle:.2f}", f"{least:.2f} to {most:.2f}")
        verdict = "rejected" if racer.manifest.rejected else "verified"
        rows.append((name, f"{racer.size:,}", *speed, *judged[name], verdict))
    rows.sort(key=lambda row: float(row[2]))
    print_table(HEADS, rows)
    print(f"the quickest that is verified: {next(row[0] for row in rows if row[-1] == 'verified')}")


def _racers(builds: list[Path], targets: list[str] | None) -> Iterator[tuple[str, Racer]]:
    """By name, `onnx` of the first build first; places that are not timed stay out."""
    for build in builds:
        folders = sorted(path.parent for path in build.glob("*/manifest.json"))
        for folder in sorted(folders, key=lambda one: one.name != FIRST):
            manifest = read_artifact(folder)
            listed = targets is None or manifest.target in (*targets, FIRST)
            if not listed or not registry.find(manifest.target).places[0].timed:
                continue
            name = folder.name if build == builds[0] else f"{folder.name} of {build.parent.name}"
            yield name, Racer(folder, manifest)
            if manifest.entry.endswith(".onnx"):
                yield f"{name}, OpenVINO", Racer(folder, manifest, "openvino")


def _accuracy(spec: ModelSpec, batch: Batch, racer: Racer) -> tuple[str, str, str]:
    """Spearman on the mean and the worst image, and lost mass on the worst; empty where no output ranks."""
    own = racer.runtime == "own"
    with closing(
        edgekit.load(racer.folder, trust_build=True) if own else OpenvinoRuntime(racer.contender[1])
    ) as runtime:
        answers = [runtime.run(row) for row in batch.rows()]
    outputs = tuple(o for o in spec.outputs if o.role in ORDERED)
    got = {o.name: np.concatenate([row[o.name] for row in answers]) for o in outputs}
    right = {o.name: batch.outputs[o.name] for o in outputs}
    found = metrics.compare(outputs, right, got, batch.names, score_tolerance=score_tolerance(INT8, 0.0))
    values = {measure.metric: measure.values for measure in found.measures}
    if "spearman" not in values:
        return "", "", ""
    spearman, lost = values["spearman"], values["lost mass"]
    return f"{spearman.mean():.4f}", f"{spearman.min():.4f}", f"{100 * lost.max():.2f} %"


if __name__ == "__main__":
    main()
