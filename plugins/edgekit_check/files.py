"""Files of other tools: their formats, how they are found, copied and opened, and the precision of their weights."""

from __future__ import annotations

import re
import shutil
import zipfile
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edgekit import doors
from edgekit.errors import ArtifactError, DependencyError, UsageError, install_command
from edgekit.model.sources.onnx import external_file, read_graph
from edgekit.runtime.protocol import FileRuntime, FileTensor


@dataclass(frozen=True)
class Format:
    """A format of files.

    Attributes:
        name: Its name in sentences.
        opener: Path of a function `(path) -> FileRuntime`.
        extra: The extra of edgekit that installs its runtime; empty if the opener says what is missing.
    """

    name: str
    opener: str
    extra: str = ""


_TORCHSCRIPT = Format("TorchScript", "edgekit_targets.torchscript.export:TorchScriptFile")
FORMATS: Mapping[str, Format] = {
    ".onnx": Format("ONNX", "edgekit_check.files:open_onnx", "cpu"),
    ".xml": Format("OpenVINO IR", "edgekit_targets.openvino.runtime:OpenvinoRuntime", "openvino"),
    ".tflite": Format("LiteRT", "edgekit_targets.litert.runtime:LitertFile"),
    ".pte": Format("ExecuTorch", "edgekit_targets.executorch.runtime:ExecutorchFile", "executorch"),
    ".mlpackage": Format("Core ML", "edgekit_targets.coreml.runtime:CoreMLFile", "coreml"),
    ".pt2": Format("torch.export program", "edgekit_check.files:ProgramFile"),
    ".pt": _TORCHSCRIPT,
    ".torchscript": _TORCHSCRIPT,
    ".ptl": Format("PyTorch Mobile", "edgekit_check.files:open_lite"),
}
"""By suffix."""
FOLDERS = ("", "onnx", "openvino")
"""Where tools put the files of a folder: Ultralytics and ov.convert_model in it, transformers.js in `onnx`."""
_INT8_NODES = (
    "QuantizeLinear",
    "DynamicQuantizeLinear",
    "MatMulInteger",
    "ConvInteger",
    "QLinearConv",
    "QLinearMatMul",
)
_INT4_NODES = ("MatMulNBits", "GatherBlockQuantized")
# onnx.TensorProto.DataType.
FLOAT, FLOAT16 = 1, 10
# Share of fp16 among a graph's weights from which its precision is fp16: converters leave recurrent layers in fp32.
FP16_OF_WEIGHTS = 0.1
# Share of the bytes of an IR's constants: INT8 leaves biases and some layers in float.
PART_OF_WEIGHTS = 0.25
_CONSTANT = re.compile(r'type="Const"[^>]*>\s*<data([^>]*)/?>')
_ELEMENT, _SIZE = re.compile(r'element_type="(\w+)"'), re.compile(r'\bsize="(\d+)"')
_IR_TYPES = {"int4": ("i4", "u4"), "int8": ("i8", "u8"), "fp16": ("f16",)}


def find_file(path: Path) -> Path:
    """Return the one file of a known format that a path names: itself, or the one in a tool's folder.

    Raises:
        UsageError: If it does not exist, has no known format, or a folder holds several.
    """
    possible = ", ".join(FORMATS)
    if not path.exists():
        raise UsageError(f"no file '{path}'. Name a file that another tool wrote: {possible}")
    if path.suffix in FORMATS:
        return path
    if path.is_dir():
        inside = [f for folder in FOLDERS for f in sorted((path / folder).glob("*")) if f.suffix in FORMATS]
        if len(inside) == 1:
            return inside[0]
        if inside:
            names = ", ".join(str(file.relative_to(path)) for file in inside)
            raise UsageError(f"'{path}' holds {len(inside)} models. Name one of them: {names}")
    raise UsageError(f"'{path}' is of no known format. Known are {possible}, and a folder that holds one of these")


def files_of(path: Path) -> tuple[Path, ...]:
    """Return the files that belong to a model file: itself, or a package's; the second file with its weights."""
    if path.is_dir():
        return tuple(sorted(file for file in path.rglob("*") if file.is_file()))
    second = {".xml": path.with_suffix(".bin")}.get(path.suffix)
    if path.suffix == ".onnx" and (name := external_file(path)):
        second = path.parent / name
    return (path, second) if second is not None and second.is_file() else (path,)


def copy_model(path: Path, folder: Path) -> Path:
    """Copy a model file, with the files that belong to it, into a folder; return the copy."""
    for file in files_of(path):
        copy = folder / file.relative_to(path.parent)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
    return folder / path.name


def open_file(path: Path) -> FileRuntime:
    """Open a model file in its format's own runtime.

    Raises:
        DependencyError: If the runtime is not installed.
        NotVerifiedHere: If this host cannot run it.
        ArtifactError: If the runtime refuses the file.
    """
    kind = FORMATS[path.suffix]
    try:
        runtime: FileRuntime = doors.resolve(kind.opener)(path)
    except ModuleNotFoundError as error:
        raise DependencyError(
            f"running {kind.name} needs {error.name}. Install it: {install_command(kind.extra)}"
        ) from error
    return runtime


