"""Modules of four kinds of model, broken one by one in fp32 and INT8, are the first that `explain` names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from edgekit.model.spec import Array, ModelSpec
from edgekit_inspect import attribution
from tests.plugins.inspect import nets

NEEDED = 22
"""Of 24."""


def noisy(values: Array) -> Array:
    """Noise of 30 % of the deviation."""
    return values + np.random.default_rng(0).normal(0, 0.3 * values.std(), values.shape)


def negated(values: Array) -> Array:
    return -values


def turned(values: Array) -> Array:
    """Another row at each position."""
    return np.roll(values, 1, axis=-2)


Break = Callable[[Array], Array]
BREAKS: dict[Callable[[], ModelSpec], tuple[tuple[str, str, Break], ...]] = {
    nets.transformer: (
        ("position", "position.table", turned),
        ("attention.out", "attention.out/MatMul", noisy),
        ("mlp.up", "mlp.up.bias", negated),
    ),
    nets.convolutional: (
        ("block.second", "block.second.weight", noisy),
        ("last", "last.bias", negated),
        ("classifier", "classifier.weight", noisy),
    ),
    nets.words: (
        ("words", "words.weight", noisy),
        ("positions", "positions.embedding_1", turned),
        ("mlp.down", "mlp.down/MatMul", noisy),
    ),
    nets.ranker: (
        ("scorer", "scorer/MatMul", noisy),
        ("refine.down", "refine.down/MatMul", noisy),
        ("box", "box.bias", negated),
    ),
}
"""By model: the module, its constant, or the layer whose weight it is, and what is done to it."""


@dataclass(frozen=True)
class Net:
    spec: ModelSpec
    graph: onnx.ModelProto

    @property
    def rows(self) -> list[dict[str, Array]]:
        return [self.spec.random(seed) for seed in range(100, 104)]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[Callable[[], ModelSpec], Net]:
    made = {}
    for factory in BREAKS:
        spec = factory()
        made[factory] = Net(spec, nets.exported(spec, tmp_path_factory.mktemp(spec.name)))
    return made


def broken(graph: onnx.ModelProto, constant: str, how: Break) -> onnx.ModelProto:
    """A copy in which a constant, or the weight of a layer, was changed."""
    copy = onnx.ModelProto()
    copy.CopyFrom(graph)
    name = next((node.input[1] for node in copy.graph.node if node.name == constant), constant)
    found = next(i for i in copy.graph.initializer if i.name == name)
    values = how(numpy_helper.to_array(found))
    found.CopyFrom(numpy_helper.from_array(values.astype(np.float32), name))
    return copy


@pytest.mark.nightly
@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
def test_the_broken_module_is_named_first(static: bool, exported: dict[Callable[[], ModelSpec], Net]) -> None:
    def missed() -> Iterator[str]:
        for factory, breaks in BREAKS.items():
            net = exported[factory]
            for module, constant, how in breaks:
                worse = broken(net.graph, constant, how)
                for kind, other in (("fp32", worse), ("INT8", nets.quantized(net.spec, worse, static))):
                    parts = attribution.attribute(net.graph, other, net.rows)
                    named = attribution.Attribution(kind, len(net.rows), parts).worst(1)[0].module
                    if named != module:
                        yield f"{net.spec.name}, {kind}: '{named}' was named, '{module}' is broken"

    wrong = list(missed())
    assert 2 * sum(map(len, BREAKS.values())) == 24
    assert 24 - len(wrong) >= NEEDED, "\n".join(wrong)
