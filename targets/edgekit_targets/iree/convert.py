"""Conversion of an ONNX file of fixed sizes to IREE's machine code, in a separate process, without edgekit.

Arguments: the ONNX file, the file to write, a JSON object with the module's description, and the compiler's options.
IREE's own command (`iree-import-onnx`) does the same, but keeps no names: a module knows its inputs and outputs only
by their order. The working folder is the one of the ONNX file, so that no path gets into a message.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = Path("program.mlirbc")
KEY = "edgekit"
"""Key of the module's description in a function's reflection."""


def main() -> None:
    """Import the graph and compile it. Return the compiler's exit code."""
    import onnx
    from iree.compiler.extras import onnx_importer
    from iree.compiler.ir import Context, DictAttr, StringAttr
    from iree.compiler.tools import binaries

    source, out, facts, *options = sys.argv[1:]
    graph = onnx.shape_inference.infer_shapes(onnx.load(source), data_prop=True)
    with Context() as context:
        described = onnx_importer.ModelInfo(graph)
        module = described.create_module(context=context).operation
        onnx_importer.NodeImporter.define_function(described.main_graph, module).import_all()
        function = module.regions[0].blocks[0].operations[0]
        function.attributes["iree.reflection"] = DictAttr.get({KEY: StringAttr.get(facts)})
        module.verify()
        with PROGRAM.open("wb") as file:
            module.write_bytecode(file)
    sys.exit(subprocess.call([binaries.find_tool("iree-compile"), str(PROGRAM), "-o", out, *options]))


if __name__ == "__main__":
    main()
