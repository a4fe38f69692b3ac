"""Linear layers in fp32, INT8 and 4 bits with few and many rows: `python -m tools.bench.blocks`.

Eight pairs of layers, 768 -> 3072 -> 768, in ONNX Runtime on two threads, in turn. One row is what a language model has
for each token that it generates; many are a whole text or a picture.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgekit.cli.console import print_table
from edgekit.evaluate import timing
from edgekit.judge import budget
from edgekit.runtime.ort import OrtRuntime
from edgekit_targets.onnx.passes.dynamic import quantize_blocks, quantize_dynamic

PAIRS, NARROW, WIDE = 8, 768, 3072
ROWS = (1, 8, 128)
SECONDS = 4.0


def chain() -> onnx.ModelProto:
    """X [rows, 768] -> 16 products with seeded weights -> y [rows, 768]."""
    draw = np.random.default_rng(0)
    sizes = [(NARROW, WIDE), (WIDE, NARROW)] * PAIRS
    names = ["x", *(f"h{number}" for number in range(1, len(sizes))), "y"]
    held = [
        numpy_helper.from_array(draw.normal(0, shape[0] ** -0.5, shape).astype(np.float32), f"w{number}")
        for number, shape in enumerate(sizes)
    ]
    nodes = [
        helper.make_node("MatMul", [names[n], f"w{n}"], [names[n + 1]], name=f"layer.{n}/MatMul")
        for n in range(len(sizes))
    ]
    x, y = (helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ["rows", NARROW]) for n in "xy")
    graph = helper.make_graph(nodes, "chain", [x], [y], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def main() -> None:
    """Print sizes, and for each number of rows how many times as fast as fp32 each is."""
    graph = chain()
    layers = [node.name for node in graph.graph.node]
    made = {
        "fp32": graph,
        "dynamic INT8": quantize_dynamic(graph),
        "8 bits in blocks": quantize_blocks(graph, layers, layers),
        "4 bits in blocks": quantize_blocks(graph, layers),
    }
    rows = {name: [name, f"{one.ByteSize() / 1e6:.1f}"] for name, one in made.items()}
    with tempfile.TemporaryDirectory() as folder:
        for count in ROWS:
            runtimes = {}
            for name, one in made.items():
                onnx.save(one, Path(folder) / f"{name}.onnx")
                runtimes[name] = OrtRuntime(Path(folder) / f"{name}.onnx")
            x = np.random.default_rng(1).normal(0, 1, (count, NARROW)).astype(np.float32)
            timed = timing.measure(runtimes, {"x": x}, seconds=SECONDS)
            for name, row in rows.items():
                row.append(f"{budget.ratio(timed, 'fp32', name).value:.2f}")
    print_table(["weights", "MB", *(f"{count} rows" for count in ROWS)], list(rows.values()))


if __name__ == "__main__":
    main()
