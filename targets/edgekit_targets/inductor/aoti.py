"""AOTInductor (`.pt2`): the captured program as machine code, for C++ servers with LibTorch and for Python.

Inductor writes C++ for the graph and the host's compiler makes a library of it
(https://docs.pytorch.org/docs/2.13/torch.compiler_aot_inductor.html). Matrix products stay ATen's. The package holds
no source and no path: where it was compiled shows in no byte.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, cast

from edgekit.errors import DependencyError, ExportError
from edgekit.model import capture_errors as causes
from edgekit.model.folder import load_model
from edgekit.model.program import load_program
from edgekit.storage import files as archive
from edgekit.target import FP32, INT8, About, Exported, Job, Option, Place, Reads, Runtime, Target
from edgekit_targets.inductor.aoti_runtime import NAME, AotiRuntime
from edgekit_targets.inductor.half import LIMITS, precision_option, to_half
from edgekit_targets.inductor.int8_linear import SMALLEST, to_int8

if TYPE_CHECKING:
    import torch

    from edgekit.target import Precision

ENTRY = "model.pt2"
MARCH = Option(
    name="march",
    default="portable",
    choices=("portable", "native"),
    help="processors it runs on; portable: x86-64-v3 (AVX2) or armv8-a (NEON); native: this host's and such as have "
    "all that it has",
)
PRECISION = precision_option("fp32", "int8")
PORTABLE = {"x86_64": ("x86-64-v3", 256), "aarch64": ("armv8-a", 128), "arm64": ("armv8-a", 128)}
"""Machine -> what the compiler may use, and bits of a vector: with 256 there is no 512-bit code."""
NO_PATHS = """ -s -Wno-builtin-macro-redefined -D__FILE__='"model"'"""
"""Flags behind `-march=`: no symbols, and no path of a source in the library's messages."""
FOREIGN = "vr must not be None"  # what Inductor of PyTorch 2.13 says of a replicate pad of a reshaped permutation
DROPPED = (".cpp", "serialization_id")  # sources with their paths; a hash of all records in the order of their names


def export(source: Path, out: Path, job: Job) -> Exported:
    """Captured program -> model.pt2.

    Raises:
        DependencyError: If there is no C++ compiler.
        ExportError: If Inductor cannot compile the program.
    """
    if why := unavailable_reason():
        raise DependencyError(f"target 'aoti' {why}")
    spec = load_model(job.model)
    exported = load_program(source).exported
    if own := sorted(_own_operators(exported)):
        raise ExportError(
            f"'{spec.name}' uses the operator '{own[0]}', which LibTorch does not have: name what stands for it in "
            "`ModelSpec.decompositions`, and nothing in `translations`"
        )
    march, precision = job.get(MARCH), job.get(PRECISION)
    layers = _reduce(spec.name, exported, precision)
    job.progress(0.2, f"compiling with Inductor and {_compiler()}, which takes minutes for a large model")
    (out / ENTRY).write_bytes(archive.without(_compiled(spec.name, exported, march), DROPPED))
    job.progress(0.9, "saved")
    return Exported(
        precision=cast("Precision", precision), entry=ENTRY, dynamic=job.dynamic, notes=(*layers, *_notes(march))
    )


def _reduce(name: str, exported: torch.export.ExportedProgram, precision: str) -> tuple[str, ...]:
    """Put products and their weights into a precision; what is to be said of it."""
    if precision != "int8":
        to_half(exported, precision)
        return ()
    layers = to_int8(exported)
    if not layers:
        raise ExportError(f"'{name}' has no linear layer with {SMALLEST} weights or more: leave aoti.precision out")
    return (
        f"{layers} linear layers in INT8, a scale a channel and a row; all else in fp32",
        "INT8 is for processors with VNNI, or ARM's: on others PyTorch's sums of products saturate",
    )


