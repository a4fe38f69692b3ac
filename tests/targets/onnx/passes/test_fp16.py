"""fp16: the graph before and after in ONNX Runtime, and the precision in which each node runs."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edgekit.errors import ExportError
from edgekit_targets.onnx.passes import fp16
from tests.targets.onnx.passes.graphs import answers, model, operators, rounded, types, weights

FLOAT, HALF, INT64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64
WIDE, TOP = 16, 4
node = helper.make_node


def scorer() -> onnx.ModelProto:
    """Rows [B, 16] -> scores [B, 16] by a linear layer and a sigmoid; the best four, and the layer's best sums."""
    return model(
        [
            node("Gemm", ["rows", "weight", "bias"], ["sums"], name="score/Gemm"),
            node("Sigmoid", ["sums"], ["scores"], name="score/Sigmoid"),
            node("TopK", ["scores", "count"], ["best", "places"], name="choose/TopK"),
            node("GatherElements", ["sums", "places"], ["chosen"], name="choose/GatherElements", axis=1),
        ],
        {"rows": ["batch", WIDE]},
        {"scores": ["batch", WIDE], "places": ["batch", TOP], "best": ["batch", TOP], "chosen": ["batch", TOP]},
        {"weight": rounded(WIDE, WIDE), "bias": rounded(WIDE), "count": np.array([TOP])},
        {"places": INT64},
    )


def test_weights_run_in_fp16_and_what_decides_in_fp32() -> None:
    before = scorer()
    after, clamped = fp16.convert(before)
    found = types(after)
    assert clamped == 0
    assert found["rows"] == found["scores"] == found["best"] == found["chosen"] == FLOAT
    assert found["rows_fp16"] == found["sums"] == found["chosen_fp16"] == HALF
    assert found["sums_fp32"] == FLOAT
    assert {name: values.dtype.name for name, values in weights(after).items()} == {
        "weight": "float16",
        "bias": "float16",
        "count": "int64",
    }
    assert operators(after) == operators(before) + Counter(Cast=3)  # into the layer, out of it, and the last output


def test_answers_stay_within_fp16s_precision() -> None:
    before, rows = scorer(), rounded(5, WIDE, seed=1)
    right, got = answers(before, rows=rows), answers(fp16.convert(before)[0], rows=rows)
    step = float(np.finfo(np.float16).eps) * np.abs(right["chosen"]).max()
    np.testing.assert_array_equal(got["places"], right["places"])
    np.testing.assert_allclose(got["chosen"], right["chosen"], atol=4 * step)
    np.testing.assert_allclose(got["scores"], right["scores"], atol=step)
    assert np.abs(got["chosen"] - right["chosen"]).max() > 0  # it does round


def test_the_given_graph_is_not_changed_and_the_result_is_the_same_each_time() -> None:
    graph = scorer()
    written = graph.SerializeToString(deterministic=True)
    first, second = (fp16.convert(graph)[0].SerializeToString(deterministic=True) for _ in range(2))
    assert graph.SerializeToString(deterministic=True) == written
    assert first == second


def test_a_value_between_nodes_in_fp32_is_not_rounded() -> None:
    """Three nodes and an output read the sigmoid: onnxconverter-common alone rounds it for each of them."""
    graph = model(
        [
            node("MatMul", ["x", "w"], ["sums"], name="layer"),
            node("Sigmoid", ["sums"], ["y"], name="sigmoid"),
            node("Sqrt", ["y"], ["root"], name="root"),
            node("Log", ["y"], ["log"], name="log"),
            node("Mul", ["y", "y"], ["square"], name="square"),
        ],
        {"x": [3, WIDE]},
        {name: [3, WIDE] for name in ("y", "root", "log", "square")},
        {"w": rounded(WIDE, WIDE)},
    )
    after = fp16.convert(graph)[0]
    got = answers(after, x=rounded(3, WIDE, seed=1))
    assert operators(after)["Cast"] == 2
    assert np.any(got["y"] != got["y"].astype(np.float16))
    np.testing.assert_array_equal(got["square"], got["y"] * got["y"])
    np.testing.assert_allclose(got["root"], np.sqrt(got["y"]), rtol=1e-6)
    np.testing.assert_allclose(got["log"], np.log(got["y"]), rtol=1e-5, atol=1e-6)


