"""AOTInductor (`.pt2`): the captured program as machine code, for C++ servers with LibTorch and for Python.

Inductor writes C++ for the graph and the host's compiler makes a library of it
(https://docs.pytorch.org/docs/2.13/torch.compiler_aot_inductor.html). Matrix products stay ATen's. The package holds
no source and no path, so no byte depends on the place of the compilation.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from edgekit.artifact.store import read_artifact
from edgekit.errors import ArtifactError, DependencyError, ExportError, NotVerifiedHere, reason
from edgekit.model import capture_errors as causes
from edgekit.model.folder import load_model
from edgekit.model.program import load_program
from edgekit.model.spec import Array
from edgekit.runtime.input_shapes import arguments
from edgekit.runtime.processor import threads
from edgekit.storage import files as archive
from edgekit.target import (
    FP32,
    INT8,
    ExportResult,
    Job,
    Option,
    Place,
    Runtime,
    SourceRequirements,
    Target,
    TargetDescription,
)
from edgekit_targets.inductor.half import LIMITS, SMALLEST, precision_option, to_half, to_int8

if TYPE_CHECKING:
    import torch

    from edgekit.target import Precision

ENTRY = "model.pt2"
MARCH = Option(
    name="march",
    default="portable",
    choices=("portable", "native"),
    help="processors it runs on. portable: x86-64-v3 (AVX2) or armv8-a (NEON). native: this host's, and those with "
    "all of its features",
)
PRECISION = precision_option("fp32", "int8")
PORTABLE = {"x86_64": ("x86-64-v3", 256), "aarch64": ("armv8-a", 128), "arm64": ("armv8-a", 128)}
"""Machine -> the compiler's features, and the bits of a vector. With 256 the code has no 512-bit vectors."""
NO_PATHS = """ -s -Wno-builtin-macro-redefined -D__FILE__='"model"'"""
"""Flags after `-march=`: no symbols, and no path of a source in the library's messages."""
# The error of Inductor in PyTorch 2.13 on a replicate pad of a reshaped permutation.
FOREIGN = "vr must not be None"
# Sources with their paths, and a hash of all records in the order of their names.
DROPPED = (".cpp", "serialization_id")
# Of the one model in a package.
NAME = "model"
CAPABILITY = {"AVX2": ("AVX2", "AVX512"), "AVX512": ("AVX512",)}
"""The first word of the vectors of a package -> PyTorch's word for a processor that has them."""


def export(source: Path, out: Path, job: Job) -> ExportResult:
    """Convert the captured program to `model.pt2`.

    Raises:
        DependencyError: If no C++ compiler is installed.
        ExportError: If Inductor cannot compile the program.
    """
    import torch

    if why := unavailable_reason():
        raise DependencyError(f"target 'aoti' {why}")
    spec = load_model(job.model)
    exported = load_program(source).exported
    used = {node.target for node in exported.graph.nodes if isinstance(node.target, torch._ops.OpOverload)}
    # The custom operators, as "library::name".
    if own := sorted({o._schema.name for o in used if o.namespace not in ("aten", "prims")}):
        raise ExportError(
            f"'{spec.name}' uses the operator '{own[0]}', which LibTorch lacks. Name its replacement in "
            "`ModelSpec.decompositions`, and nothing in `translations`"
        )
    march, precision = job.get(MARCH), job.get(PRECISION)
    layers = _reduce(spec.name, exported, precision)
    job.progress(0.2, f"compiling with Inductor and {_compiler()}, which takes minutes for a large model")
    (out / ENTRY).write_bytes(archive.without(_compile(spec.name, exported, march), DROPPED))
    job.progress(0.9, "saved")
    return ExportResult(
        precision=cast("Precision", precision), entry=ENTRY, dynamic=job.dynamic, notes=(*layers, *_notes(march))
    )


def _reduce(name: str, exported: torch.export.ExportedProgram, precision: str) -> tuple[str, ...]:
    """Convert products and their weights to a precision, and return notes for the user."""
    if precision != "int8":
        to_half(exported, precision)
        return ()
    layers = to_int8(exported)
    if not layers:
        raise ExportError(f"'{name}' has no linear layer with {SMALLEST} weights or more. Leave aoti.precision out")
    return (
        f"{layers} linear layers in INT8, with one scale per channel and row, and all else in fp32",
        "INT8 is for processors with VNNI, or ARM's. On others PyTorch's sums of products saturate",
    )


def load(artifact: Path, place: Place) -> Runtime:
    """Load the artifact in PyTorch's loader of AOTInductor packages, in this process, since it is machine code."""
    archive.require_whole(artifact / ENTRY, "an AOTInductor package")
    return AotiRuntime(artifact, ENTRY)


