"""The runtime that judges and users see: places, shapes, dtypes, images; and Core ML itself, stood in for on Linux."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from edgekit.errors import ArtifactError, NotVerifiedHere, UsageError
from edgekit.model.spec import Array, Input, Output, Role
from edgekit_targets.coreml import runtime as coreml
from edgekit_targets.coreml.runtime import Contract, Derived, entries, find_package, open_package
from mil_interpreter.package import parse
from tests.mil_interpreter.programs import Saved

MODEL = Path("Data/com.apple.CoreML/model.mlmodel")
SCORES = Output("scores", role="scores")
COUNTS = Output("counts", role="counts", of="scores", dtype="int64", low=64, high=400)
RANKING = Output("ranking", role="ranking", of="scores", dtype="int64")
X = np.array([[0.25, 0.5, 0.75, 0.5]], np.float32)


def annotate(path: Path, metadata: Mapping[str, str]) -> None:
    model = parse((path / MODEL).read_bytes())
    for key, value in metadata.items():
        model.description.metadata.userDefined[key] = value
    (path / MODEL).write_bytes(model.SerializeToString())


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    return Saved(tmp_path_factory.mktemp("programs"))


@pytest.fixture
def artifact(saved: Saved, tmp_path: Path) -> Path:
    """A package of scores, counts and a ranking, as `coreml` makes them."""
    from coremltools.converters.mil.mil import Builder as mb  # noqa: N813

    def build(v: Any) -> Any:
        counts = mb.cast(x=mb.floor(x=mb.add(x=mb.mul(x=v["x"], y=np.float32(336)), y=np.float32(64.5))), dtype="int32")
        ranking = mb.topk(x=v["x"], k=2, axis=-1)[1]
        return (
            mb.identity(x=v["x"], name="scores"),
            mb.identity(x=counts, name="counts"),
            mb.identity(x=ranking, name="ranking"),
        )

    shutil.copytree(saved.save({"x": X}, build), tmp_path / "Small.mlpackage")
    annotate(tmp_path / "Small.mlpackage", entries([Input("x", (1, 4))], [SCORES, COUNTS, RANKING], []))
    return tmp_path


def test_answers_have_the_dtypes_that_the_model_declares(artifact: Path) -> None:
    answers = open_package(artifact, "interpreter").run({"x": X})
    assert {n: a.dtype.name for n, a in answers.items()} == {"scores": "float32", "counts": "int64", "ranking": "int64"}
    np.testing.assert_array_equal(answers["counts"], [[148, 232, 316, 232]])
    np.testing.assert_array_equal(answers["ranking"], [[2, 1]])


def test_a_package_of_others_answers_in_its_own_dtypes(artifact: Path) -> None:
    annotate(artifact / "Small.mlpackage", {"edgekit.outputs": "[]"})
    assert open_package(artifact, "interpreter").run({"x": X})["counts"].dtype == np.int32


def test_what_was_cut_off_is_derived_from_the_scores() -> None:
    contract = Contract(outputs=(SCORES,), derived=(Derived(COUNTS), Derived(RANKING, 3)))
    answers = contract.complete({"scores": X})
    np.testing.assert_array_equal(answers["counts"], [[148, 232, 316, 232]])
    np.testing.assert_array_equal(answers["ranking"], [[2, 1, 3]])  # of equal scores the lower index first
    assert answers["ranking"].dtype == answers["counts"].dtype == np.int64


def test_derived_outputs_survive_the_package(artifact: Path) -> None:
    derived = [Derived(RANKING, 1)]
    annotate(artifact / "Small.mlpackage", entries([], [SCORES], derived))
    np.testing.assert_array_equal(open_package(artifact, "interpreter").run({"x": X})["ranking"], [[2]])


@pytest.mark.parametrize("text", ["{", "[{}]", '[{"name": "a", "dtype": "float99"}]', "3"])
def test_damaged_metadata_are_a_sentence(artifact: Path, text: str) -> None:
    annotate(artifact / "Small.mlpackage", {"edgekit.outputs": text})
    with pytest.raises(ArtifactError, match=r"the metadata in .* are damaged"):
        open_package(artifact, "interpreter")


def test_the_device_says_that_it_is_not_apple_hardware(artifact: Path) -> None:
    assert open_package(artifact, "interpreter").device == "Core ML interpreter (Linux), not Apple hardware"


def test_inputs_that_do_not_fit_are_sentences(artifact: Path) -> None:
    opened = open_package(artifact, "interpreter")
    with pytest.raises(UsageError, match="the input 'x' is missing"):
        opened.run({"y": X})
    with pytest.raises(UsageError, match=r"the input 'x' has the shape \(2, 4\). The package takes \(1, 4\)"):
        opened.run({"x": np.zeros((2, 4), np.float32)})
    opened.close()
    with pytest.raises(UsageError, match="was closed"):
        opened.run({"x": X})


def test_core_ml_itself_needs_macos(artifact: Path) -> None:
    with pytest.raises(NotVerifiedHere, match="Core ML itself runs only on macOS"):
        open_package(artifact, "coreml")
    with pytest.raises(UsageError, match=r"no place 'gpu'\. Choose one of interpreter, coreml"):
        open_package(artifact, "gpu")


class StandIn:
    """coremltools' MLModel on a Mac, as far as the runtime uses it."""

    def __init__(self, path: str) -> None:
        self.path = path

    def predict(self, inputs: dict[str, Any]) -> dict[str, Array]:
        return {"scores": inputs["x"] + 1, "counts": np.ones((1, 4), np.int32), "ranking": np.zeros((1, 2), np.int32)}