def test_an_output_that_nodes_of_both_precisions_read() -> None:
    """The converter gives such an output a type that its readers do not expect."""
    graph = model(
        [
            node("MatMul", ["x", "w"], ["y"], name="first"),
            node("MatMul", ["y", "w"], ["z"], name="second"),
            node("ReduceMean", ["y"], ["mean"], name="mean", keepdims=0),
        ],
        {"x": [3, WIDE]},
        {"y": [3, WIDE], "z": [3, WIDE], "mean": []},
        {"w": rounded(WIDE, WIDE, deviation=0.25)},
    )
    after, x = fp16.convert(graph)[0], rounded(3, WIDE, seed=1)
    right, got = answers(graph, x=x), answers(after, x=x)
    assert {v.name: v.type.tensor_type.elem_type for v in after.graph.output} == dict.fromkeys(right, FLOAT)
    for name, values in right.items():
        np.testing.assert_allclose(got[name], values, atol=5e-3 * max(float(np.abs(values).max()), 1.0))


def test_a_weight_that_both_precisions_read_is_stored_in_both() -> None:
    graph = model(
        [
            node("MatMul", ["x", "w"], ["y"], name="layer"),
            node("ReduceSum", ["w"], ["total"], name="total", keepdims=0),
        ],
        {"x": [3, WIDE]},
        {"y": [3, WIDE], "total": []},
        {"w": (rounded(WIDE, WIDE) * 1.0001).astype(np.float32)},
    )
    after, x = fp16.convert(graph)[0], rounded(3, WIDE, seed=1)
    assert {name: values.dtype.name for name, values in weights(after).items()} == {"w": "float16", "w_fp32": "float32"}
    np.testing.assert_array_equal(answers(after, x=x)["total"], answers(graph, x=x)["total"])