def describe(path: str, progress: Callable[[float, str], None]) -> dict[str, Any]:
    """Return a file's inputs as plain data, for a worker process; none if it declares none."""
    with closing(open_file(Path(path))) as runtime:
        return {"inputs": [asdict(tensor) for tensor in runtime.inputs() or ()]}


def open_onnx(path: Path) -> FileRuntime:
    """Open an ONNX file, with its second file if its weights lie there."""
    from edgekit.runtime.ort import check_file, require_onnxruntime
    from edgekit.runtime.ort_session import OrtSession

    require_onnxruntime()
    try:
        check_file(path, external_file(path))
    except ArtifactError as error:
        import onnx

        graph = onnx.load(path, load_external_data=False).graph
        places = {pair.value for i in graph.initializer for pair in i.external_data if pair.key == "location"}
        if len(places) > 1:
            raise ArtifactError(
                f"'{path.name}' keeps its weights in {len(places)} files, and edgekit opens one. Write it again with "
                "onnx.save(model, path, save_as_external_data=True, all_tensors_to_one_file=True)"
            ) from error
        raise
    return OrtSession(path)


def open_lite(path: Path) -> FileRuntime:
    """Open a PyTorch Mobile file in the lite interpreter."""
    from edgekit_targets.torchscript.export import TorchScriptFile

    return TorchScriptFile(path, lite=True)


class ProgramFile:
    """A program that `torch.export.save` wrote, in eager PyTorch."""

    def __init__(self, path: Path) -> None:
        from edgekit.model.overrides import SpecOverrides
        from edgekit.model.sources.program import spec_of_program
        from edgekit.runtime.eager import EagerRuntime

        try:
            self._spec = spec_of_program(path)
        except UsageError:
            # Its batch is fixed.
            self._spec = spec_of_program(path, SpecOverrides(axes={}))
        self._runtime = EagerRuntime(self._spec)
        self.device, self.run, self.close = self._runtime.device, self._runtime.run, self._runtime.close

    def inputs(self) -> tuple[FileTensor, ...]:
        """Return the program's inputs; its axes are open."""
        return tuple(FileTensor(i.name, i.dtype, i.shape) for i in self._spec.inputs)

    def outputs(self) -> tuple[FileTensor, ...]:
        """Return the program's outputs, which declare no sizes."""
        return tuple(FileTensor(o.name, o.dtype) for o in self._spec.outputs)


def precision_of(path: Path) -> str:
    """Return the precision of a file's weights, as far as its format shows it: fp32 where it does not."""
    if path.suffix == ".onnx":
        return _precision_of_graph(path)
    if path.suffix == ".xml":
        text = path.read_text(encoding="utf-8")
        sizes: dict[str, int] = {}
        for attributes in _CONSTANT.findall(text):
            kind, size = _ELEMENT.search(attributes), _SIZE.search(attributes)
            if kind is not None and size is not None:
                sizes[kind[1]] = sizes.get(kind[1], 0) + int(size[1])
        whole = max(sum(sizes.values()), 1)
        for precision, types in _IR_TYPES.items():
            if sum(sizes.get(kind, 0) for kind in types) > PART_OF_WEIGHTS * whole:
                return precision
        return "int8" if 'type="FakeQuantize"' in text else "fp32"
    if path.suffix == ".tflite":
        with closing(open_file(path)) as runtime:
            quantized = [t for t in (*(runtime.inputs() or ()), *(runtime.outputs() or ())) if t.scale]
        return "int8" if quantized else "fp32"
    if path.suffix == ".mlpackage":
        import mil_interpreter

        package = mil_interpreter.read_package(path)
        kinds = {operation.kind for operation in package.main.operations}
        if kinds & {"quantize", "dequantize", "constexpr_affine_dequantize", "constexpr_blockwise_shift_scale"}:
            return "int8"
        results = [result.type.dtype for operation in package.main.operations for result in operation.outputs]
        return "fp16" if "fp16" in results else "fp32"
    if path.suffix in (".pt", ".torchscript", ".ptl"):
        with zipfile.ZipFile(path) as archive:
            code = [archive.read(name) for name in archive.namelist() if name.endswith((".py", "bytecode.pkl"))]
        return "int8" if any(re.search(rb"quantized(::|\.)(linear|conv)", text) for text in code) else "fp32"
    return "fp32"


def _precision_of_graph(path: Path) -> str:
    from edgekit.model.onnx_check import every_node

    graph = read_graph(path, external_file(path)).graph
    operators = {node.op_type for node in every_node(graph)}
    if operators & set(_INT8_NODES):
        return "int8"
    if operators & set(_INT4_NODES):
        return "int4"
    elements = {FLOAT: 0, FLOAT16: 0}
    for tensor in graph.initializer:
        if tensor.data_type in elements:
            count = 1
            for size in tensor.dims:
                count *= size
            elements[tensor.data_type] += count
    return "fp16" if elements[FLOAT16] > FP16_OF_WEIGHTS * sum(elements.values()) else "fp32"