def unavailable_reason() -> str:
    """Return why nothing can be compiled here, in a sentence. Empty if it can."""
    if shutil.which(_compiler()):
        return ""
    return f"needs a C++ compiler, and '{_compiler()}' is not installed. Run apt-get install g++, or name one in $CXX"


def _compiler() -> str:
    """Return the compiler that Inductor calls."""
    return os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")


def compiler_version() -> str:
    """Return the compiler's first line about itself, or nothing if it cannot run."""
    if unavailable_reason():
        return ""
    stdout = subprocess.run([_compiler(), "--version"], capture_output=True, text=True, check=False).stdout
    return next(iter(stdout.splitlines()), "")


def _compile(name: str, exported: torch.export.ExportedProgram, march: str) -> bytes:
    """Return the package as AOTInductor writes it."""
    from torch._inductor import aoti_compile_and_package
    from torch._inductor.utils import fresh_cache

    flags, bits = PORTABLE.get(platform.machine(), ("native", None)) if march == "portable" else ("native", None)
    configs = {
        "cpp.march": flags + NO_PATHS,
        "cpp.simdlen": bits,
        # As many as the host of a run sets.
        "cpp.dynamic_threads": True,
        "compile_threads": 1,
        # Otherwise the name is a hash of the flags, which hold paths.
        "aot_inductor.model_name_for_generated_files": NAME,
        "aot_inductor.enable_line_tables": False,
        # They would stay in a folder that other users may write.
        "aot_inductor.precompile_headers": False,
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
        f"PyTorch 2.13 fails at a replicate pad of a tensor that was permuted and reshaped{where}. Write "
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


class AotiRuntime:
    """A `.pt2` file: the entry of an artifact whose manifest names inputs and outputs in their order.

    Raises:
        NotVerifiedHere: If it was compiled for another kind of processor, or is INT8 and sums saturate on this one.
        ArtifactError: If the loader refuses the file.
    """

    def __init__(self, folder: Path, entry: str) -> None:
        import torch

        # Its import makes the loader.
        import torch._inductor

        self._manifest = read_artifact(folder)
        torch.set_num_threads(threads())
        if self._manifest.precision == "int8":
            require_exact_sums()
        # The loader's stubs lack a method.
        loader: Any = torch._C._aoti.AOTIModelPackageLoader
        try:
            _require_processor(loader.load_metadata_from_package(str(folder / entry), NAME))
            # One runner, on the CPU.
            self._loader = loader(str(folder / entry), NAME, False, 1, -1)
        except RuntimeError as error:
            raise ArtifactError(f"PyTorch refuses '{folder / entry}': {reason(error)}") from error

    @property
    def device(self) -> str:
        """Library, version and threads."""
        import torch

        return f"PyTorch {torch.__version__} AOTInductor loader, CPU, {threads()} threads"

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Compute the answers to one batch. Inputs are copied, since a module may change them in place."""
        import torch

        feed = [torch.from_numpy(array.copy()) for array in arguments(self._manifest, inputs).values()]
        with torch.inference_mode():
            values = self._loader.run(feed)
        return {o.name: v.numpy() for o, v in zip(self._manifest.outputs, values, strict=True)}

    def close(self) -> None:
        """Free the library."""
        del self._loader


def _require_processor(metadata: Mapping[str, str]) -> None:
    """Check that this processor has the package's features, since a missing instruction would end the process."""
    import torch

    here = (platform.machine(), torch.backends.cpu.get_cpu_capability())
    machine, vectors = metadata["AOTI_MACHINE"], metadata["AOTI_CPU_ISA"].partition(" ")[0]
    if machine != here[0] or here[1] not in CAPABILITY.get(vectors, here[1:]):
        raise NotVerifiedHere(
            f"it is machine code for {machine} with {vectors}, and this host has {' with '.join(here)}"
        )


def require_exact_sums() -> None:
    """Check that PyTorch adds products of integers exactly here. On x86 without VNNI pairs saturate at 32,767."""
    import torch

    largest = torch.full((32, 32), 127, dtype=torch.int8)
    if int(torch._int_mm(largest, largest)[0, 0]) != 32 * 127 * 127:
        raise NotVerifiedHere("it multiplies in INT8, and PyTorch's sums saturate on this processor, which lacks VNNI")


TARGET = Target(
    summary="AOTInductor package, machine code, dynamic batch and size",
    about=TargetDescription(
        use_case="C++ servers with LibTorch that take no TorchScript, and Python",
        proved_by="PyTorch's AOTInductor loader on the CPU",
        not_covered="GPUs, other processors, versions of LibTorch other than the installed PyTorch's",
    ),
    source="program",
    export=export,
    load=load,
    places=(Place(name="cpu", tolerance=FP32, limits={**LIMITS, "int8": INT8}),),
    opt_in=True,
    runs_code=True,
    unavailable_reason=unavailable_reason,
    reads=SourceRequirements(content=compiler_version),
    options=(MARCH, PRECISION),
)
