"""edgekit's wheel in an environment of its own: the embedded model is exported and judged there, part of the tests run.

    python tools/environments.py                                     # this Python, what pip takes today
    python tools/environments.py --python python3.13 torch==2.14.1   # another Python, a version that is asked for

A row of the table in docs/index.md is printed. An environment with a CUDA build of torch takes 6 GB.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = ("tests/targets/onnx/passes", "tests/core/judge", "tests/targets/onnx/quantization", "tests/core/model")
"""What depends most on the versions of torch, onnx and ONNX Runtime, without the targets of extras."""
FOR_TESTS = ("pytest>=9", "pytest-timeout", "hypothesis", "jsonschema", "pyyaml", "scipy", "transformers>=5,<6")
SHOWN = ("torch", "numpy", "onnx", "onnxscript", "onnxruntime")
VERSIONS = (
    "import json, platform, importlib.metadata as m; "
    f"print(json.dumps([platform.python_version(), *map(m.version, {SHOWN})]))"
)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", default=sys.executable, help="the interpreter that the environment is made of")
    parser.add_argument("pins", nargs="*", metavar="PACKAGE==VERSION", help="what is installed in these versions")
    chosen = parser.parse_args()
    print(f"| Python | {' | '.join(SHOWN)} | arr-coc-tiny | tests | minutes |")
    print("|---" * (len(SHOWN) + 4) + "|")
    with tempfile.TemporaryDirectory(prefix="edgekit-") as place:
        started = time.monotonic()
        row, passed = _tried(Path(place), chosen.python, chosen.pins)
        print(f"| {' | '.join(row)} | {(time.monotonic() - started) / 60:.0f} |")
    return not passed


def _tried(place: Path, python: str, pins: list[str]) -> tuple[list[str], bool]:
    """Make the environment, export and test in it: the row's cells, and whether all of it passed."""
    own = place / "venv" / "bin" / "python"
    _run(place, python, "-m", "venv", str(place / "venv"))
    _run(place, str(own), "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(place), str(ROOT))
    wheel = next(place.glob("edgekit_export-*.whl"))
    _run(place, str(own), "-m", "pip", "install", "--quiet", f"{wheel}[cpu]", *FOR_TESTS, *pins)
    versions = json.loads(_run(place, str(own), "-c", VERSIONS).stdout)
    exported = _run(place, str(own), "-m", "edgekit", "export", "arr-coc-tiny", "--json", check=False)
    verified, verdicts = _verdicts(exported.stdout)
    # --rootdir and the folder: the checkout's tests, and the wheel's edgekit
    tests = _run(ROOT, str(own), "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS, check=False)
    counts = re.findall(r"\d+ (?:passed|failed|skipped|errors?)", (tests.stdout.splitlines() or [""])[-1])
    for step, done in (("export", exported), ("tests", tests)):
        if done.returncode:
            print(f"{step}: rc {done.returncode}\n{done.stdout[-6000:]}\n{done.stderr[-2000:]}", file=sys.stderr)
    return [*versions, verdicts, ", ".join(counts)], verified and exported.returncode == tests.returncode == 0


def _verdicts(printed: str) -> tuple[bool, str]:
    """Whether `onnx` of a default export is verified, and in words what became of each artifact."""
    if not printed.startswith("{"):
        return False, "no export"
    by_status: dict[str, list[str]] = {}
    for artifact in json.loads(printed)["artifacts"]:
        by_status.setdefault(artifact["status"], []).append(artifact["target"])
    words = [f"{status}: {', '.join(targets)}" for status, targets in sorted(by_status.items(), reverse=True)]
    return "onnx" in by_status.get("verified", ()), "; ".join(words)


def _run(place: Path, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True)
    if check and done.returncode:
        raise SystemExit(f"{' '.join(command[:4])} ... failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done


if __name__ == "__main__":
    sys.exit(main())
