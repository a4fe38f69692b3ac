"""What INT8 destroys, and what it slows down, is refused with its reason."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from edgekit import registry
from edgekit.cli import main
from edgekit.evaluate import engine, timing
from edgekit.hosts import process
from edgekit.model.sources import resolve_model
from edgekit.model.spec import Array
from edgekit.pipeline import run, worker
from edgekit.runtime.protocol import Runtime
from edgekit.target import Place, Target
from edgekit.testing import SMALL
from tests.targets.onnx.quantization.listening import Silent

pytestmark = pytest.mark.usefixtures("no_report")

INT8 = "onnx-int8-static"
BASELINE_MS = 2.0


def test_int8_that_destroys_top_k_is_rejected(tmp_path: Path) -> None:
    outcome = run.export(
        resolve_model("tests.targets.onnx.passes.outliers:spec"), (INT8,), tmp_path / "outliers", {}, Silent()
    )
    assert outcome["onnx"].status == "verified", outcome["onnx"].sentences
    row = outcome[INT8]
    assert row.status == "rejected"
    assert any("spearman of 'scores'" in s or "lost mass of 'indices'" in s for s in row.sentences), row.sentences
    said = "no recipe holds the gate's limits on samples held back from calibration: "
    assert row.sentences[0].startswith(f"cpu: {said}"), row.sentences
    (failure,) = json.loads((row.path / "manifest.json").read_text())["export"]["failures"]
    assert failure.startswith(said)
    table = json.loads((tmp_path / "outliers" / "cache" / INT8 / "trials.json").read_text())
    assert not any(found["passed"] for found in table)


@dataclass
class Paced:
    """A runtime whose every run takes the same time of the test's clock, whatever the host takes."""

    real: Runtime
    milliseconds: float
    watch: list[float]

    @property
    def device(self) -> str:
        return self.real.device

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        self.watch[0] += self.milliseconds / 1000
        return self.real.run(inputs)

    def close(self) -> None:
        self.real.close()


@pytest.fixture
def paced(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets what one run of the INT8 artifact takes, in milliseconds; its baselines take BASELINE_MS.

    The INT8 artifact answers as the fp32 artifact beside it does, so that it is verified on every processor. The rest
    is the real path: command, pipeline, worker (called here, since a process of its own would not see the test's
    clock), timing protocol, ratio, verdict, exit code.
    """
    find, call, measure = registry.find, process.call, timing.measure

    def as_fp32(artifact: Path, place: Place) -> Runtime:
        return find("onnx").load(artifact.parent / "onnx", place)

    def found(name: str) -> Target:
        return replace(find(name), load=as_fp32) if name == INT8 else find(name)

    def called(
        function: Callable[..., dict[str, object]],
        arguments: dict[str, object],
        progress: process.Progress,
        *rest: object,
        **more: object,
    ) -> dict[str, object]:
        if function is worker.run_artifact:
            return function(**arguments, progress=progress)
        return call(function, arguments, progress, *rest, **more)  # type: ignore[arg-type]  # as it was given

    def timed(candidate: float, runtimes: Mapping[str, Runtime], inputs: Mapping[str, Array], **more: float) -> object:
        watch = [0.0]
        pace = {engine.RUN: candidate}
        slowed = {name: Paced(one, pace.get(name, BASELINE_MS), watch) for name, one in runtimes.items()}
        return measure(slowed, inputs, clock=lambda: watch[0], **more)  # type: ignore[arg-type]  # as it was given

    monkeypatch.setattr(registry, "find", found)
    monkeypatch.setattr(process, "call", called)
    return lambda candidate: monkeypatch.setattr(engine, "measure", partial(timed, candidate))


@pytest.mark.nightly
def test_quantize_refuses_what_is_slower(
    paced: Callable[[float], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "argv", ["edgekit", "quantize", SMALL, "--search", "none", "-o", str(tmp_path)])
    result = tmp_path / "small" / INT8 / "result.json"
    for milliseconds, code in ((4.0, 3), (BASELINE_MS, 0), (1.0, 0)):
        paced(milliseconds)
        result.unlink(missing_ok=True)  # judged again, not exported again
        assert _code() == code
        said = capsys.readouterr().out
        assert f"{INT8}\tverified" in said
        assert ("0.50x the speed of onnx" in said) == (code == 3)
        (place,) = json.loads(result.read_text())["places"]
        ratios = {ratio["baseline"]: ratio["value"] for ratio in place["ratios"]}
        assert ratios["onnx"] == pytest.approx(BASELINE_MS / milliseconds)


def _code() -> int:
    try:
        main.main()
    except SystemExit as left:
        return int(left.code or 0)
    return 0
