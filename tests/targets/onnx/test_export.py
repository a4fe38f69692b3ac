import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import edgekit
from edgekit.artifact.store import read_artifact
from edgekit.errors import ArtifactError, UsageError
from edgekit.model.folder import load_model, save_model
from edgekit.model.graph import capture
from edgekit.model.program import save_program
from edgekit.model.records import WEIGHTS
from edgekit.target import Job
from edgekit.testing import SMALL, TargetContract, small_model
from edgekit_targets.onnx import export as onnx_target
from tests.targets import tampering

pytestmark = pytest.mark.usefixtures("no_report")


class TestOnnx(TargetContract):
    name = "onnx"


@pytest.mark.nightly
def test_fixed_shapes_in_an_old_opset_are_judged_as_they_are(build: Path) -> None:
    options = {"onnx": {"shapes": "static", "opset": 17}}
    found = edgekit.export(SMALL, targets=["onnx"], options=options, output=build.parent, progress="none")
    made = read_artifact(found["onnx"].path)
    assert found["onnx"].status == "verified", found["onnx"].sentences
    assert made.static
    graph = onnx.load(found["onnx"].path / "model.onnx")
    assert [(o.domain, o.version) for o in graph.opset_import] == [("", 17)]
    assert graph.ir_version == 8
    assert not {"Shape", "Gelu"} & {node.op_type for node in graph.graph.node}
    sizes = [d.dim_value for value in graph.graph.input for d in value.type.tensor_type.shape.dim]
    assert sizes == [1, 3, 96, 96, 1, 16]
    with edgekit.load(found["onnx"].path) as loaded, pytest.raises(UsageError, match="must be 1"):
        loaded.run(small_model().random(0, {"batch": 2}))


@pytest.mark.nightly
def test_another_fixed_size_is_asked_what_the_reference_has_there(build: Path, tmp_path: Path) -> None:
    """Random and real inputs of that size, one at a time; what is made of it has that size too, or is refused."""
    options = {"onnx": {"shapes": "160x112"}}
    targets = ["onnx", "onnx-fp16", "onnx-int8-dynamic"]
    found = edgekit.export(SMALL, targets=targets, options=options, output=build.parent, progress="none")
    assert [found[name].status for name in targets] == ["verified", "verified", "failed"], found["onnx"].sentences
    assert "is fixed at 160x112" in found["onnx-int8-dynamic"].error
    for name in targets[:2]:
        made = read_artifact(found[name].path)
        assert made.static
        assert made.sizes == ({"height": 160, "width": 112},)
        assert [made.axes[axis].default for axis in ("batch", "height", "width")] == [1, 160, 112]
        assert {tuple(sizes.values()) for sizes in made.verdicts[0].proof} == {(1, 160, 112)}
        evidence = made.verdicts[0].evidence
        assert evidence is not None
        assert (evidence.inputs["grid"], evidence.inputs["real"], evidence.inputs.get("evaluation")) == (9, 9, None)
        assert evidence.repeated >= 18
        assert any("inputs, which have another size" in text for text in evidence.not_asked)
    with edgekit.load(found["onnx"].path) as loaded:
        assert loaded.run(small_model().random(0, {"height": 160, "width": 112}))["relevance"].shape == (1, 70)
        with pytest.raises(UsageError, match="Axis 'height' of 'small' must be 160"):
            loaded.run(small_model().random(0))

    def change(folder: Path) -> None:
        tampering.one_weight(folder / "model.onnx")

    whole = found["onnx"].path.parent
    assert tampering.judged(whole, "onnx", change, tmp_path / "wrong").status == "rejected"
    with pytest.raises(ArtifactError, match=r"is not an ONNX file \(it is damaged"):
        tampering.judged(whole, "onnx", lambda folder: tampering.cut(folder / "model.onnx"), tmp_path / "half")
    with pytest.raises(UsageError, match=r"cannot be '320x256'\. Possible: dynamic, static, 96x96, 160x160, 112x112"):
        onnx_target.size_of(small_model(), "320x256")


OLD_ANSWER = """
import sys
import numpy, onnxruntime
given = numpy.load(sys.argv[2])
answers = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"]).run(None, dict(given))
numpy.savez(sys.argv[3], *answers)
"""


@pytest.mark.skipif(not os.environ.get("EDGEKIT_SLOW"), reason="fetches an old ONNX Runtime: set EDGEKIT_SLOW=1")
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="ONNX Runtime 1.15 is for Python 3.11: install that")
def test_opset_17_runs_in_an_old_runtime(tmp_path: Path) -> None:
    """The oldest ONNX Runtime that pip installs for this Python, at two batches and sizes."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "old"], check=True)
    python = tmp_path / "old/bin/python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "onnxruntime==1.15.0", "numpy<2"], check=True)
    build = edgekit.export(SMALL, targets=["onnx"], options={"onnx": {"opset": 17}}, output=tmp_path, progress="none")
    for number, sizes in enumerate(({}, {"batch": 3, "height": 160, "width": 112})):
        given, answered = tmp_path / f"given{number}.npz", tmp_path / f"answered{number}.npz"
        inputs = small_model().random(number, sizes)
        np.savez(given, **inputs)  # type: ignore[arg-type]  # numpy's own options could have these names
        subprocess.run([python, "-c", OLD_ANSWER, build["onnx"].path / "model.onnx", given, answered], check=True)
        with edgekit.load(build["onnx"].path) as loaded:
            right = loaded.run(inputs)
        old = dict(zip(right, np.load(answered).values(), strict=True))
        for name in ("relevance", "budgets"):
            np.testing.assert_allclose(old[name], right[name], atol=1e-5)
        then, now = (np.take_along_axis(right["relevance"], one["indices"], axis=1) for one in (old, right))
        np.testing.assert_allclose(then, now, atol=1e-5)  # equal scores may come in another order


def test_the_module_is_not_built_for_its_declaration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = small_model()
    save_model(replace(spec, factory=SMALL), tmp_path / "model")
    save_program(capture(spec), tmp_path / "program", "", tmp_path / "model" / WEIGHTS)
    options = {option.name: option.default for option in onnx_target.TARGET.options}
    job = Job(model=tmp_path / "model", reference=tmp_path, options=options)
    files = []
    for name in ("own", "declared"):
        (tmp_path / name).mkdir()
        if name == "own":
            monkeypatch.setattr(onnx_target, "load_declaration", load_model)
        onnx_target.export(tmp_path / "program", tmp_path / name, job)
        monkeypatch.undo()
        files.append((tmp_path / name / onnx_target.ENTRY).read_bytes())
    assert files[0] == files[1]
    monkeypatch.setattr(onnx_target, "load_model", None)
    (tmp_path / "again").mkdir()
    onnx_target.export(tmp_path / "program", tmp_path / "again", job)
