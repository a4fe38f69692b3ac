"""A captured program on disk: program.pt2, and program.json with its axes, its proof and the model it belongs to.

A model without a factory (a module from a notebook or from `__main__`) is stored as its captured program, and an ONNX
file or a TorchScript module unchanged: no worker could import such a module. So its model folder holds `module/`, the
graph captured in the process that has the module, and the evaluation and calibration inputs as arrays. A worker opens
these instead.

Weights that are already in the model's own file are stored once: program.pt2 leaves them out, and the program's folder
has that file under a second name (a hard link, or a copy if the file system does not support links).
"""

from __future__ import annotations

import contextlib
import io
import shutil
import warnings
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.errors import CaptureError, ModelError
from edgekit.model.capture_errors import plain_trace
from edgekit.model.graph import Program, capture, quiet
from edgekit.model.own_operators import modules_of_operators, register
from edgekit.model.records import GRAPH, INFO, PROGRAM, WEIGHTS, declared_spec, program_files, read_info
from edgekit.model.sources import onnx, script
from edgekit.model.spec import ModelSpec
from edgekit.storage.files import digest_file, digest_text, link, staging, write_text
from edgekit.storage.verified_io import seal_record

if TYPE_CHECKING:
    import torch

SMALLEST = 1 << 10  # elements; a smaller tensor stays in the program


@dataclass
class Capture:
    """A module that is captured once, when its program is first needed."""

    spec: ModelSpec
    _program: Program | None = field(default=None, repr=False)

    def program(self) -> Program:
        """Return the captured program.

        Raises:
            CaptureError: Naming the module's file and line if capture fails, or would fix a size or a branch.
        """
        if self._program is None:
            self._program = capture(self.spec)
        return self._program


def save_program(program: Program, folder: Path, model_sha256: str, weights: Path | None = None) -> None:
    """Write a program's folder: program.pt2, and program.json with its axes, proof and model.

    Args:
        program: The captured program.
        folder: Destination.
        model_sha256: Hash of its model.
        weights: The model's weights as safetensors, if on disk: the program's weights are read from there. A
            program inside the model's folder needs no second name of that file.
    """
    import torch

    operators = modules_of_operators(program.exported)
    with staging(folder, program_files) as staged:
        names = _in_file(program.exported.state_dict, weights) if weights is not None else {}
        # PyTorch's own writer aborts the process if the disk is full.
        saved = io.BytesIO()
        with quiet(), _without_weights(program.exported.state_dict, names), _without_sources(program.exported):
            torch.export.save(program.exported, saved)
        (staged / PROGRAM).write_bytes(saved.getbuffer())
        if names and weights is not None and weights.parent != folder.parent:
            link(weights, staged / WEIGHTS)
        info = {
            "dynamic": list(program.dynamic),
            "proof": [dict(sizes) for sizes in program.proof],
            "model_sha256": model_sha256,
            "torch": torch.__version__,
            "weights": names,
            "operators": operators,
            "files": {path.name: digest_file(path) for path in sorted(staged.iterdir())},
        }
        write_text(staged / INFO, seal_record(info))


def _in_file(tensors: Mapping[str, torch.Tensor], path: Path) -> dict[str, str]:
    """Return the tensors that a safetensors file holds bit for bit, with their names there; tied ones share a name."""
    import torch
    from safetensors import safe_open

    names: dict[str, str] = {}
    owners: dict[tuple[object, ...], str] = {}
    with safe_open(path, framework="pt") as file:
        stored_names = set(file.keys())
        for name, tensor in tensors.items():
            tied = (tensor.data_ptr(), tensor.dtype, tensor.shape)
            if name in stored_names and tensor.is_contiguous() and tensor.numel() >= SMALLEST and tied not in owners:
                stored = file.get_tensor(name)
                if stored.dtype == tensor.dtype and torch.equal(stored, tensor.detach()):
                    owners[tied] = name
            if tied in owners and tensor.is_contiguous():
                names[name] = owners[tied]
    return names


@contextlib.contextmanager
def _without_sources(exported: torch.export.ExportedProgram) -> Iterator[None]:
    """Shorten the nodes' stack traces to file names and line numbers inside the block.

    A build travels, and need not tell where its author's code lies, or what its lines are.
    """
    import torch

    nodes = [
        node
        for module in exported.graph_module.modules()
        if isinstance(module, torch.fx.GraphModule)
        for node in module.graph.nodes
        if node.meta.get("stack_trace")
    ]
    traces = {node: node.meta["stack_trace"] for node in nodes}
    try:
        for node, trace in traces.items():
            node.meta["stack_trace"] = plain_trace(trace)
        yield
    finally:
        for node, trace in traces.items():
            node.meta["stack_trace"] = trace


