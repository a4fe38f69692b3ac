"""What the interpreter does around the operators: rounding, reading from disk, control flow, refusals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mil_interpreter import interpreter, read_package
from mil_interpreter.errors import PackageError, UnsupportedError
from mil_interpreter.interpreter import Interpreter
from mil_interpreter.package import parse
from mil_interpreter.records import Array
from tests.mil_interpreter.programs import builder as mb
from tests.mil_interpreter.programs import normal

MODEL = Path("Data/com.apple.CoreML/model.mlmodel")
WEIGHTS = Path("Data/com.apple.CoreML/weights/weight.bin")


def answer(path: Path, **inputs: Array) -> list[Array]:
    return list(Interpreter(read_package(path)).run(inputs).values())


def edit(path: Path, change: Callable[[Any], None]) -> None:
    """Change the saved program in place."""
    model = parse((path / MODEL).read_bytes())
    main = model.mlProgram.functions["main"]
    change(main.block_specializations[main.opset])
    (path / MODEL).write_bytes(model.SerializeToString())


def operation(block: Any, kind: str) -> Any:
    return next(o for o in block.operations if o.type == kind)


def constant(block: Any, operation: Any, parameter: str) -> Any:
    """The value of a `const` that an operation takes."""
    name = operation.inputs[parameter].arguments[0].name
    return next(o for o in block.operations if o.outputs[0].name == name).attributes["val"]


@pytest.fixture
def layer(saved: Any) -> tuple[Path, Array, Array]:
    """softmax(linear(x)), its weight in the blob file."""
    weight = normal(0, 6, 8)
    x = normal(1, 6, 8)
    path = saved.save({"x": x}, lambda v: mb.softmax(x=mb.linear(x=v["x"], weight=weight), axis=-1))
    return path, x, weight


def test_the_package_computes_its_layer(layer: tuple[Path, Array, Array]) -> None:
    path, x, weight = layer
    want = torch.softmax(torch.from_numpy(x) @ torch.from_numpy(weight).T, -1).numpy()
    np.testing.assert_allclose(answer(path, x=x)[0], want, atol=1e-6)


def test_fp16_rounds_after_each_operator_and_not_only_at_the_end(saved: Any) -> None:
    x = {"x": np.array([2048.0], np.float32)}
    got = saved.run(x, lambda v: mb.sub(x=mb.add(x=v["x"], y=np.float16(1)), y=np.float16(2048)), "fp16")
    np.testing.assert_array_equal(got[0], [0])  # 2049 is no fp16 number


def test_fp16_inputs_are_rounded_when_they_are_stored(saved: Any) -> None:
    got = saved.run({"x": np.array([1 + 2**-12], np.float32)}, lambda v: mb.identity(x=v["x"]), "fp16")
    np.testing.assert_array_equal(got[0], [1])


def test_an_unknown_operator_is_named(layer: tuple[Path, Array, Array]) -> None:
    path, _, _ = layer

    def rename(block: Any) -> None:
        operation(block, "softmax").type = "hypermax"

    edit(path, rename)
    with pytest.raises(UnsupportedError, match="uses the operators 'hypermax', which the Core ML interpreter"):
        Interpreter(read_package(path))


def test_an_unknown_parameter_is_named(layer: tuple[Path, Array, Array]) -> None:
    path, _, _ = layer

    def add(block: Any) -> None:
        found = operation(block, "softmax")
        found.inputs["temperature"].CopyFrom(found.inputs["axis"])

    edit(path, add)
    with pytest.raises(UnsupportedError, match=r"operator 'softmax' .* has 'temperature', which is not supported here"):
        Interpreter(read_package(path))


def test_a_missing_parameter_an_undefined_name_and_a_wrong_shape_are_sentences(
    layer: tuple[Path, Array, Array],
) -> None:
    path, x, _ = layer
    good = (path / MODEL).read_bytes()

    def drop(block: Any) -> None:
        del operation(block, "linear").inputs["weight"]

    def forget(block: Any) -> None:
        operation(block, "softmax").inputs["x"].arguments[0].name = "nothing"

    def shrink(block: Any) -> None:
        operation(block, "softmax").outputs[0].type.tensorType.dimensions[0].constant.size = 5

    def lose(block: Any) -> None:
        del block.operations[-1]

    for change, sentence in {
        drop: "operator 'linear' .* lacks 'weight'",
        forget: "operator 'softmax' .* has 'nothing' for 'x'",
        shrink: r"operator 'softmax' .* returns the sizes \(6, 6\), but \(5, 6\) are declared",
        lose: "never defines 'softmax_",
    }.items():
        (path / MODEL).write_bytes(good)
        edit(path, change)
        with pytest.raises(PackageError, match=sentence):
            answer(path, x=x)


@pytest.mark.parametrize("value", [3.0, -3.0])
def test_cond(saved: Any, value: float) -> None:
    inputs = {"x": np.array([value], np.float32)}
    got = saved.run(
        inputs,
        lambda v: mb.cond(
            pred=mb.squeeze(x=mb.greater(x=v["x"], y=np.float32(0))),
            _true_fn=lambda: mb.mul(x=v["x"], y=np.float32(2)),
            _false_fn=lambda: mb.sub(x=v["x"], y=np.float32(1)),
        ),
    )
    np.testing.assert_array_equal(got[0], [6 if value > 0 else -4])


def doubling(v: Any) -> Any:
    return mb.while_loop(
        _cond=lambda x: mb.squeeze(x=mb.less(x=x, y=np.float32(100))),
        _body=lambda x: mb.add(x=x, y=v["step"]),
        loop_vars=(v["x"],),
    )


def test_while_loop(saved: Any) -> None:
    got = saved.run({"x": np.array([3], np.float32), "step": np.array([10], np.float32)}, doubling)
    np.testing.assert_array_equal(got[0], [103])


def test_a_loop_without_end_is_a_sentence(saved: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "LONGEST_LOOP", 50)
    with pytest.raises(PackageError, match=r"operator 'while_loop' .* does not end within 50 turns"):
        saved.run({"x": np.array([3], np.float32), "step": np.array([0], np.float32)}, doubling)


def test_values_are_dropped_after_their_last_use(layer: tuple[Path, Array, Array]) -> None:
    path, _, _ = layer
    steps = Interpreter(read_package(path))._plan.steps
    assert [step.drop for step, _ in steps] == [(), (steps[0][0].operation.outputs[0].name,)]


def test_too_large_a_parameter_is_refused_before_memory_is_taken(saved: Any) -> None:
    sizes = np.array([1 << 20, 1 << 20], np.int32)
    with pytest.raises(PackageError, match=r"a tensor of the sizes .* is too large"):
        saved.run({"s": sizes}, lambda v: mb.fill(shape=v["s"], value=np.float32(0)))
