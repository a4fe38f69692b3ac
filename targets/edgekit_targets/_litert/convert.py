"""A program with fixed sizes -> `.tflite`: run by the interpreter of the environment `litert`, without edgekit.

Arguments: a JSON object with the paths of the program and of the file to write and the names of inputs and outputs; and
the path of the JSON object that says how it ended.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

DELEGATE = "DELEGATE"
"""The name of an operator that XNNPACK took the place of others with."""


def main() -> None:
    """Convert, and say in how many parts XNNPACK runs the graph."""
    asked, told = json.loads(sys.argv[1]), Path(sys.argv[2])
    try:
        _convert(asked)
        answer: dict[str, Any] = {"subgraphs": _subgraphs(asked["out"])}
    except Exception as error:  # whatever its lowerings met: the parent says it in a sentence
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        answer = {"error": lines[0] if lines else type(error).__name__}
    told.write_text(json.dumps(answer))


def _convert(asked: dict[str, Any]) -> None:
    import litert_torch
    import torch

    class Named(torch.nn.Module):
        """The program with names for what goes in and comes out."""

        def __init__(self, program: torch.nn.Module) -> None:
            super().__init__()
            self.program = program
            self.training = program.training = False

        def forward(self, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
            answer = self.program(*(inputs[name] for name in asked["inputs"]))
            values = answer if isinstance(answer, (tuple, list)) else (answer,)
            return dict(zip(asked["outputs"], values, strict=True))

    exported = torch.export.load(asked["program"])
    placed = {node.name: node.meta["val"] for node in exported.graph.nodes if node.op == "placeholder"}
    example = [placed[name] for name in exported.graph_signature.user_inputs]
    given = {n: torch.zeros(e.shape, dtype=e.dtype) for n, e in zip(asked["inputs"], example, strict=True)}
    litert_torch.convert(Named(exported.module()), sample_kwargs=given).export(asked["out"])


def _subgraphs(path: str) -> int:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=path, num_threads=1)
    interpreter.allocate_tensors()
    return [str(one["op_name"]) for one in interpreter._get_ops_details()].count(DELEGATE)


if __name__ == "__main__":
    main()
