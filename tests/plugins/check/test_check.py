"""`edgekit check`: files that other tools made are judged like edgekit's own, and wrong ones are rejected."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import edgekit
from edgekit.errors import UsageError
from edgekit_check.files import precision_of
from edgekit_check.target import NAME
from tests.command import exit_code
from tests.plugins.check.nets import classifier, masked

# The tools' own deprecations.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*legacy TorchScript"),
    pytest.mark.filterwarnings("ignore:.*torch.jit"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*has been renamed"),
]
MODEL = "tests.plugins.check.nets:classifier"
TEXT = "tests.plugins.check.nets:masked"
SHAPE = ("--inputs", "images:shape=1,3,16,20")
PICTURES = torch.zeros(2, 3, 16, 20)
IDS = torch.zeros(2, 6, dtype=torch.int64)


def write_onnx(path: Path, batch: int = 1, module: torch.nn.Module | None = None) -> Path:
    """Write the network with PyTorch's older exporter, under names of that tool's own."""
    torch.onnx.export(
        module or classifier(), (torch.zeros(batch, 3, 16, 20),), str(path), dynamo=False, input_names=["x"],
        output_names=["a", "b"],
    )  # fmt: skip
    return path


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_onnx(tmp_path_factory.mktemp("files") / "net.onnx")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of results: the model's reference is recorded once."""
    return tmp_path_factory.mktemp("results")


def verdict(path: Path, results: Path, against: str = MODEL, **fields: object) -> edgekit.TargetOutcome:
    build = edgekit.check(path, against, output=results, progress="none", **fields)
    [outcome] = build.outcomes
    assert outcome.target == NAME
    return outcome


def test_a_right_file_is_verified_with_the_shapes_of_the_file(file: Path, results: Path) -> None:
    before = file.read_bytes()
    outcome = verdict(file, results)
    assert outcome.status == "verified", outcome.reasons
    assert file.read_bytes() == before
    assert outcome.manifest is not None
    assert "input 'x' is taken as the model's 'images', by its position" in outcome.manifest.notes
    assert str(file.parent) not in (results / "classifier" / NAME / "manifest.json").read_text()
    assert "checked-file" in (results / "classifier" / "report.md").read_text()


def test_a_file_with_exchanged_classes_is_rejected(file: Path, results: Path, tmp_path: Path) -> None:
    graph = onnx.load(file)
    for tensor in graph.graph.initializer:
        if list(tensor.dims)[:1] == [5]:
            weights = numpy_helper.to_array(tensor)
            tensor.CopyFrom(numpy_helper.from_array(weights[[1, 0, 2, 3, 4]].copy(), tensor.name))
    onnx.save(graph, tmp_path / "net.onnx")
    assert verdict(tmp_path / "net.onnx", results).status == "rejected"


def test_channels_last_bytes_are_fed_as_bytes(file: Path, results: Path, tmp_path: Path) -> None:
    graph = onnx.load(file)
    graph.graph.node.insert(0, helper.make_node("Transpose", ["scaled"], ["x"], perm=[0, 3, 1, 2]))
    graph.graph.node.insert(0, helper.make_node("Div", ["cast", "largest"], ["scaled"]))
    graph.graph.node.insert(0, helper.make_node("Cast", ["pixels"], ["cast"], to=TensorProto.FLOAT))
    graph.graph.initializer.append(numpy_helper.from_array(np.array(255, np.float32), "largest"))
    graph.graph.input[0].CopyFrom(helper.make_tensor_value_info("pixels", TensorProto.UINT8, [1, 16, 20, 3]))
    onnx.save(graph, tmp_path / "bytes.onnx")
    outcome = verdict(tmp_path / "bytes.onnx", results, name="bytes")
    assert outcome.manifest is not None
    assert any("0 to 255" in note for note in outcome.manifest.notes)
    assert any("NHWC" in note for note in outcome.manifest.notes)
    assert any("limits of fp16" in note for note in outcome.manifest.notes)
    assert outcome.status == "verified", outcome.reasons


def test_a_file_that_takes_four_rows_is_asked_for_one(results: Path, tmp_path: Path) -> None:
    outcome = verdict(write_onnx(tmp_path / "four.onnx", batch=4), results)
    assert outcome.status == "verified", outcome.reasons
    assert outcome.manifest is not None
    assert any("takes 4 rows" in note for note in outcome.manifest.notes)