def load(artifact: Path, place: Place) -> Runtime:
    """Run it in PyTorch's loader of AOTInductor packages, in this process: it is machine code."""
    archive.require_whole(artifact / ENTRY, "an AOTInductor package")
    return AotiRuntime(artifact, ENTRY)


def unavailable_reason() -> str:
    """Why nothing can be compiled here, in a sentence; empty where it can."""
    if shutil.which(_compiler()):
        return ""
    return f"needs a C++ compiler, and there is no '{_compiler()}': apt-get install g++, or name one in $CXX"


def _compiler() -> str:
    """The compiler that Inductor calls."""
    return os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")


def compiler_version() -> str:
    """The first line that the compiler says of itself; empty where there is none."""
    if unavailable_reason():
        return ""
    said = subprocess.run([_compiler(), "--version"], capture_output=True, text=True, check=False).stdout
    return next(iter(said.splitlines()), "")


def _own_operators(exported: torch.export.ExportedProgram) -> set[str]:
    """Operators of the graph that are not PyTorch's, as "library::name"."""
    import torch

    used = {node.target for node in exported.graph.nodes if isinstance(node.target, torch._ops.OpOverload)}
    return {one._schema.name for one in used if one.namespace not in ("aten", "prims")}


def _compiled(name: str, exported: torch.export.ExportedProgram, march: str) -> bytes:
    """The package as AOTInductor writes it."""
    from torch._inductor import aoti_compile_and_package
    from torch._inductor.utils import fresh_cache

    flags, bits = PORTABLE.get(platform.machine(), ("native", None)) if march == "portable" else ("native", None)
    configs = {
        "cpp.march": flags + NO_PATHS,
        "cpp.simdlen": bits,
        "cpp.dynamic_threads": True,  # as many as whoever runs it sets
        "compile_threads": 1,
        "aot_inductor.model_name_for_generated_files": NAME,  # else a hash of the flags, which hold paths
        "aot_inductor.enable_line_tables": False,
        "aot_inductor.precompile_headers": False,  # they would stay in a folder that other users may write
    }
    with tempfile.TemporaryDirectory() as folder, fresh_cache(dir=folder), warnings.catch_warnings(action="ignore"):
        path = Path(folder) / ENTRY
        try:
            aoti_compile_and_package(exported, package_path=str(path), inductor_configs=configs)
        except Exception as error:
            raise ExportError(f"Inductor cannot compile '{name}': {_why(error, exported)}") from error
        return path.read_bytes()


def _why(error: Exception, exported: torch.export.ExportedProgram) -> str:
    if FOREIGN not in str(error):
        return causes.why(error, exported)
    used = causes.line_using(exported, "pad") or causes.line_using(exported, "replication_pad")
    where = f" at {used}" if used else ""
    return (
        f"PyTorch 2.13 fails at a replicate pad of a tensor that was permuted and reshaped{where}: write "
        "the pad as torch.cat of the edge slices and the tensor, or export to torchscript"
    )


def _notes(march: str) -> tuple[str, ...]:
    import torch

    machine = platform.machine()
    needs = PORTABLE[machine][0] if march == "portable" and machine in PORTABLE else "this host's processor"
    return (
        f"machine code for {sys.platform} on {machine}, for processors with all of {needs}",
        f"compiled by {compiler_version()} for PyTorch or LibTorch {torch.__version__.partition('+')[0]}",
    )


TARGET = Target(
    summary="AOTInductor package, machine code, dynamic batch and size",
    about=About(
        choose_for="C++ servers with LibTorch that take no TorchScript, and Python",
        proved_by="PyTorch's AOTInductor loader on the CPU",
        not_proved="GPUs, other processors, versions of LibTorch other than the installed PyTorch's",
    ),
    source="program",
    export=export,
    load=load,
    places=(Place(name="cpu", tolerance=FP32, limits={**LIMITS, "int8": INT8}),),
    by_name=True,
    runs_code=True,
    unavailable_reason=unavailable_reason,
    reads=Reads(content=compiler_version),
    options=(MARCH, PRECISION),
)
