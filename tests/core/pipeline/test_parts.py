"""A model of parts: what its driver gives each, the whole judged with the artifacts, and what is refused."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import edgekit
import edgekit_inspect
import edgekit_stores
from edgekit import Axis, Component, CompositeModel, Input, ModelSpec, Output, registry
from edgekit.artifact.run_record import PARTS, read_parts, write_parts
from edgekit.errors import EdgekitError, ModelError, NotVerifiedHere
from edgekit.judge import verdict
from edgekit.judge.limits import FP32
from edgekit.model.parts import Driver, Session
from edgekit.pipeline import composite_run as whole
from edgekit.pipeline import given_model
from edgekit.pipeline.composite_run import run_composite, run_driver
from edgekit.pipeline.outcome import Build, TargetOutcome
from edgekit.pipeline.plan import made_in_memory
from edgekit.reference.batches import batches_for
from edgekit.report.rows import read_study
from edgekit.storage.verified_io import seal_record
from edgekit_apps.android import PLATFORM
from edgekit_apps.bundle import plan
from edgekit_serve.models import ServeOptions, open_served, servable

TOKENS = 6


class Prefill(nn.Module):
    """The state after a prompt: the mean of its embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(16, 8)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.embedding(ids).mean(1, keepdim=True)
        return found


