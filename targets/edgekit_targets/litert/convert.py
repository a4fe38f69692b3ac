"""Conversion of a program with fixed sizes to `.tflite`, in the environment `litert`, without edgekit."""

from __future__ import annotations

from typing import Any


def answer(request: dict[str, Any]) -> dict[str, object]:
    """Convert the program and write the file.

    Args:
        request: The paths of the program and of the file to write ("out"), and the names of inputs and outputs.
    """
    import litert_torch
    import torch

    class Named(torch.nn.Module):
        """The program with names for its inputs and outputs."""

        def __init__(self, program: torch.nn.Module) -> None:
            super().__init__()
            self.program = program
            self.training = program.training = False

        def forward(self, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
            outputs = self.program(*(inputs[name] for name in request["inputs"]))
            values = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
            return dict(zip(request["outputs"], values, strict=True))

    exported = torch.export.load(request["program"])
    placed = {node.name: node.meta["val"] for node in exported.graph.nodes if node.op == "placeholder"}
    example = [placed[name] for name in exported.graph_signature.user_inputs]
    zeros = {n: torch.zeros(e.shape, dtype=e.dtype) for n, e in zip(request["inputs"], example, strict=True)}
    litert_torch.convert(Named(exported.module()), sample_kwargs=zeros).export(request["out"])
    return {}