def test_on_macos_core_ml_answers_in_the_same_dtypes(artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import coremltools

    monkeypatch.setattr(coreml, "_on_macos", lambda: True)
    monkeypatch.setattr(coremltools.models, "MLModel", StandIn)
    opened = open_package(artifact, "coreml")
    assert opened.device.startswith("Core ML (coremltools")
    answers = opened.run({"x": X})
    np.testing.assert_array_equal(answers["scores"], X + 1)
    assert answers["counts"].dtype == np.int64
    assert open_package(artifact, "interpreter").device == "Core ML interpreter (macOS), not Core ML itself"


def test_images_become_pixels(saved: Saved, tmp_path: Path) -> None:
    """A pixel buffer holds bytes: values between two of them are rounded, as on a phone."""
    from coremltools.converters.mil.mil import Builder as mb  # noqa: N813

    shape = (1, 3, 2, 2)
    path = saved.save({"x": np.zeros(shape, np.float32)}, lambda v: mb.mul(x=v["x"], y=np.float32(1)))
    shutil.copytree(path, tmp_path / "Image.mlpackage")
    model = parse((tmp_path / "Image.mlpackage" / MODEL).read_bytes())
    kind = model.description.input[0].type
    kind.imageType.width = kind.imageType.height = 2
    kind.imageType.colorSpace = 20
    (tmp_path / "Image.mlpackage" / MODEL).write_bytes(model.SerializeToString())
    opened = open_package(tmp_path, "interpreter")
    given = np.linspace(0, 1, 12, dtype=np.float32).reshape(shape)
    np.testing.assert_array_equal(next(iter(opened.run({"x": given}).values())), np.round(given * 255))
    annotate(tmp_path / "Image.mlpackage", entries([Input("x", shape, low=-1.0, high=1.0, kind="image")], [], []))
    shifted = open_package(tmp_path, "interpreter").run({"x": given * 2 - 1})
    np.testing.assert_allclose(next(iter(shifted.values())), np.round(given * 255), atol=1)
    with pytest.raises(UsageError, match="the image 'x' has the shape"):
        opened.run({"x": np.zeros((2, 3, 2, 2), np.float32)})


def test_reading_and_computing_import_neither_torch_nor_coremltools(artifact: Path) -> None:
    code = (
        "import sys; from pathlib import Path; import numpy as np; "
        "from edgekit_targets.coreml.runtime import open_package; "
        f"open_package(Path({str(artifact)!r}), 'interpreter').run({{'x': np.ones((1, 4), np.float32)}}); "
        "print([m for m in ('torch', 'coremltools', 'scipy') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_folder_without_or_with_two_packages_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"must hold one \.mlpackage but holds 0"):
        find_package(tmp_path)
    (tmp_path / "A.mlpackage").mkdir()
    assert find_package(tmp_path) == tmp_path / "A.mlpackage"
    (tmp_path / "B.mlpackage").mkdir()
    with pytest.raises(ArtifactError, match="but holds 2"):
        find_package(tmp_path)


def test_a_package_may_declare_any_role_and_an_input_with_one_value(artifact: Path) -> None:
    (path,) = artifact.glob("*.mlpackage")
    mask = Input("mask", (1, 4), dtype="int64", low=1, high=1)
    for role in get_args(Role):
        annotate(path, entries([Input("x", (1, 4)), mask], [Output("scores", role=role), COUNTS, RANKING], []))
        assert set(open_package(artifact, "interpreter").run({"x": X})) == {"scores", "counts", "ranking"}
