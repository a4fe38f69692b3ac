import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from torch import nn

import edgekit
from edgekit import api
from edgekit.artifact.result import EvaluationResult
from edgekit.artifact.store import read_artifact
from edgekit.errors import ArtifactError, UsageError
from edgekit.model.folder import save_model
from edgekit.model.program import Capture
from edgekit.model.spec import Axis, Input, ModelSpec, Output
from edgekit.pipeline.outcome import Build
from edgekit.target import Job
from edgekit.testing import TargetContract, small_model
from edgekit_targets.onnx.buckets import INDEX, TARGET, WEIGHTS
from tests.builds import without_report
from tests.manifests import resealed
from tests.targets import tampering

NAME = "onnx-buckets"


def changed_index(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = folder / "model" / INDEX
    told = json.loads(path.read_text())
    change(told)
    path.write_text(json.dumps(told))


def swapped(folder: Path) -> None:
    one, other, between = (folder / "model" / name for name in ("96x160.onnx", "160x112.onnx", "x.onnx"))
    shutil.move(one, between)
    shutil.move(other, one)
    shutil.move(between, other)


def one_shared_weight(folder: Path) -> None:
    data = bytearray((folder / "model" / WEIGHTS).read_bytes())
    weights = np.frombuffer(data, np.float32).copy()
    place = int(np.abs(weights).argmax())
    weights[place] += tampering.CHANGE
    (folder / "model" / WEIGHTS).write_bytes(weights.tobytes())


class TestOnnxBuckets(TargetContract):
    name = NAME
    options: Mapping[str, object] = {"sizes": ("96x96", "160x112", "96x160")}

    def test_the_files_are_fixed_and_share_their_weights(self, builds: Path) -> None:
        made = read_artifact(builds / "small" / NAME)
        assert made.sizes == tuple({"height": h, "width": w} for h, w in ((96, 96), (160, 112), (96, 160)))
        for name in ("96x96", "160x112", "96x160"):
            graph = onnx.load(builds / "small" / NAME / "model" / f"{name}.onnx", load_external_data=False)
            sizes = [
                d.dim_value
                for value in (*graph.graph.input, *graph.graph.output)
                for d in value.type.tensor_type.shape.dim
            ]
            assert all(sizes)
            assert not {node.op_type for node in graph.graph.node} & {"Shape", "Gather"}
            outside = [t for t in graph.graph.initializer if t.external_data]
            assert len(outside) >= 4
        total = sum(file.size for file in made.files if file.path.endswith(".onnx"))
        assert (builds / "small" / NAME / "model" / WEIGHTS).stat().st_size > total / 3
        evidence = made.verdicts[0].evidence
        assert evidence is not None
        assert evidence.inputs["evaluation"] == 6
        assert evidence.inputs["real"] > 8

    def test_other_runtimes_of_this_host_open_the_files_and_a_pack_does_not(self, builds: Path, tmp_path: Path) -> None:
        build = shutil.copytree(builds / "small", tmp_path / "small")

        def asked() -> EvaluationResult:
            found = api.verify(build, places=["ort-basic"], targets=[NAME], images=1, progress="none")[NAME]
            return found.places[0]

        with without_report():
            place = asked()
            assert (place.place, place.status) == ("ort-basic", "verified"), place.reasons
            assert "enable_basic" in place.device
            one_shared_weight(build / NAME)
            resealed(build / NAME)
            assert asked().status == "rejected"
        for name in ("iree", "adb"):
            with pytest.raises(UsageError, match=f"opens none of {NAME}"):
                api.verify(build, places=[name], targets=[NAME], progress="none")
        with pytest.raises(UsageError, match=r"nothing to pack: ort-basic opens only \.onnx files"):
            api.pack(build, tmp_path / "p.zip", places=["ort-basic"], targets=[NAME], progress="none")

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            (one_shared_weight, "relevance"),
            (lambda folder: tampering.one_weight(folder / "model" / "160x112.onnx"), "height 160, width 112"),
            (swapped, "INVALID_ARGUMENT"),
            (lambda folder: tampering.cut(folder / "model" / WEIGHTS), "in another file"),
            (lambda folder: changed_index(folder, lambda told: told["buckets"].pop()), "Possible: 96x96, 160x112"),
            (lambda folder: changed_index(folder, lambda told: told.pop("rule")), "is not an index of buckets"),
        ],
        ids=[
            "one weight of all",
            "one weight of one file",
            "two files swapped",
            "half the weights",
            "no such bucket",
            "index",
        ],
    )
    def test_a_wrong_artifact_is_rejected(
        self, change: Callable[[Path], None], said: str, builds: Path, tmp_path: Path
    ) -> None:
        row = tampering.judged(builds / "small", NAME, change, tmp_path / "small")
        assert row.status == "rejected"
        assert said in " ".join(row.sentences)

    def test_half_of_one_file_is_no_artifact(self, builds: Path, tmp_path: Path) -> None:
        """Whoever signs it again is told so: it is read before any runtime sees it."""
        with pytest.raises(
            ArtifactError,
            match=r"160x112\.onnx' is not an ONNX file \(it is damaged",
        ):
            tampering.judged(
                builds / "small", NAME, lambda folder: tampering.cut(folder / "model" / "160x112.onnx"), tmp_path
            )

    def test_a_picture_gets_the_bucket_that_holds_it(self, builds: Path) -> None:
        query = small_model().random(0)["queries"]
        with edgekit.load(builds / "small" / NAME) as loaded:
            for height, width, patches in (
                (50, 60, 36),
                (150, 100, 70),
                (90, 150, 60),
                (900, 1500, 60),
                (3000, 100, 70),
            ):
                pixels = np.full((height, width, 3), 128, np.uint8)
                assert loaded.run({"images": pixels, "queries": query})["relevance"].shape == (1, patches)
            with pytest.raises(UsageError, match=r"the size 112x112\. 'small' takes 96x96, 160x112"):
                loaded.run(small_model().random(0, {"height": 112, "width": 112}))

    @pytest.mark.parametrize(
        ("options", "dynamic", "said"),
        [
            ({"sizes": ("96x96", "320x256")}, True, "cannot hold '320x256'. Possible: 96x96, 160x160"),
            ({"rule": "pad"}, True, "'indices' (ranking) names places in the padded picture"),
            ({}, False, "is made of 'onnx' with open sizes"),
        ],
    )
    def test_what_was_not_asked_or_cannot_be_cut_is_refused(
        self, options: dict[str, Any], dynamic: bool, said: str, builds: Path, tmp_path: Path
    ) -> None:
        root = builds / "small"
        entry, axes = root / "onnx" / "model.onnx", ("batch", "height", "width") if dynamic else ()
        job = Job(model=root / "model", reference=root / "reference", entry=entry, dynamic=axes, options=options)
        with pytest.raises(UsageError, match=re.escape(said)):
            TARGET.export(root / "onnx", tmp_path, job)
        assert not list(tmp_path.iterdir())


