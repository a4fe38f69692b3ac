"""A command, a source and a place of edgekit in a package of their own.

A record names its function by path, so that `edgekit --help` imports this file and no library.
"""

from edgekit.doors import Command, PlaceRuntime, Source

OPERATORS = Command(
    name="operators",
    panel="Understand",
    summary="Count the operators of an ONNX artifact.",
    function="edgekit_example.operators:operators",
    examples=("edgekit operators build/small/onnx",),
)
NUMPY = Source(
    form="numpy:FILE.npz",
    prefix="numpy:",
    open="edgekit_example.numpy_file:open_file",
    restore="edgekit_example.numpy_file:spec_of_files",
)
REFERENCE = PlaceRuntime(
    summary="the reference evaluator of the ONNX project, in NumPy",
    library="onnx",
    opener="edgekit_example.reference_evaluator:ReferenceRuntime",
    hint="pip install onnx",
    opens=(".onnx",),
)