def test_a_file_with_four_rows_that_answers_only_the_first_is_rejected(results: Path, tmp_path: Path) -> None:
    class FirstRow(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = classifier()
            self.register_buffer("first", torch.tensor([[1.0], [0.0], [0.0], [0.0]]))

        def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            logits, embedding = self.inner(images)
            first = self.get_buffer("first")
            return logits * first, embedding * first

    path = write_onnx(tmp_path / "four.onnx", batch=4, module=FirstRow().eval())
    assert verdict(path, results).status == "rejected"


def test_bytes_of_an_openvino_file_are_no_int8_weights(tmp_path: Path) -> None:
    folder = write_openvino(tmp_path)
    text = (folder / "net.xml").read_text()
    as_bytes = text.replace('element_type="f32"', 'element_type="u8"', 1)
    (folder / "net.xml").write_text(as_bytes)
    assert precision_of(folder / "net.xml") == "fp16"


def test_a_file_that_ignores_its_mask_is_rejected(tmp_path: Path) -> None:
    class Unmasked(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = masked()

        def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            answer: torch.Tensor = self.inner(ids, torch.ones_like(mask))
            return answer

    torch.onnx.export(
        Unmasked().eval(), (IDS[:1], IDS[:1]), str(tmp_path / "text.onnx"), dynamo=False, input_names=["ids", "mask"]
    )
    inputs = ["ids:shape=1,6,dtype=int64,range=0..49", "mask:shape=1,6,dtype=int64,range=0..1"]
    outcome = verdict(tmp_path / "text.onnx", tmp_path, TEXT, inputs=inputs)
    assert outcome.status == "rejected"
    assert outcome.manifest is not None
    assert "the file does not read the model's input 'mask'" in outcome.manifest.notes


def write_openvino(folder: Path) -> Path:
    import openvino

    openvino.save_model(openvino.convert_model(write_onnx(folder / "net.onnx")), folder / "net_openvino" / "net.xml")
    return folder / "net_openvino"


def write_torchscript(folder: Path) -> Path:
    traced = torch.jit.trace(classifier(), PICTURES)  # type: ignore[no-untyped-call]
    traced.save(str(folder / "net.torchscript"))
    return folder / "net.torchscript"


def write_program(folder: Path) -> Path:
    torch.export.save(torch.export.export(classifier(), (PICTURES[:1],)), folder / "net.pt2")
    return folder / "net.pt2"


def write_external(folder: Path) -> Path:
    torch.onnx.export(
        classifier(), (PICTURES[:1],), folder / "net.onnx", dynamo=True, external_data=True, verbose=False
    )
    assert (folder / "net.onnx.data").is_file()
    return folder / "net.onnx"


def write_executorch(folder: Path) -> Path:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    program = torch.export.export(classifier(), (PICTURES[:1],))
    lowered = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()]).to_executorch()
    (folder / "net.pte").write_bytes(lowered.buffer)
    return folder / "net.pte"


def write_coreml(folder: Path) -> Path:
    import coremltools

    traced = torch.jit.trace(classifier(), PICTURES[:1])  # type: ignore[no-untyped-call]
    coremltools.convert(
        traced,
        inputs=[coremltools.TensorType("x", (1, 3, 16, 20))],
        compute_precision=coremltools.precision.FLOAT32,
        minimum_deployment_target=coremltools.target.iOS17,
    ).save(str(folder / "net.mlpackage"))
    return folder / "net.mlpackage"


@pytest.mark.parametrize(
    "write",
    [
        write_openvino,
        write_torchscript,
        pytest.param(write_program, marks=pytest.mark.nightly),
        pytest.param(write_external, marks=pytest.mark.nightly),
        pytest.param(write_executorch, marks=pytest.mark.nightly),
        pytest.param(write_coreml, marks=pytest.mark.nightly),
    ],
)
def test_each_format_is_verified(write: Callable[[Path], Path], tmp_path: Path, results: Path) -> None:
    outcome = verdict(write(tmp_path), results, inputs="images:shape=1,3,16,20")
    assert outcome.status == "verified", outcome.reasons


@pytest.mark.nightly
@pytest.mark.parametrize("write", [write_executorch, write_coreml, write_torchscript])
def test_each_format_is_rejected_if_its_weights_are_others(
    write: Callable[[Path], Path], tmp_path: Path, results: Path
) -> None:
    path = write(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "manual_seed", lambda seed: None)
        torch.random.set_rng_state(torch.Generator().manual_seed(7).get_state())
        path = write(tmp_path)
    assert verdict(path, results, inputs="images:shape=1,3,16,20").status == "rejected"


