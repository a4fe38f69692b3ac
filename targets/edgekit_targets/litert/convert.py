"""A program with fixed sizes -> `.tflite`: run by the interpreter of the environment `litert`, without edgekit."""

from __future__ import annotations

from typing import Any


def answer(asked: dict[str, Any]) -> dict[str, object]:
    """Convert.

    Args:
        asked: The paths of the program and of the file to write ("out"), and the names of inputs and outputs.
    """
    import litert_torch
    import torch

    class Named(torch.nn.Module):
        """The program with names for what goes in and comes out."""

        def __init__(self, program: torch.nn.Module) -> None:
            super().__init__()
            self.program = program
            self.training = program.training = False

        def forward(self, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
            found = self.program(*(inputs[name] for name in asked["inputs"]))
            values = found if isinstance(found, (tuple, list)) else (found,)
            return dict(zip(asked["outputs"], values, strict=True))

    exported = torch.export.load(asked["program"])
    placed = {node.name: node.meta["val"] for node in exported.graph.nodes if node.op == "placeholder"}
    example = [placed[name] for name in exported.graph_signature.user_inputs]
    given = {n: torch.zeros(e.shape, dtype=e.dtype) for n, e in zip(asked["inputs"], example, strict=True)}
    litert_torch.convert(Named(exported.module()), sample_kwargs=given).export(asked["out"])
    return {}
