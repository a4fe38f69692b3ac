"""Our fp32 ONNX beside PyTorch's plain export: speed interleaved in one run, and where the time goes, by operator.

    python -m tools.bench.fp32 --build build          # makes the plain export, measures both
    python -m tools.bench.fp32 --models FOLDER        # measures plain.onnx and onnx.onnx in a folder: needs no edgekit

With OpenVINO installed, it runs both graphs too. One input, two threads. Times by operator are ONNX Runtime's own
profile, in microseconds a run, median over the runs.
"""

from __future__ import annotations

import argparse
import collections
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime

THREADS, RUNS, PROFILED = 2, 600, 60
NAMES = ("plain", "onnx")
Feed = Mapping[str, np.ndarray]


def main() -> None:
    """Make, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=Path("build"), help="folder of builds with arr-coc-tiny's onnx")
    parser.add_argument("--models", type=Path, help="folder with plain.onnx and onnx.onnx")
    parser.add_argument("--make", type=Path, help="write the two files into a folder, and measure nothing")
    chosen = parser.parse_args()
    if chosen.make is not None:
        make(chosen.build, chosen.make)
        return
    with tempfile.TemporaryDirectory() as folder:
        if chosen.models is None:
            make(chosen.build, Path(folder))
        measure(chosen.models or Path(folder))


def make(builds: Path, folder: Path) -> None:
    """Write plain.onnx, as `torch.onnx.export` makes it with its defaults, and onnx.onnx, as edgekit did."""
    from edgekit_arrcoc import presets
    from tools.bench.plain import export_plain

    folder.mkdir(parents=True, exist_ok=True)
    spec = presets.arr_coc_tiny()
    export_plain(spec, folder / "plain.onnx")
    shutil.copy(builds / spec.name / "onnx" / "model.onnx", folder / "onnx.onnx")
    np.savez(folder / "input.npz", **spec.random(0))  # type: ignore[arg-type]  # numpy's stub


def measure(folder: Path) -> None:
    """Print medians, their ratio, and a table of operators."""
    feed = dict(np.load(folder / "input.npz"))
    opened = {name: _session(folder / f"{name}.onnx") for name in NAMES}
    runs: dict[str, Callable[[], object]] = {
        f"ONNX Runtime, {name}": partial(session.run, None, feed) for name, session in opened.items()
    }
    print(f"ONNX Runtime {onnxruntime.__version__}, {THREADS} threads, {_processor()}")
    _print_speeds(runs)
    if others := _openvino(folder, feed):  # apart: its threads go on spinning while others begin
        _print_speeds(others)
    _print_operators({name: _profile(folder / f"{name}.onnx", feed) for name in NAMES})


def _session(path: Path, profile: Path | None = None) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = THREADS, 3
    if profile is not None:
        options.enable_profiling, options.profile_file_prefix = True, str(profile)
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _openvino(folder: Path, feed: Feed) -> dict[str, Callable[[], object]]:
    try:
        import openvino
    except ImportError:
        return {}
    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": THREADS, "NUM_STREAMS": 1}
    core = openvino.Core()
    made = {name: core.compile_model(folder / f"{name}.onnx", "CPU", settings) for name in NAMES}
    return {f"OpenVINO, {name}": partial(model, feed) for name, model in made.items()}


def _print_speeds(runs: Mapping[str, Callable[[], object]]) -> None:
    """Medians of runs in turn, each pair in the other order, with the middle half, and the ratio to the first."""
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(RUNS + 20):
        for name, run in list(runs.items())[:: 1 if number % 2 else -1]:
            began = time.perf_counter()
            run()
            if number >= 20:
                taken[name].append(1e3 * (time.perf_counter() - began))
    base = next(iter(taken.values()))
    for name, values in taken.items():
        low, middle, high = statistics.quantiles(values, n=4)
        ratios = statistics.median(b / v for b, v in zip(base, values, strict=True))
        print(f"{name:24} p50 {middle:7.2f} ms ({low:.2f} to {high:.2f}), {ratios:.3f} times the speed of the first")


def _profile(path: Path, feed: Feed) -> dict[str, tuple[int, float]]:
    """Nodes and median microseconds a run, by operator."""
    with tempfile.TemporaryDirectory() as folder:
        session = _session(path, Path(folder) / "profile")
        for _ in range(PROFILED + 10):
            session.run(None, feed)
        events = json.loads(Path(session.end_profiling()).read_text())
    nodes = [e for e in events if e.get("cat") == "Node" and e["name"].endswith("_kernel_time")]
    times: dict[tuple[str, str], list[float]] = collections.defaultdict(list)
    for event in nodes:
        times[event["args"]["op_name"], event["name"]].append(event["dur"])
    found: dict[str, tuple[int, float]] = {}
    for (operator, _), durations in times.items():
        count, total = found.get(operator, (0, 0.0))
        found[operator] = count + 1, total + statistics.median(durations[10:])
    return found


def _print_operators(profiles: Mapping[str, Mapping[str, tuple[int, float]]]) -> None:
    names = {operator for profile in profiles.values() for operator in profile}
    cost = {o: max(profile.get(o, (0, 0.0))[1] for profile in profiles.values()) for o in names}
    print("operator".ljust(28) + "".join(f"{name + ' nodes':>14}{name + ' us':>12}" for name in profiles))
    for operator in sorted(names, key=lambda o: -cost[o]):
        row = [profile.get(operator, (0, 0.0)) for profile in profiles.values()]
        print(operator.ljust(28) + "".join(f"{count:14}{time:12.0f}" for count, time in row))
    print("all".ljust(28) + "".join(f"{'':14}{sum(t for _, t in p.values()):12.0f}" for p in profiles.values()))


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown"


if __name__ == "__main__":
    main()