@contextlib.contextmanager
def _without_weights(tensors: dict[str, torch.Tensor], names: Collection[str]) -> Iterator[None]:
    """Replace tensors that are stored elsewhere with a single number, expanded to their shape, inside the block."""
    import torch

    whole = {name: tensors[name] for name in names}
    tensors.update(
        {
            name: _like(tensor, torch.zeros((), dtype=tensor.dtype).expand(tensor.shape))
            for name, tensor in whole.items()
        }
    )
    try:
        # PyTorch warns of the expanded tensors, which are intended.
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="No complete tensor found in the group")
            yield
    finally:
        tensors.update(whole)


def _like(old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.nn.Parameter(new, requires_grad=old.requires_grad) if isinstance(old, torch.nn.Parameter) else new


def program_matches(folder: Path, model_sha256: str) -> bool:
    """Return whether a folder holds this model's program, undamaged and captured by this version of torch."""
    try:
        info = read_info(folder)
    except CaptureError:
        return False
    here = version("torch").partition("+")[0]
    is_current = info["model_sha256"] == model_sha256 and "operators" in info
    return bool(is_current and info["torch"].partition("+")[0] == here)


def load_program(folder: Path, weights: Path | None = None, mapped: bool = False) -> Program:
    """Read a program's folder, as the pipeline wrote it.

    Args:
        folder: The program's folder.
        weights: The model's checked weights, if the program lies in the model's folder without its own.
        mapped: True for weights that are mapped from their file, for a translation that only copies them. Otherwise
            they have the memory alignment of PyTorch's own tensors, on which sums depend.

    Raises:
        CaptureError: If the model is an ONNX file without a program, or the program is damaged.
    """
    import torch
    from safetensors import SafetensorError

    if not (folder / INFO).is_file():
        raise CaptureError(f"the model is an ONNX file without PyTorch code. Possible targets: {onnx.FROM_HERE}")
    info = read_info(folder)
    register(info.get("operators", {}))
    with quiet():
        exported = torch.export.load(folder / PROGRAM)
    if names := info.get("weights", {}):
        try:
            _fill(exported.state_dict, names, weights or folder / WEIGHTS, mapped)
        except (OSError, SafetensorError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise CaptureError(
                f"the captured program in '{folder}' lacks its weights ({error}). Run `edgekit export` again"
            ) from error
    return Program(exported, tuple(info["dynamic"]), tuple(info["proof"]))


def _fill(tensors: dict[str, torch.Tensor], names: Mapping[str, str], path: Path, mapped: bool) -> None:
    """Load the tensors of a safetensors file into a program."""
    from safetensors.torch import load_file

    stored = load_file(path)
    copies = {name: stored[name] if mapped else stored[name].clone() for name in set(names.values())}
    for name, owner in names.items():
        if (copies[owner].shape, copies[owner].dtype) != (tensors[name].shape, tensors[name].dtype):
            raise ValueError(f"'{name}' has another shape or type")
        tensors[name] = _like(tensors[name], copies[owner])


def write_captured(captured: Capture, folder: Path, weights: Path) -> dict[str, Any]:
    """Write the module's code next to its weights, as a program or file; return its entry for config.json.

    The graph's text identifies it: two captures of one module differ in their bytes.

    Raises:
        CaptureError: Naming the module's file and line if capture fails, or would fix a size or a branch.
    """
    spec = captured.spec
    if lost := sorted(set(spec.translations) - set(spec.decompositions)):
        raise ModelError(
            f"'{spec.name}' is a module in memory, and the translation of '{lost[0]}' cannot be stored. Move it "
            "into a file and export 'package.module:function', or give a decomposition"
        )
    if (file := onnx.file_of(spec.module)) is not None:
        shutil.copyfile(file, folder / onnx.FILE)
        identity = digest_file(file)
    elif script.is_script(spec.module):
        (folder / GRAPH).mkdir()
        identity = script.write(spec.module, folder / GRAPH / script.FILE)
    else:
        program = captured.program()
        save_program(program, folder / GRAPH, "", weights)
        identity = digest_text(program.exported.graph_module.print_readable(print_output=False))
    return {"graph_sha256": identity}


def holds_program(config: Mapping[str, Any]) -> bool:
    """Return whether a model folder's model is a captured program, or TorchScript.

    Opening it can run the author's code: torch.export unpickles constants, evaluates expressions and conditions
    stored as text, and calls the functions that its nodes name.
    """
    return not config["factory"] and onnx.FILE not in config["files"]


def read_captured(config: Mapping[str, Any], folder: Path) -> ModelSpec:
    """Return the model of a folder written by `write_captured`."""
    return declared_spec(config, _module(config, folder))


def _module(config: Mapping[str, Any], folder: Path) -> torch.nn.Module:
    if not holds_program(config):
        return onnx.module_of(folder / onnx.FILE)
    if (file := folder / GRAPH / script.FILE).is_file():
        return script.read(file)
    module = load_program(folder / GRAPH, folder / WEIGHTS).exported.module(check_guards=False)
    for part in module.modules():
        # The graph was captured in eval mode, and an exported module refuses `eval()`.
        part.training = False
    return module
