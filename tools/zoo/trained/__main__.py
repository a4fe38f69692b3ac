"""Trained networks by their users' metric: `python -m tools.zoo.trained --out docs/trained.md`.

Each network of `tools/zoo/trained.toml` is exported and measured in a process of its own, beside plain tools. Results
stay in the cache folder: an interrupted run goes on where it stopped, and a change of edgekit or of the network's entry
measures again. `--check` compares the results with the figures that the TOML file expects. The command exits 1 if one
fell, or if a network could not be measured.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import util
from pathlib import Path
from typing import Any

from edgekit.runtime.processor import VARIABLE, processor
from edgekit.storage.environment import package_digest
from edgekit.storage.files import digest_text, write_text
from tools.zoo.trained import keep
from tools.zoo.trained.measure import CATALOGUE, LINES, catalogue, read_lines
from tools.zoo.trained.table import expectations, fallen, held, page

ROOT = Path(__file__).parents[3]
CACHE = ROOT / "build" / "trained"
EXPECTATIONS = ("expected", "reference", "tolerance", "misses", "metric", "data")
"""Keys of an entry that change no result."""
VARIABLES = {"EDGEKIT_TIMED_SECONDS": "0.01", VARIABLE: "1", "OMP_NUM_THREADS": "1", "NNCF_CI": "1"}


def main() -> int:
    """Measure what is not kept, and write the table or check it."""
    parser = argparse.ArgumentParser(prog="python -m tools.zoo.trained", description=__doc__)
    parser.add_argument("--out", type=Path, help="the page with the table")
    parser.add_argument(
        "--cache", type=Path, default=CACHE, help="folder of packages, builds and results, which is kept"
    )
    parser.add_argument("--networks", type=Path, default=CATALOGUE, help="the TOML file")
    parser.add_argument("--only", action="append", help="one network; may be given more than once")
    parser.add_argument("--again", action="store_true", help="measure again what is kept")
    parser.add_argument("--kept", action="store_true", help="measure nothing")
    parser.add_argument("--check", action="store_true", help="exit 1 if a figure is lower than the TOML file expects")
    options = parser.parse_args()
    networks = catalogue(options.networks)
    if unknown := [name for name in options.only or () if name not in networks]:
        parser.error(f"unknown network '{unknown[0]}'. Possible: {', '.join(networks)}")
    selection = {name: entry for name, entry in networks.items() if not options.only or name in options.only}
    if not options.kept:
        for name, entry in selection.items():
            fill(name, entry, options.cache.resolve(), options.networks.resolve(), options.again)
    results = {name: lines for name in networks if (lines := read_lines(options.cache / name)) is not None}
    if options.out is not None:
        write_text(options.out, page(networks, results, processor()))
    for name in (name for name in selection if name in results):
        print(f"{name}: {held(results[name])[1]}\n  expected = {expectations(results[name])}")
    problems = fallen(selection, results) if options.check else []
    for problem in problems:
        print(problem, file=sys.stderr)
    return int(bool(problems) or any(name not in results for name in selection if not options.kept))


def fill(name: str, entry: Mapping[str, Any], cache: Path, networks: Path, again: bool = False) -> None:
    """Measure a network in a process of its own, unless its results are kept; say why if that fails."""
    folder, key = cache / name, key_of(entry)
    record = folder / "key.json"
    if not again and record.is_file() and json.loads(record.read_text())["key"] == key:
        return
    # Of other code or another entry: what follows may fail.
    for path in (record, folder / LINES):
        path.unlink(missing_ok=True)
    packages = cache / "packages"
    install(entry.get("packages", ()), packages)
    paths = [str(ROOT), os.environ.get("PYTHONPATH", ""), str(packages)]
    variables = {**os.environ, **VARIABLES, "PYTHONPATH": os.pathsep.join(paths), keep.FOLDER: str(cache)}
    print(f"{name} ...", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "tools.zoo.trained.measure", name, str(cache), str(networks)]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "log.txt").open("w") as log:
        code = subprocess.run(command, cwd=ROOT, env=variables, stdout=log, stderr=log, check=False).returncode
    if code:
        last = (folder / "log.txt").read_text().strip().splitlines()[-1:]
        print(f"'{name}' was not measured: {''.join(last)}. See {folder / 'log.txt'}", file=sys.stderr)
        return
    write_text(record, json.dumps({"key": key}) + "\n")


def key_of(entry: Mapping[str, Any]) -> str:
    """Return a digest of what a network's results depend on: its entry, and the code of edgekit."""
    facts = {name: value for name, value in entry.items() if name not in EXPECTATIONS}
    return digest_text(json.dumps(facts, sort_keys=True) + package_digest("edgekit", "edgekit_targets"))


def install(packages: Sequence[str], folder: Path) -> None:
    """Install packages without their dependencies into a folder, unless they are importable or there."""
    folder.mkdir(parents=True, exist_ok=True)
    for package in packages:
        name, _, version = package.partition("==")
        modules = {"scikit-image": "skimage"}
        stored = any(folder.glob(f"[{name[0]}{name[0].upper()}]*-{version}.dist-info"))
        if stored or util.find_spec(modules.get(name, name.replace("-", "_"))) is not None:
            continue
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), package]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    sys.exit(main())