def test_a_large_weight_that_is_only_moved_is_stored_in_fp16() -> None:
    """An embedding that a node in fp32 reads; a small table and computed values stay as they are."""
    graph = model(
        [
            node("Gather", ["table", "words"], ["found"], name="embedding"),
            node("Gather", ["small", "words"], ["scale"], name="scale"),
            node("Mul", ["found", "scale"], ["scaled"], name="multiply"),
            node("ReduceSum", ["scaled", "axes"], ["y"], name="sum", keepdims=0),
        ],
        {"words": [3]},
        {"y": [3]},
        {"table": rounded(fp16.LARGE // WIDE, WIDE), "small": rounded(WIDE, 1) * 1.0001, "axes": np.array([1])},
        {"words": INT64},
    )
    after, words = fp16.convert(graph)[0], np.array([0, 3, 7])
    held = weights(after)
    assert (held["table"].dtype.name, held["small"].dtype.name) == ("float16", "float32")
    np.testing.assert_allclose(answers(after, words=words)["y"], answers(graph, words=words)["y"], atol=0.05)


def test_weights_beyond_the_range_are_clamped_and_counted() -> None:
    graph = model(
        [node("Gemm", ["x", "w", "b"], ["y"], name="layer")],
        {"x": [1, 2]},
        {"y": [1, 4]},
        {"w": np.zeros((2, 4), np.float32), "b": np.array([1e6, -1e6, -np.inf, 1e-12], np.float32)},
    )
    after, clamped = fp16.convert(graph)
    assert clamped == 2  # infinity is not: it masks
    smallest = np.finfo(np.float16).smallest_subnormal
    np.testing.assert_array_equal(weights(after)["b"], np.array([65504, -65504, -np.inf, smallest], np.float16))
    assert answers(after, x=np.ones((1, 2), np.float32))["y"][0, :3].tolist() == [65504.0, -65504.0, -np.inf]


def test_an_epsilon_still_guards_a_division() -> None:
    graph = model(
        [
            node("MatMul", ["x", "w"], ["y"], name="layer"),
            node("Constant", [], ["epsilon"], name="epsilon", value_float=1e-9),
            node("Abs", ["y"], ["size"], name="size"),
            node("Add", ["size", "epsilon"], ["guarded"], name="guard"),
            node("Div", ["y", "guarded"], ["z"], name="divide"),
        ],
        {"x": [1, WIDE]},
        {"z": [1, WIDE]},
        {"w": rounded(WIDE, WIDE)},
    )
    assert answers(fp16.convert(graph)[0], x=np.zeros((1, WIDE), np.float32))["z"].tolist() == [[0.0] * WIDE]


def test_casts_of_the_graph_itself_stay() -> None:
    """A value that the model rounds on purpose is rounded, and integers become fp32."""
    graph = model(
        [
            node("Cast", ["x"], ["low"], name="down", to=HALF),
            node("Cast", ["low"], ["high"], name="up", to=FLOAT),
            node("Cast", ["count"], ["number"], name="number", to=FLOAT),
            node("Mul", ["high", "number"], ["scaled"], name="scale"),
            node("MatMul", ["scaled", "w"], ["y"], name="layer"),
        ],
        {"x": [1, WIDE], "count": [1]},
        {"y": [1, WIDE], "high": [1, WIDE]},
        {"w": rounded(WIDE, WIDE, deviation=0.1)},
        {"count": INT64},
    )
    x = np.random.default_rng(3).normal(0, 1, (1, WIDE)).astype(np.float32)
    right, got = (answers(g, x=x, count=np.array([3])) for g in (graph, fp16.convert(graph)[0]))
    np.testing.assert_array_equal(got["high"], x.astype(np.float16).astype(np.float32))
    np.testing.assert_allclose(got["y"], right["y"], atol=1e-2)


def test_an_operator_that_has_no_fp16_stays_in_fp32() -> None:
    graph = model(
        [
            node("MatMul", ["x", "w"], ["sums"], name="layer"),
            node("Celu", ["sums"], ["bent"], name="celu"),
            node("MatMul", ["bent", "w"], ["y"], name="last"),
        ],
        {"x": [2, WIDE]},
        {"y": [2, WIDE]},
        {"w": rounded(WIDE, WIDE, deviation=0.2)},
    )
    after, x = fp16.convert(graph)[0], rounded(2, WIDE, seed=1)
    assert types(after)["bent"] == FLOAT
    np.testing.assert_allclose(answers(after, x=x)["y"], answers(graph, x=x)["y"], atol=1e-2)


def test_nodes_without_names_and_an_input_that_is_an_output() -> None:
    graph = model(
        [node("MatMul", ["x", "w"], ["a"]), node("Exp", ["a"], ["b"]), node("Exp", ["b"], ["y"])],
        {"x": [2, WIDE]},
        {"y": [2, WIDE], "x": [2, WIDE]},
        {"w": rounded(WIDE, WIDE, deviation=0.1)},
    )
    after, x = fp16.convert(graph)[0], np.random.default_rng(1).normal(0, 0.3, (2, WIDE)).astype(np.float32)
    assert len({each.name for each in after.graph.node}) == len(after.graph.node)
    assert [value.name for value in after.graph.input] == ["x"]
    got = answers(after, x=x)
    np.testing.assert_array_equal(got["x"], x)
    np.testing.assert_allclose(got["y"], np.exp(np.exp(x @ weights(graph)["w"])), rtol=2e-2)


def test_control_flow_is_refused() -> None:
    branch = helper.make_graph(
        [node("Neg", ["x"], ["y"])], "branch", [], [helper.make_tensor_value_info("y", FLOAT, None)]
    )
    graph = model(
        [node("If", ["flag"], ["z"], name="If", then_branch=branch, else_branch=branch)],
        {"x": [2], "flag": []},
        {"z": [2]},
        {},
        {"flag": TensorProto.BOOL},
    )
    with pytest.raises(ExportError, match=r"the graph has control flow \('If'\)"):
        fp16.convert(graph)


def test_an_invalid_graph_is_refused() -> None:
    graph = model(
        [node("MatMul", ["x", "w"], ["y"], name="layer")],
        {"x": [2, 3]},
        {"y": [2, 1]},
        {"w": np.ones((4, 1), np.float32)},
    )
    with pytest.raises(ExportError, match="the graph's types cannot be inferred"):
        fp16.convert(graph)