def test_the_command_says_what_it_assumed_and_exits_by_the_verdict(
    file: Path, results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code("check", file, "--against", MODEL, "-o", results) == 0
    assert "'x' is taken as the model's 'images'" in capsys.readouterr().out
    write_onnx(tmp_path / "other.onnx", module=torch.nn.Sequential(torch.nn.Tanh(), classifier()).eval())
    with_json = exit_code("check", tmp_path / "other.onnx", "--against", MODEL, *SHAPE, "-o", results, "--json")
    record = json.loads(capsys.readouterr().out)
    assert with_json == 3
    assert record["artifacts"][0]["status"] == "rejected"


def test_an_int8_file_without_real_inputs_is_not_judged(file: Path, results: Path, tmp_path: Path) -> None:
    from onnxruntime.quantization import quantize_dynamic

    quantize_dynamic(file, tmp_path / "int8.onnx")
    assert precision_of(tmp_path / "int8.onnx") == "int8"
    assert exit_code("check", tmp_path / "int8.onnx", "--against", MODEL, "-o", results, "--quiet") == 4


def test_weights_in_many_files_are_refused_with_the_way_out(file: Path, tmp_path: Path) -> None:
    onnx.save(
        onnx.load(file), tmp_path / "net.onnx", save_as_external_data=True, all_tensors_to_one_file=False,
        size_threshold=0,
    )  # fmt: skip
    outcome = verdict(tmp_path / "net.onnx", tmp_path, inputs="images:shape=1,3,16,20")
    assert outcome.status == "failed"
    assert "all_tensors_to_one_file=True" in outcome.error


def test_an_error_names_the_file_without_the_folder_of_its_copy(file: Path, tmp_path: Path) -> None:
    onnx.save(
        onnx.load(file), tmp_path / "net.onnx", save_as_external_data=True, size_threshold=0,
        location="weights",
    )  # fmt: skip
    (tmp_path / "weights").write_bytes(b"short")
    outcome = verdict(tmp_path / "net.onnx", tmp_path / "results", inputs="images:shape=1,3,16,20")
    assert outcome.status == "failed"
    assert "net.onnx" in outcome.error
    assert ".tmp" not in outcome.error


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("none.onnx", "--against", MODEL), "no file 'none.onnx'"),
        (("Makefile", "--against", MODEL), "of no known format"),
        (("FILE", "--against", MODEL, "--map", "x"), "cannot read --map"),
        (("FILE", "--against", MODEL, "--map", "x=imges"), "Did you mean 'images'"),
        (("FILE", "--against", MODEL, "--map", "z=images"), "names 'z', which the file does not have"),
        (("FILE", "--against", MODEL, "--inputs", "images:shape=1,3,24,20"), "Declare the sizes that the file takes"),
        (("FILE", "--against", "tests.plugins.check.nets:none"), "has no function 'none'"),
    ],
)
def test_a_wrong_argument_is_one_sentence(
    arguments: tuple[str, ...], words: str, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = [file if argument == "FILE" else argument for argument in arguments]
    assert exit_code("check", *whole, "-o", tmp_path) == 2
    printed = capsys.readouterr()
    assert words in " ".join((printed.out + printed.err).split())
    assert "Traceback" not in printed.err


def test_a_folder_with_two_models_asks_for_one(file: Path, tmp_path: Path) -> None:
    for name in ("model.onnx", "model_quantized.onnx"):
        (tmp_path / "onnx").mkdir(exist_ok=True)
        (tmp_path / "onnx" / name).write_bytes(file.read_bytes())
    with pytest.raises(
        UsageError, match=r"holds 2 models\. Name one of them: onnx/model\.onnx, onnx/model_quantized\.onnx"
    ):
        edgekit.check(tmp_path, MODEL)


def test_only_check_selects_its_target(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("targets") == 0
    assert NAME not in capsys.readouterr().out
    assert NAME not in edgekit.targets()


def test_verify_judges_the_copy_again(file: Path, results: Path) -> None:
    assert verdict(file, results).status == "verified"
    [outcome] = edgekit.verify(results / "classifier", trust_build=True, progress="none").outcomes
    assert outcome.status == "verified"


def test_a_copied_file_is_opened_again_only_with_consent(small_build: Path, tmp_path: Path) -> None:
    """A build of somebody else may hold a `.pt2` file, whose opening can run code."""
    path = small_build / "onnx" / "model.onnx"
    assert verdict(path, tmp_path, "edgekit.testing:small_model").status == "verified"
    [outcome] = edgekit.verify(tmp_path / "small", progress="none").outcomes
    assert outcome.status == "failed"
    assert "--trust-build" in outcome.error
