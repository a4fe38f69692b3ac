"""What a graph computes and in which arithmetic, against what the modules' sizes say."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from torch import Tensor, nn

from edgekit.errors import UsageError
from edgekit_inspect.inspection import Inspection, layers_of, write_page
from edgekit_targets.onnx.passes.graph import fold_constants
from tests import networks
from tests.command import exit_code
from tests.plugins.inspect import nets

LINEAR = {  # multiplications of one input of LENGTH rows
    "embed": 24 * nets.WIDTH * nets.LENGTH,
    "attention.out": nets.WIDTH**2 * nets.LENGTH,
    "mlp.up": 4 * nets.WIDTH**2 * nets.LENGTH,
    "mlp.down": 4 * nets.WIDTH**2 * nets.LENGTH,
    "head": 10 * nets.WIDTH,
}


@pytest.fixture(scope="module")
def transformer(tmp_path_factory: pytest.TempPathFactory) -> onnx.ModelProto:
    return nets.exported(nets.transformer(), tmp_path_factory.mktemp("transformer"))


def test_multiplications_are_those_of_the_modules(transformer: onnx.ModelProto) -> None:
    layers = {layer.name: layer for layer in layers_of(transformer, nets.transformer().random(0, {"batch": 1}))}
    for path, work in LINEAR.items():
        (layer,) = (one for name, one in layers.items() if name.startswith(f"{path}/"))
        assert (layer.multiplications, layer.arithmetic) == (work, "float32")
    attention = [one for name, one in layers.items() if name.startswith("attention/")]
    assert [one.multiplications for one in attention] == [nets.LENGTH**2 * nets.WIDTH] * 2
    assert [one.weight_bytes for one in attention] == [0, 0]


def test_convolutions_count_their_kernels(tmp_path: Path) -> None:
    spec = nets.convolutional()
    layers = {one.name: one for one in layers_of(nets.exported(spec, tmp_path), spec.random(0, {"batch": 1}))}
    (first,) = (one for name, one in layers.items() if name.startswith("block.first/"))
    rows = next(one for name, one in layers.items() if name.startswith("stem/")).multiplications // (3 * 9 * 16)
    assert first.multiplications == rows * 16 * 16 * 9


@pytest.mark.nightly
def test_transposed_convolutions_count_their_inputs(tmp_path: Path) -> None:
    spec = networks.unet(4)
    layers = layers_of(nets.exported(spec, tmp_path), spec.random(0))
    quarter, half = networks.SIZE // 4, networks.SIZE // 2
    found = [one.multiplications for one in layers if one.operator == "ConvTranspose"]
    assert found == [quarter**2 * 16 * 8 * 2 * 2, half**2 * 8 * 4 * 2 * 2]


@pytest.mark.nightly(but=("lstm",))
@pytest.mark.parametrize(("gates", "directions"), [(4, 1), (3, 2)], ids=["lstm", "gru"])
def test_recurrent_layers_count_their_gates_at_each_step(gates: int, directions: int, tmp_path: Path) -> None:
    layer = nn.LSTM if gates == 4 else nn.GRU
    spec = replace(networks.lstm(), module=Last(layer(16, 8, batch_first=True, bidirectional=directions == 2)).eval())
    graph = nets.exported(spec, tmp_path)
    (one,) = layers_of(graph, spec.random(0, {"batch": 3}))
    assert one.operator == ("LSTM" if gates == 4 else "GRU")
    assert one.multiplications == 3 * 20 * directions * gates * 8 * (16 + 8)


@pytest.mark.nightly
def test_an_int8_lstm_counts_as_much(tmp_path: Path) -> None:
    spec = networks.lstm()
    graph = fold_constants(nets.exported(spec, tmp_path))
    before, after = (layers_of(each, spec.random(0)) for each in (graph, nets.quantized(spec, graph, False)))
    assert [one.multiplications for one in before] == [one.multiplications for one in after]
    assert {one.arithmetic for one in after if one.operator == "DynamicQuantizeLSTM"} == {"int8"}


class Last(nn.Module):
    """A recurrent layer, and what it answers to the last step."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.layer(x)[0][:, -1]
        return answer


@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
def test_the_arithmetic_is_told_apart(static: bool, transformer: onnx.ModelProto) -> None:
    spec = nets.transformer()
    layers = layers_of(nets.quantized(spec, transformer, static), spec.random(0, {"batch": 1}))
    kinds = {one.name.partition("/")[0]: one for one in layers}
    assert kinds["mlp.up"].arithmetic == "int8"
    assert kinds["attention"].arithmetic == "float32"
    fp32 = {one.name.partition("/")[0]: one for one in layers_of(transformer, spec.random(0, {"batch": 1}))}
    assert kinds["mlp.up"].multiplications == fp32["mlp.up"].multiplications
    assert kinds["mlp.up"].weight_bytes < 0.3 * fp32["mlp.up"].weight_bytes


def test_what_is_no_artifact_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("inspect", tmp_path, "--json") == 2
    assert "manifest.json" in capsys.readouterr().err


def test_two_graphs_stand_side_by_side_on_a_page(transformer: onnx.ModelProto, tmp_path: Path) -> None:
    spec = nets.transformer()
    row = spec.random(0, {"batch": 1})
    before, after = (
        Inspection(name, kind, size, {"batch": 1}, dict(Counter(n.op_type for n in graph.graph.node)), layers)
        for name, kind, size, graph in (
            ("onnx", "fp32", 2000, transformer),
            ("<int8>", "int8", 500, nets.quantized(spec, transformer, static=False)),
        )
        if (layers := layers_of(graph, row))
    )
    write_page(before, after, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "<int8>" not in text  # escaped
    assert "&lt;int8&gt; beside onnx" in text
    (cells,) = re.findall(r'<tr class="changed">\s*<th>mlp\.up</th>.*?</tr>', text, re.DOTALL)
    assert "MatMul, float32" in cells
    assert "int8" in cells
    assert " → " in cells  # bytes of its weights
    with pytest.raises(UsageError, match="No such file or directory"):
        write_page(before, after, tmp_path / "nowhere" / "page.html")
