from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from edgekit.artifact.fact import Code
from edgekit.artifact.manifest import AxisInfo, Manifest, Source
from edgekit.model.spec import Array
from edgekit.pipeline import worker
from edgekit.pipeline.compare_step import sample_of, sampled
from edgekit.pipeline.repeats import Repeats
from edgekit.reference.batches import EVALUATION, STRESS, Batch, applicable_batches
from edgekit.reference.info import ReferenceInfo
from edgekit.reference.store import Reference
from edgekit.runtime.protocol import SelfTimed, SideBySide, Timings
from edgekit.target import FP32, Place
from edgekit.testing import small_model

EDGE = AxisInfo(default=96, minimum=96, maximum=160, multiple_of=16, dynamic=True)
AXES = {"batch": AxisInfo(default=1, minimum=1, maximum=8, multiple_of=1, dynamic=True), "height": EDGE, "width": EDGE}


def batch(name: str, rows: int, **sizes: int) -> Batch:
    array = np.arange(rows, dtype=np.float32)
    return Batch(name, {"x": array}, {"y": array}, sizes, tuple(f"row {row}" for row in range(rows)))


def recorded() -> Reference:
    grid = (batch("grid-00", 1, batch=1, height=96, width=96), batch("grid-01", 3, batch=3, height=96, width=96))
    return Reference((batch(EVALUATION, 20), batch(STRESS, 9), *grid), ReferenceInfo(Path()))


def test_a_slow_place_is_asked_a_sample() -> None:
    assert [len(b.names) for b in applicable_batches(recorded().batches, manifest())] == [20, 9, 1, 3]
    sample = applicable_batches(recorded().batches, manifest(), 8)
    assert [(b.name, len(b.names)) for b in sample] == [(EVALUATION, 8), (STRESS, 9), ("grid-00", 1)]
    assert [len(a) for b in sample[:1] for a in (*b.inputs.values(), *b.outputs.values())] == [8, 8]


def manifest(**options: str) -> Manifest:
    return Manifest(
        name="m",
        target="web",
        precision="fp32",
        entry="m",
        key="",
        source=Source(name="onnx", sha256=""),
        model_sha256="",
        options=options,
        axes=AXES,
        files=(),
    )


def test_a_place_declares_how_many_images_are_judged_there() -> None:
    slow, quick = (Place(name="wasm", tolerance=FP32, sample=sample) for sample in (8, 0))
    assert sample_of(manifest(), slow) == 8
    assert sample_of(manifest(images="all"), slow) is None
    assert sample_of(manifest(), quick) is None


def test_the_verdict_says_how_much_was_judged() -> None:
    made = manifest()
    said = sampled(made, applicable_batches(recorded().batches, manifest(), 8), recorded())
    assert said.code is Code.SAMPLED
    assert said.details == {"target": "web", "images": 8, "all_images": 20, "shapes": 1, "all_shapes": 2}
    assert str(said) == (
        "slow here, so judged on 8 of 20 evaluation images and 1 of 2 shapes: `-O web.images=all` judges on all"
    )


class Clock:
    device = "a phone"

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        raise AssertionError("it measures itself")

    def close(self) -> None:
        pass

    def clock(self, inputs: Mapping[str, Array], seconds: float) -> Timings:
        return Timings((1.0, 3.0), (f"{len(inputs['x'])} image",))


def test_a_runtime_that_times_itself_is_asked() -> None:
    clock = Clock()
    assert isinstance(clock, SelfTimed)
    found = worker._timed(clock, recorded().batches, None, "cpu", small_model, Repeats({}, {}, ()))
    assert found.notes == ("1 image",)
    timing = found.timings["candidate"]
    assert (timing.device, timing.runs, timing.p50) == ("a phone", 2, 2.0)


class Pair:
    """Doubles what it is asked, and refuses what is negative."""

    device = "a browser"

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        raise AssertionError("it answers side by side")

    def answers(self, runs: Iterable[Mapping[str, Array]]) -> Iterator[dict[str, Array] | Exception]:
        for inputs in runs:
            x = inputs["x"]
            yield ValueError("negative") if (x < 0).any() else {"y": 2 * x}

    def close(self) -> None:
        pass


def test_what_answers_side_by_side_gives_each_batch_its_own_answers() -> None:
    pair = Pair()
    assert isinstance(pair, SideBySide)
    bad = Batch("bad", {"x": np.array([1, -1, 1], np.float32)}, {}, {}, ("a", "b", "c"))
    batches = (batch(EVALUATION, 5), bad, batch("grid-00", 3, batch=3))
    several = pair.answers(inputs for one in batches for inputs in one.rows())
    found = {}
    for one in batches:
        try:
            found[one.name] = worker._answer(pair, several, one, {"y": 0})["y"].tolist()
        except ValueError as error:
            found[one.name] = str(error)
    assert found == {EVALUATION: [0, 2, 4, 6, 8], "bad": "negative", "grid-00": [0, 2, 4]}


def test_what_answers_side_by_side_is_asked_again_too() -> None:
    first = {f"{EVALUATION}/y": np.array([0, 2, 5], np.float32), f"{STRESS}/y": np.array([0, 2], np.float32)}
    repeats = Repeats({"y": 0}, first, (batch(EVALUATION, 3), batch(STRESS, 2)))
    repeats.ask(Pair(), 32)
    assert (repeats.repeated, repeats.failures) == (5, {})
    assert repeats.rows == {f"{EVALUATION} again": (2,)}
    assert repeats.answers[f"{EVALUATION} again/y"].tolist() == [4]
    bad = Batch("bad", {"x": np.array([-1], np.float32)}, {}, {}, ("a",))
    failing = Repeats({"y": 0}, first, (batch(EVALUATION, 3), bad))
    failing.ask(Pair(), 32)
    assert (failing.repeated, failing.failures) == (0, {"bad again": "ValueError: negative"})
