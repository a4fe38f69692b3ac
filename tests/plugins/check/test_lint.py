"""`edgekit lint`: predictions from the tables, of small files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
import typer
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

import edgekit_check
from edgekit.errors import ModelError, UsageError
from edgekit_check import command, prediction
from edgekit_check.prediction import FAMILIES, NOTE, Prediction, load_table

XML = '<net name="g" version="{}"><layers><layer id="0" type="Result" version="opset{}"/></layers></net>'


def write(
    path: Path,
    opset: int = 17,
    ir: int = 8,
    operator: str = "Relu",
    domain: str = "",
    dtype: int = TensorProto.FLOAT,
    functions: Sequence[onnx.FunctionProto] = (),
) -> Path:
    """Write a file of one operator."""
    node = helper.make_node(operator, ["x"], ["y"], domain=domain)
    values = [helper.make_tensor_value_info(name, dtype, [1, 4]) for name in ("x", "y")]
    graph = helper.make_graph([node], "net", values[:1], values[1:])
    opsets = [helper.make_opsetid("", opset), *([helper.make_opsetid(domain, 1)] if domain else [])]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=ir, functions=functions)
    onnx.save(model, path)
    return path


def predict(path: Path, runtime: str) -> Prediction:
    [result] = edgekit_check.lint(path, [runtime])
    return result


def subjects(path: Path, runtime: str) -> list[tuple[str, str]]:
    return [(finding.kind, finding.subject) for finding in predict(path, runtime).findings]


def test_every_table_names_its_sources_with_dates() -> None:
    for family in FAMILIES:
        table = load_table(family)
        assert all(entry["url"].startswith("https://") and entry["date"] for entry in table["source"])
        assert table["versions"]
        assert table["unknown"]


def test_the_installed_onnxruntime_agrees_with_its_table() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    version = ".".join(onnxruntime.__version__.split(".")[:2])
    facts = load_table("onnxruntime")["versions"].get(version)
    if facts is None:
        pytest.skip(f"no table has onnxruntime-{version}")

    def loads(opset: int, ir: int) -> bool:
        node = helper.make_node("Relu", ["x"], ["y"])
        values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
        graph = helper.make_graph([node], "net", values[:1], values[1:])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)
        try:
            onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        except Exception:
            return False
        return True

    opset, ir = facts["opset"], facts["ir"]
    assert [loads(opset, ir), loads(opset + 1, ir), loads(opset, ir + 1)] == [True, False, False]


def test_a_file_that_fits_has_no_finding(tmp_path: Path) -> None:
    file = write(tmp_path / "net.onnx")
    for runtime in ("onnxruntime-1.14", "onnxruntime-web-1.20", "openvino-2024.6"):
        result = predict(file, runtime)
        assert (result.findings, result.is_impossible) == ((), False)
        assert result.not_known


def test_an_opset_and_a_format_that_are_too_new_name_an_opset_that_edgekit_exports(tmp_path: Path) -> None:
    file = write(tmp_path / "net.onnx", opset=23, ir=11)
    result = predict(file, "onnxruntime-1.16")
    assert [finding.subject for finding in result.findings] == ["opset", "IR version"]
    assert "-O onnx.opset=17" in result.findings[0].text
    assert "onnxruntime-1.23 or newer" in result.findings[0].text
    assert "ir_version to 9" in result.findings[1].text
    assert subjects(file, "onnxruntime-web-1.16") == subjects(file, "onnxruntime-1.16")
    assert subjects(file, "onnxruntime-1.23") == []
    assert subjects(file, "openvino-2024.6") == []


def test_operators_by_version_and_by_runtime(tmp_path: Path) -> None:
    fused = write(tmp_path / "fused.onnx", operator="GatherBlockQuantized", domain="com.microsoft")
    assert subjects(fused, "onnxruntime-1.31") == []
    assert subjects(fused, "openvino-2025.0") == [("impossible", "operators")]
    assert "openvino-2026.4 or newer" in predict(fused, "openvino-2025.0").findings[0].text
    assert "operators of com.microsoft" in predict(fused, "onnxruntime-1.14").not_known
    assert subjects(fused, "onnxruntime-1.14") == []
    newer = write(tmp_path / "newer.onnx", operator="Col2Im", opset=18)
    assert subjects(newer, "openvino-2026.2") == [("impossible", "operators")]
    assert subjects(newer, "openvino-2026.3") == []
    late = next(name for name, version in load_table("onnxruntime")["contrib"].items() if version == "1.29")
    file = write(tmp_path / "late.onnx", operator=late, domain="com.microsoft")
    assert "onnxruntime-web-1.29 or newer" in predict(file, "onnxruntime-web-1.27").findings[0].text
    learned = write(tmp_path / "learned.onnx", operator="LabelEncoder", domain="ai.onnx.ml")
    assert subjects(learned, "onnxruntime-1.20") == []
    assert "operators of ai.onnx.ml" in predict(learned, "openvino-2026.4").not_known


def test_own_operators_are_impossible_only_where_no_library_can_be_registered(tmp_path: Path) -> None:
    file = write(tmp_path / "own.onnx", operator="Fancy", domain="my.ops")
    assert subjects(file, "onnxruntime-1.20") == [("note", "operators")]
    assert subjects(file, "onnxruntime-web-1.20") == [("impossible", "operators")]
    body = helper.make_function(
        "my.ops", "Fancy", ["a"], ["b"], [helper.make_node("Col2Im", ["a"], ["b"])], [helper.make_opsetid("", 18)]
    )
    defined = write(tmp_path / "defined.onnx", operator="Fancy", domain="my.ops", functions=[body])
    assert subjects(defined, "onnxruntime-web-1.20") == []
    assert subjects(defined, "openvino-2024.6") == [("impossible", "operators")]


def test_types_that_a_runtime_lacks(tmp_path: Path) -> None:
    small = write(tmp_path / "int4.onnx", operator="Identity", opset=21, ir=10, dtype=TensorProto.INT4)
    assert ("impossible", "types") in subjects(small, "onnxruntime-1.17")
    assert subjects(small, "onnxruntime-1.20") == []
    assert subjects(small, "onnxruntime-web-1.20") == []
    half = write(tmp_path / "bf16.onnx", operator="Identity", dtype=TensorProto.BFLOAT16)
    assert subjects(half, "onnxruntime-1.20") == []
    assert subjects(half, "onnxruntime-web-1.20") == [("impossible", "types")] * 2
    assert "types" in predict(half, "onnxruntime-1.14").not_known


def test_types_inside_a_graph_count_too(tmp_path: Path) -> None:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    weight = helper.make_tensor("w", TensorProto.INT4, [1], [1])
    graphs = [
        (
            [helper.make_node("Cast", ["x"], ["t"], to=TensorProto.INT4), helper.make_node("Cast", ["t"], ["y"], to=1)],
            [],
        ),
        ([helper.make_node("Constant", [], ["w"], value=weight), helper.make_node("Cast", ["w"], ["y"], to=1)], []),
        ([helper.make_node("Cast", ["w"], ["y"], to=1)], [weight]),
    ]
    for nodes, weights in graphs:
        graph = helper.make_graph(nodes, "net", values[:1], values[1:], weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        onnx.save(model, tmp_path / "net.onnx")
        assert subjects(tmp_path / "net.onnx", "onnxruntime-1.18") == [("impossible", "types")]


def test_weights_that_are_also_inputs_are_no_tensors_of_javascript(tmp_path: Path) -> None:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    weight = helper.make_tensor("w", TensorProto.BFLOAT16, [1], [1])
    value = helper.make_tensor_value_info("w", TensorProto.BFLOAT16, [1])
    graph = helper.make_graph(
        [helper.make_node("Cast", ["w"], ["y"], to=1)], "net", [values[0], value], values[1:], [weight]
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "net.onnx"
    )
    assert subjects(tmp_path / "net.onnx", "onnxruntime-web-1.20") == []


def test_a_sequence_is_no_tensor_of_an_unknown_type(tmp_path: Path) -> None:
    sequence = helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, [1])
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    graph = helper.make_graph([helper.make_node("SequenceConstruct", ["x"], ["y"])], "net", [value], [sequence])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "net.onnx")
    assert subjects(tmp_path / "net.onnx", "onnxruntime-web-1.20") == []


def test_a_second_file_ships_too(tmp_path: Path) -> None:
    weights = numpy_helper.from_array(np.ones((4, 4), np.float32), "w")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "net", values[:1], values[1:], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    file = tmp_path / "net.onnx"
    onnx.save(model, file, save_as_external_data=True, location="net.onnx.data", size_threshold=0)
    result = predict(file, "onnxruntime-web-1.20")
    assert [(finding.kind, finding.subject) for finding in result.findings] == [("note", "external data")]
    assert "net.onnx.data" in result.findings[0].text
    assert "externalData" in result.findings[0].text
    (tmp_path / "net.onnx.data").unlink()
    with pytest.raises(ModelError, match="another file"):
        predict(file, "onnxruntime-1.20")


def test_a_file_over_2_gib_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "net.onnx").open("wb") as stream:
        stream.truncate((2 << 30) + 1)
    assert subjects(tmp_path / "net.onnx", "onnxruntime-1.20") == [("impossible", "size")]


def test_another_format_names_the_target(tmp_path: Path) -> None:
    file = write(tmp_path / "net.onnx")
    for runtime, target in (("coreml-ios17", "-t coreml"), ("executorch-1.0", "-t executorch")):
        result = predict(file, runtime)
        assert [finding.subject for finding in result.findings] == ["format"]
        assert target in result.findings[0].text


def test_a_core_ml_package_by_specification_and_names(tmp_path: Path) -> None:
    def text(number: int, content: bytes) -> bytes:
        return bytes([number << 3 | 2, len(content)]) + content

    folder = tmp_path / "net.mlpackage" / "Data" / "com.apple.CoreML"
    folder.mkdir(parents=True)
    description = text(1, text(1, b"images")) + text(10, text(1, b"scores:0"))
    # Field 502, an ML Program: only its names are identifiers.
    (folder / "model.mlmodel").write_bytes(b"\x08\x08" + text(2, description) + b"\xb2\x1f\0")
    package = tmp_path / "net.mlpackage"
    assert subjects(package, "coreml-ios17") == [("impossible", "names")]
    result = predict(package, "coreml-ios16")
    assert [finding.subject for finding in result.findings] == ["specification version", "names"]
    assert "target.iOS16" in result.findings[0].text
    assert "'scores_0'" in result.findings[1].text
    (folder / "model.mlmodel").write_bytes(b"\x08\x08" + text(2, description))
    assert subjects(package, "coreml-ios17") == []
    (folder / "model.mlmodel").write_bytes(b"\x08")
    with pytest.raises(ModelError, match="damaged"):
        predict(package, "coreml-ios17")


def test_identifiers_of_flatbuffers(tmp_path: Path) -> None:
    (tmp_path / "net.pte").write_bytes(b"\x1c\0\0\0ET12" + bytes(24))
    (tmp_path / "net.tflite").write_bytes(b"\x1c\0\0\0TFL2" + bytes(24))
    assert subjects(tmp_path / "net.pte", "executorch-1.0") == []
    assert any("version" in subject for subject in predict(tmp_path / "net.pte", "executorch-1.0").not_known)
    assert subjects(tmp_path / "net.tflite", "openvino-2026.4") == [("impossible", "identifier")]


def test_an_openvino_file_by_its_versions(tmp_path: Path) -> None:
    file = tmp_path / "net.xml"
    file.write_text(XML.format(11, 16))
    (tmp_path / "net.bin").write_bytes(b"\0")
    assert subjects(file, "openvino-2025.0") == [("note", "external data")]
    assert ("impossible", "operation set") in subjects(file, "openvino-2024.6")
    file.write_text(XML.format(12, 1))
    assert ("impossible", "IR version") in subjects(file, "openvino-2026.4")
    file.write_text("<html/>")
    with pytest.raises(ModelError, match="<net>"):
        predict(file, "openvino-2026.4")


@pytest.mark.parametrize(
    ("name", "version"),
    [("onnxruntime-1.2", "1.14"), ("tensorrt-10", "coreml-ios15"), ("onnxruntime-web-1.28", "1.27")],
)
def test_an_unknown_runtime_or_version_lists_the_known(tmp_path: Path, name: str, version: str) -> None:
    with pytest.raises(UsageError, match=version):
        predict(write(tmp_path / "net.onnx"), name)


def test_the_command(tmp_path: Path) -> None:
    application = typer.Typer()
    application.command()(command.lint)
    file = str(write(tmp_path / "net.onnx", opset=23, ir=11))
    result = CliRunner().invoke(application, [file, "--for", "onnxruntime-1.16", "--for", "onnxruntime-1.23"])
    rows = result.stdout.splitlines()
    assert (result.exit_code, rows[-1]) == (3, NOTE)
    assert sum(row.startswith("onnxruntime-1.16: impossible: ") for row in rows) == 2
    assert any(row.startswith("not known for onnxruntime-1.23: ") for row in rows)
    result = CliRunner().invoke(application, [file, "--for", "onnxruntime-1.23", "--json"])
    record = json.loads(result.stdout)
    assert (result.exit_code, record["runtimes"][0]["impossible"], record["note"]) == (0, False, NOTE)
    assert record["runtimes"][0]["source"][0]["date"]
    assert edgekit_check.LINT.function == "edgekit_check.command:lint"
    assert edgekit_check.lint is prediction.lint