class Step(nn.Module):
    """The next token, and the cache with one row more."""

    def __init__(self) -> None:
        super().__init__()
        self.mixed, self.head = nn.Linear(8, 8), nn.Linear(8, 16)

    def forward(self, cache: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        new = torch.tanh(self.mixed(cache)).mean(1, keepdim=True)
        return self.head(new[:, 0]), torch.cat([cache, new], 1)


def driver(parts: Mapping[str, Session], prompt: Any) -> dict[str, Any]:
    cache = parts["prefill"].run({"ids": prompt})["output"]
    tokens = []
    for _ in range(TOKENS):
        answer = parts["step"].run({"cache": cache})
        tokens.append(answer["logits"].argmax(-1))
        cache = answer["next"]
    return {"tokens": np.concatenate(tokens), "cache": cache}


def model(seed: int = 0, drive: Driver = driver) -> CompositeModel:
    torch.manual_seed(seed)
    draw = np.random.default_rng(0)
    step = ModelSpec(
        "step",
        Step().eval(),
        (Input("cache", ("batch", "past", 8), low=-2),),
        (Output("logits", "logits"), Output("next", "state")),
        {"batch": Axis(1, 1, 2), "past": Axis(3, 1, 8)},
    )
    return CompositeModel(
        "tiny",
        {"prefill": Component(Prefill().eval(), axes={"ids": "0=batch,1=tokens:1..8"}), "step": step},
        drive,
        [draw.integers(0, 8, (1, length)) for length in (2, 3, 4, 5, 3, 7)],
    )


def factory() -> CompositeModel:
    return model()


def test_each_part_is_asked_what_the_driver_gives_it() -> None:
    found = run_composite(model())
    assert found.calls == {"prefill": 6, "step": 6 * TOKENS}
    step = found.specs["step"]
    assert step.axes["past"].default == 4  # of the six sizes in the middle
    assert step.evaluation is not None
    given = step.evaluation()
    assert given.inputs["cache"].shape == (6, 4, 8)
    assert len(given.others) == 30
    batches = {b.name: b for b in batches_for(step, given) if b.kept and b.sizes["batch"] == 1}
    cache = next(b.inputs["cache"] for b in batches.values() if b.sizes["past"] == 6)
    assert any(np.array_equal(cache, other["cache"]) for other in given.others)
    assert (found.specs["prefill"].inputs[0].low, found.specs["prefill"].inputs[0].high) == (0, 7)
    roles = {output.name: (output.role, output.dtype) for output in found.outputs}
    assert roles == {"tokens": ("labels", "int64"), "cache": ("tensor", "float32")}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Build:
    return edgekit.export(model(), targets=["onnx"], output=tmp_path_factory.mktemp("builds"), progress="none")


def test_the_whole_is_driven_with_the_artifacts(made: Build, tmp_path: Path) -> None:
    build = made
    shutil.copytree(made.path, tmp_path / "tiny")
    assert build["onnx"].verdict == "verified"
    assert build.ok
    assert [build.parts[part]["onnx"].verdict for part in ("prefill", "step")] == ["verified", "verified"]
    record = json.loads((tmp_path / "tiny" / PARTS).read_text())
    assert record["parts"]["step"] == {"folder": "step", "calls": 6 * TOKENS}
    step = edgekit.load(build.parts["step"]["onnx"].path)
    assert record["targets"]["onnx"]["artifacts"]["step"] == step.manifest.sha256
    sessions = {"prefill": edgekit.load(build.parts["prefill"]["onnx"].path), "step": step}
    assert np.array_equal(driver(sessions, model().inputs[0])["tokens"], run_composite(model()).answers[0]["tokens"])

    none = {part: replace(one, outcomes=()) for part, one in build.parts.items()}
    whole.export(
        model(), (), tmp_path / "tiny", lambda part, *_: none[part]
    )  # a run for other targets keeps what holds
    assert json.loads((tmp_path / "tiny" / PARTS).read_text()) == record
    whole.export(model(seed=1), (), tmp_path / "tiny", lambda part, *_: none[part])
    assert not json.loads((tmp_path / "tiny" / PARTS).read_text())["targets"]

    other = whole.export(model(seed=1), (), tmp_path, lambda part, *_: build.parts[part])
    assert other["onnx"].verdict == "rejected"  # artifacts of another model's weights
    assert not other.ok
    assert any("'tokens'" in str(reason) for reason in other["onnx"].reasons)

    step_made = build.parts["step"].outcomes[0]
    assert step_made.manifest is not None
    axes = {name: axis.model_copy(update={"dynamic": False}) for name, axis in step_made.manifest.axes.items()}
    rigid = replace(step_made, manifest=step_made.manifest.model_copy(update={"axes": axes}))
    asked = replace(model(), driver=calls("step", {"cache": np.zeros((1, 9, 8), np.float32)}))
    fixed = {**build.parts, "step": replace(build.parts["step"], outcomes=(rigid,))}
    stuck = whole._outcome(asked, run_composite(model()), fixed, "onnx", registry.find("onnx"), tmp_path)
    assert "`edgekit targets onnx`" in stuck.sentences[0]

    parts = replace(build.parts["step"].outcomes[0], status="rejected", result=None)
    bad = {**build.parts, "step": replace(build.parts["step"], outcomes=(parts,))}
    refused = whole.export(model(), (), tmp_path, lambda part, *_: bad[part])
    assert refused["onnx"].sentences == ("part 'step' was rejected",)

    with pytest.raises(EdgekitError, match=r"is the build of a model of parts.* '.*prefill'"):
        edgekit.pack(tmp_path / "tiny", tmp_path / "tiny.zip", places=["openvino"])
    for one_graph in (edgekit.load, edgekit_inspect.explain, read_study, partial(plan, platform=PLATFORM, targets=())):
        with pytest.raises(EdgekitError, match="is the build of a model of parts"):
            one_graph(tmp_path / "tiny")
    with pytest.raises(EdgekitError, match="is the build of a model of parts"):
        edgekit.load(tmp_path / "tiny" / "onnx")


@pytest.mark.nightly
def test_a_whole_is_verified_again_where_it_was_moved_to(made: Build, tmp_path: Path) -> None:
    root = shutil.copytree(made.path, tmp_path / "moved")
    again = edgekit.verify(root, trust_build=True, progress="none")
    assert [again["onnx"].status_text, again["onnx"].reused, again.ok] == ["verified", True, True]
    assert [part["onnx"].is_new for part in again.parts.values()] == [True, True]
    with pytest.raises(EdgekitError, match=r"no artifact of 'torchscript' in '.*prefill'.* onnx"):
        edgekit.verify(root, targets=["torchscript"], trust_build=True, progress="none")


@pytest.mark.nightly
def test_a_whole_is_pushed_pulled_and_verified_by_its_address(
    made: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_BUILDS", str(tmp_path / "cache"))
    root = shutil.copytree(made.path, tmp_path / "here" / "tiny")
    (root / "note.txt").write_text("mine")
    (root / "step" / "key.pem").write_text("mine")
    url = f"file://{tmp_path}/store/tiny"
    sent = edgekit_stores.push(root, url, progress="none")
    assert sent.left_out == ("note.txt", "step/key.pem")
    assert (sent.index.name, sent.index.verdicts) == ("tiny", {"onnx": "verified"})

    pulled = edgekit_stores.pull(url, into=tmp_path / "into", progress="none").path
    assert sorted(p.name for p in pulled.iterdir()) == ["parts.json", "prefill", "step"]
    assert edgekit.verify(url, trust_build=True, progress="none")["onnx"].status_text == "verified"
    step = edgekit.local(f"{sent.address}/step/onnx", progress="none")
    assert edgekit.load(step).manifest.name == "tiny.step"
    (pulled / "step" / "cache").mkdir()
    (pulled / "step" / "cache" / "durations.json").write_text("{}")  # as a run leaves
    record = read_parts(root)
    write_parts(root, record.model_copy(update={"driver": "another:driver"}))
    edgekit_stores.push(root, url, progress="none")
    assert read_parts(edgekit_stores.pull(url, into=tmp_path / "into", progress="none").path).driver == "another:driver"

    older = {
        n: one.model_copy(update={"artifacts": {**one.artifacts, "step": "0" * 64}})
        for n, one in record.targets.items()
    }
    write_parts(root, record.model_copy(update={"targets": older}))
    with pytest.raises(EdgekitError, match=r"the part 'step' in .* is not the 'onnx' of the whole model's verdict"):
        edgekit_stores.push(root, url, progress="none")
    (root / PARTS).write_text((root / PARTS).read_text().replace("tiny", "tine"))
    with pytest.raises(EdgekitError, match=r"parts\.json' is damaged"):
        edgekit_stores.push(root, url, progress="none")


def test_a_part_of_a_rejected_whole_is_not_served(made: Build, tmp_path: Path) -> None:
    root = shutil.copytree(made.path, tmp_path / "tiny")
    assert servable(root / "step", "cpu") == ["onnx"]
    record = read_parts(root)
    bad = {name: one.model_copy(update={"status": "rejected"}) for name, one in record.targets.items()}
    write_parts(root, record.model_copy(update={"targets": bad}))
    assert servable(root / "step", "cpu") == []
    with pytest.raises(EdgekitError, match=r"is a part of .* rejected composite model"):
        open_served(root / "step", "onnx", ServeOptions())


def other_factory() -> CompositeModel:
    return model(seed=1)


def test_a_whole_is_driven_again_where_its_factory_may_run(
    made: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = shutil.copytree(made.path, tmp_path / "tiny")
    (tmp_path / "moved_towers.py").write_text(f"from {__name__} import factory\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    def verified(factory: str) -> Build:
        write_parts(root, read_parts(root).model_copy(update={"factory": factory}))
        again = given_model.parts_of_factory
        return whole.verify(root, (), lambda folder: made.parts[folder.name], again=again)

    found = verified(f"{__name__}:factory")
    assert [found["onnx"].status, found["onnx"].reused, found.note] == ["verified", False, ""]
    moved = verified("moved_towers:factory")
    assert (
        "the code behind 'moved_towers:factory', or a library's version, has changed since this build's" in moved.note
    )
    assert moved["onnx"].status == "verified"
    assert verified(f"{__name__}:other_factory")["onnx"].status == "rejected"  # as it would be exported now
    assert read_parts(root).targets["onnx"].status == "rejected"
    with pytest.raises(EdgekitError, match="no longer returns a model of parts"):
        verified("edgekit.testing:small_model")
    assert given_model.factory_name("towers:factory") == "towers:factory"
    assert {given_model.factory_name(name) for name in ("arr-coc-tiny", "transformers:x", Path("a:b"))} == {""}


def test_what_was_changed_in_a_whole_is_refused(made: Build, tmp_path: Path) -> None:
    root = shutil.copytree(made.path, tmp_path / "tiny")
    step = made.parts["step"]["onnx"]
    assert step.manifest is not None
    files = (step.manifest.files[0].model_copy(update={"sha256": "0" * 64}), *step.manifest.files[1:])
    other = replace(step, manifest=step.manifest.model_copy(update={"files": files}))

    def verified(**parts: Build) -> TargetOutcome:
        return whole.verify(root, (), lambda folder: {**made.parts, **parts}[folder.name])["onnx"]

    assert verified().status == "verified"
    assert whole.verify(root, (), lambda folder: made.parts[folder.name], signed=True).unsigned == (PARTS,)
    swapped = verified(step=replace(made.parts["step"], outcomes=(other,)))
    assert [swapped.status, swapped.error[:44]] == ["failed", "part 'step' is not the artifact that the who"]
    entry = root / "step" / "onnx" / "model.onnx"
    entry.write_bytes(entry.read_bytes() + b"0")
    damaged = edgekit.verify(root, trust_build=True, progress="none")
    assert "part 'step' failed" in damaged["onnx"].error
    assert "model.onnx' is damaged" in damaged["onnx"].error

    record = root / PARTS
    text = record.read_text()
    for wrong, why in (
        (text.replace('"calls": 36', '"calls": 37'), "is damaged: it has changed"),
        (seal_record({"name": "tiny"}), "validation error"),
        (seal_record(json.loads(text) | {"parts": {}}), "validation error"),
        (
            seal_record(json.loads(text) | {"parts": {"step": {"folder": "../other", "calls": 1}}}),
            "not a plain relative path",
        ),
    ):
        record.write_text(wrong)
        with pytest.raises(EdgekitError, match=f"{PARTS}' .*{why}"):
            edgekit.verify(root, progress="none")
    record.unlink()
    with pytest.raises(EdgekitError, match="no artifact in"):
        edgekit.verify(root, progress="none")


def test_without_targets_a_whole_is_made_for_those_that_need_no_code_of_its_parts() -> None:
    targets, _ = registry.loadable()
    found = run_composite(model()).specs
    chosen = made_in_memory(targets, found.values())
    assert "onnx" in chosen
    assert not {"torchscript", "torch-mobile", "aoti"} & {*chosen}


def calls(name: str, inputs: Mapping[str, Any]) -> Driver:
    return lambda parts, prompt: next(iter(parts[name].run(inputs).values()))


CHANCE, OTHER = iter(range(8)), iter(range(8))  # what a driver keeps from one input to the next
IDS = np.zeros((1, 2), np.int64)


@pytest.mark.parametrize(
    ("drive", "sentence"),
    [
        (calls("stepp", {"cache": IDS}), r"mean 'step'"),
        (
            calls("step", {"cache": np.zeros((1, 8), np.float32)}),
            r"input 'cache' is float32 \[1, 8\]. 'step' takes a NumPy array of float32 \[batch, past, 8\]",
        ),
        (
            calls("step", {"cache": np.zeros((1, 9, 8), np.float32)}),
            "Axis 'past' of 'step' must be 1 to 8, which it declares",
        ),
        (calls("step", {"cash": IDS}), "the driver calls 'step', which lacks the input 'cache'. Its inputs: cache"),
        (calls("prefill", {"ids": IDS}), "never calls part 'step'"),
        (lambda parts, prompt: {"text": "yes"}, "returns str in 'text'"),
        (lambda parts, prompt: parts["prefill"].run({"ids": prompt})["out"], "failed at .*KeyError: 'out'"),
        (lambda parts, prompt: sys.exit(0), "the driver of 'tiny' failed at .*SystemExit: 0"),
        (
            lambda parts, prompt: driver(parts, prompt * 0 + next(CHANCE))["cache"] * 0,
            "passes other inputs to 'prefill'",
        ),
        (
            lambda parts, prompt: driver(parts, prompt)["cache"] + next(OTHER),
            "returns other outputs",
        ),
        (
            lambda parts, prompt: driver(parts, prompt) and parts["prefill"].run({"ids": prompt}),
            "whatever part 'step' returns",
        ),
        (
            lambda parts, prompt: driver(parts, prompt) | {"none": IDS[:0]},
            "returns an empty 'none'",
        ),
    ],
)
def test_what_a_driver_may_not_do_is_a_sentence(drive: Driver, sentence: str) -> None:
    with pytest.raises(EdgekitError, match=sentence):
        run_composite(replace(model(), driver=drive, parts=model().parts))


def test_what_a_driver_fills_again_is_kept_as_it_was() -> None:
    tokens = np.zeros(TOKENS, np.int64)

    def filled(parts: Mapping[str, Session], prompt: Any) -> Any:
        tokens[:] = driver(parts, prompt)["tokens"]
        return tokens

    found = run_composite(model(drive=filled))
    answers = [answer["output"].copy() for answer in found.answers]
    tokens[:] = -1  # as an artifact that is wrong would
    assert len({answer.tobytes() for answer in answers}) > 1
    assert all(map(np.array_equal, answers, [answer["output"] for answer in found.answers]))


def test_nothing_found_is_an_answer_that_can_be_right_or_wrong() -> None:
    def boxes(*counts: int) -> tuple[dict[str, Any], ...]:
        return tuple({"boxes": np.ones((count, 4), np.float32), "cache": np.ones(2, np.float32)} for count in counts)

    found = replace(run_composite(model()), outputs=(Output("boxes"), Output("cache")), answers=boxes(2, 0, 1))
    assert not [one.faults for one in whole._compare(found, boxes(2, 0, 1)) if one.faults]
    assert [bool(one.faults) for one in whole._compare(found, boxes(2, 1, 0))] == [False, True, True]
    for wrong in (
        boxes(2, 1, 1),
        boxes(2, 0, 0),
    ):  # of three inputs one: something is found in nothing, and the reverse
        assert verdict.judge(FP32, {}, evaluation=whole._compare(found, wrong)).status == "rejected"
    other = [
        {**answer, "boxes": answer["boxes"].reshape(-1, 4 if answer["boxes"].size else 5)} for answer in boxes(2, 0, 1)
    ]
    assert verdict.judge(FP32, {}, evaluation=whole._compare(found, other)).status == "rejected"


@pytest.mark.parametrize(
    ("error", "kind", "ignored", "renamed"),
    [
        (RuntimeError("it"), ModelError, r"continues after .* \(RuntimeError: it\)", "failed at .*ValueError: its own"),
        (NotVerifiedHere("no such device"), NotVerifiedHere, "no such device", "no such device"),
        (KeyboardInterrupt(), KeyboardInterrupt, None, None),
    ],
)
def test_what_a_part_raises_is_no_answer_whatever_the_driver_makes_of_it(
    error: BaseException, kind: type[BaseException], ignored: str | None, renamed: str | None
) -> None:
    def goes_on(parts: Mapping[str, Session], prompt: Any) -> Any:
        try:
            return driver(parts, prompt)["tokens"]
        except BaseException:
            return np.zeros(TOKENS, np.int64)

    def renames(parts: Mapping[str, Session], prompt: Any) -> Any:
        try:
            return driver(parts, prompt)["tokens"]
        except BaseException as first:
            raise ValueError("its own") from first

    class Broken:
        def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
            raise error

    for drive, match in ((goes_on, ignored), (renames, renamed)):
        with pytest.raises(kind, match=match):
            run_driver(model(drive=drive), {"prefill": Broken(), "step": Broken()}, IDS)


class Join(nn.Module):
    def forward(self, x: torch.Tensor, past: torch.Tensor) -> torch.Tensor:
        return torch.cat([past, x], 1)


def test_an_axis_may_be_empty_at_first_and_not_always() -> None:
    axes = {"batch": Axis(1, 1, 2), "past": Axis(1, 0, 4)}
    inputs = (Input("x", ("batch", 1)), Input("past", ("batch", "past")))
    join = ModelSpec("join", Join().eval(), inputs, (Output("all"),), axes)

    def grow(parts: Mapping[str, Session], count: int) -> Any:
        past = np.zeros((1, 0), np.float32)
        for _ in range(count):
            past = parts["join"].run({"x": np.ones((1, 1), np.float32), "past": past})["all"]
        return past

    found = run_composite(CompositeModel("grown", {"join": join}, grow, [3, 4])).specs["join"]
    assert found.axes["past"] == Axis(2, 0, 4)  # 0, 1 and 2 are asked twice; of those that are not empty the larger
    with pytest.raises(EdgekitError, match="'join' only with an empty axis"):
        run_composite(CompositeModel("grown", {"join": join}, grow, [1]))


def test_what_is_no_model_of_parts_is_a_sentence() -> None:
    with pytest.raises(EdgekitError, match=r"the part 'step' of 'tiny' is a int, not a ModelSpec"):
        replace(model(), parts={"step": 3})  # type: ignore[dict-item]  # a user's mistake
    with pytest.raises(EdgekitError, match="has no inputs to judge"):
        replace(model(), inputs=[])
    with pytest.raises(EdgekitError, match="is a model of parts"):
        edgekit.export(model(), data="photos")
    with pytest.raises(EdgekitError, match="which only `edgekit export` takes"):
        edgekit.record(f"{__name__}:factory")
