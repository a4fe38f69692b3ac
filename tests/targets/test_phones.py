"""The phone targets through the whole pipeline on architectures that are not ours, and what the judge says of damage.

MobileViT takes minutes (ExecuTorch makes 95 subgraphs of it): EDGEKIT_SLOW=1 exports it too.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.artifact.fact import Code
from edgekit.artifact.store import commit, read_artifact
from edgekit.model.sources import resolve_model
from edgekit.pipeline import run
from edgekit.pipeline.outcome import Build
from edgekit.testing import QuietListener
from edgekit_targets.coreml.runtime import find_package
from mil_interpreter.package import parse
from tests.builds import unjudged, without_report
from tests.manifests import unchecked

SIX = ("coreml", "coreml-int8", "torch-mobile", "torchscript", "executorch", "executorch-int8")
MODEL = Path("Data/com.apple.CoreML/model.mlmodel")
WEIGHTS = Path("Data/com.apple.CoreML/weights/weight.bin")
CHANGED = 1.2  # times a weight


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("phones")


def exported(name: str, targets: tuple[str, ...], builds: Path) -> Build:
    spec = resolve_model(f"tests.targets.phone_models:{name}")
    return run.export(spec, targets, builds / spec.name, {}, QuietListener())


def verified(folder: Path) -> bool:
    """Whether every place that this host has verified it."""
    verdicts = {v.place: v.status for v in read_artifact(folder).verdicts}
    return {status for place, status in verdicts.items() if place != "coreml"} == {"verified"}


@pytest.mark.skipif(not os.environ.get("EDGEKIT_SLOW"), reason="takes a minute and a half: set EDGEKIT_SLOW=1")
@pytest.mark.parametrize("name", ["vit", "mobilevit"])
def test_all_but_int8_activations_are_verified_on_transformers(name: str, builds: Path) -> None:
    """The weights are random, so the logits hardly move between images: INT8 activations lose them, and it is said."""
    rows = dict(exported(name, SIX, builds))
    assert rows.keys() == set(SIX)
    lost = rows.pop("executorch-int8")
    assert {name: row.sentences for name, row in rows.items() if not verified(row.path)} == {}
    assert lost.status == "rejected"
    assert {reason.fact.code for reason in lost.reasons} <= {Code.LIMIT_EXCEEDED, Code.ROWS_BEYOND}
    assert {reason.fact.output for reason in lost.reasons} == {"logits"}


def perturbed(package_folder: Path) -> None:
    """The last linear layer's weights, changed in the blob on disk."""
    main = opened(package_folder)[1]
    at = constant(main, "linear", "weight").blobFileValue.offset
    file = package_folder / WEIGHTS
    data = bytearray(file.read_bytes())
    _, _, size, start = struct.unpack_from("<IIQQ", data, at)
    values = np.frombuffer(bytes(data[start : start + size]), np.float16)
    data[start : start + size] = (values * np.float16(CHANGED)).tobytes()
    file.write_bytes(data)


def turned(package_folder: Path) -> None:
    """The last softmax goes over the queries instead of the keys: both have the same length."""
    model, main = opened(package_folder)
    constant(main, "softmax", "axis").immediateValue.tensor.ints.values[0] = 2
    (package_folder / MODEL).write_bytes(model.SerializeToString())


def opened(package_folder: Path) -> tuple[Any, Any]:
    """The saved program and its main block."""
    model = parse((package_folder / MODEL).read_bytes())
    main = model.mlProgram.functions["main"]
    return model, main.block_specializations[main.opset]


def constant(block: Any, kind: str, parameter: str) -> Any:
    """The constant that the last operator of a kind takes."""
    operator = next(o for o in reversed(block.operations) if o.type == kind)
    name = operator.inputs[parameter].arguments[0].name
    return next(o for o in block.operations if o.outputs[0].name == name).attributes["val"]


@pytest.mark.nightly
@pytest.mark.parametrize("damage", [perturbed, turned], ids=lambda d: d.__name__)
def test_a_package_changed_after_conversion_is_rejected(
    damage: Callable[[Path], None], builds: Path, tmp_path: Path
) -> None:
    if not (builds / "vit" / "coreml").is_dir():
        unjudged(resolve_model("tests.targets.phone_models:vit"), builds, ("coreml",))
    root = tmp_path / "vit"
    for part in ("model", "reference", "coreml"):
        shutil.copytree(builds / "vit" / part, root / part)
    damage(find_package(root / "coreml"))
    signed_again(root / "coreml")
    with without_report():
        (row,) = run.verify(root, QuietListener(), trust_build=True).values()
    assert row.status == "rejected"
    assert any("interpreter: " in sentence and "'logits'" in sentence for sentence in row.sentences)


def signed_again(folder: Path) -> None:
    """Hashes that fit the changed files: the numbers must tell, not the hashes."""
    manifest = unchecked(folder)
    for file in manifest.results:
        (folder / file.path).unlink()
    commit(folder, manifest)