def padded_model(reach: int) -> ModelSpec:
    """A map of a picture: each value of its own pixels alone, or also of those at a distance of `reach`."""
    import torch

    class Map(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            generator = torch.Generator().manual_seed(1)
            self.first = torch.nn.Conv2d(3, 8, 4, 4)
            self.second = torch.nn.Conv2d(8, 1, 1 + 2 * reach, padding=reach)
            for parameter in self.parameters():
                torch.nn.init.normal_(parameter, 0.0, 0.3, generator)

        def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            found = torch.sigmoid(self.second(torch.relu(self.first(images))))
            return found, found.flatten(1)

    edge = Axis(16, 8, 32, 4)
    return ModelSpec(
        name="map",
        module=Map().eval(),
        inputs=(Input("images", ("batch", 3, "height", "width"), kind="image"),),
        outputs=(Output("map"), Output("patches")),
        axes={"batch": Axis(1, 1, 8), "height": edge, "width": edge},
    )


def padded(reach: int, folder: Path) -> Build:
    options = {NAME: {"rule": "pad"}}
    return edgekit.export(padded_model(reach), targets=[NAME], options=options, output=folder, progress="none")


@pytest.mark.skipif(not os.environ.get("EDGEKIT_SLOW"), reason="exports two models: set EDGEKIT_SLOW=1")
def test_padding_is_held_to_what_the_model_answers_without(tmp_path: Path) -> None:
    """A model that looks at its own pixels alone is verified at all sizes, and one that looks around it is rejected."""
    build = padded(0, tmp_path / "alone")
    assert build[NAME].status == "verified", build[NAME].sentences
    made = read_artifact(build[NAME].path)
    assert len({(sizes["height"], sizes["width"]) for sizes in made.verdicts[0].proof}) > 15
    assert made.axes["height"].dynamic
    assert not made.sizes
    with edgekit.load(build[NAME].path) as loaded, edgekit.load(build["onnx"].path) as whole:
        inputs = padded_model(0).random(0, {"height": 20, "width": 28})
        for name, answer in whole.run(inputs).items():
            np.testing.assert_allclose(loaded.run(inputs)[name], answer, atol=1e-6)

    def turned(told: dict[str, Any]) -> None:
        told["outputs"]["patches"][1]["axes"] = ["width", "height"]

    def change(folder: Path) -> None:
        changed_index(folder, turned)

    row = tampering.judged(build[NAME].path.parent, NAME, change, tmp_path / "turned", trust_build=True)
    assert row.status == "rejected"
    assert "'patches'" in row.sentences[0]
    around = padded(1, tmp_path / "around")[NAME]
    assert around.status == "rejected"
    assert "must be at most" in around.sentences[0]


def test_a_model_of_one_size_is_told_so_before_it_is_told_of_an_option(tmp_path: Path) -> None:
    spec = ModelSpec("flat", nn.Linear(4, 2).eval(), (Input("x", (4,)),), (Output("y"),))
    save_model(spec, tmp_path / "model", Capture(spec))
    job = Job(model=tmp_path / "model", entry=tmp_path / "model.onnx")
    with pytest.raises(UsageError, match=r"'flat' takes one size\. Use onnx with -O "):
        TARGET.export(tmp_path, tmp_path / "out", job)
