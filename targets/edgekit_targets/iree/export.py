"""IREE (`.vmfb`): the ONNX artifact at fixed sizes as machine code, for servers and boards without a framework.

IREE's compiler makes one file of weights and code (https://iree.dev/guides/deployment-configurations/cpu/). IREE's
runtime opens it on any system, since the code is in an ELF that the runtime loads by itself. The processor is named
and never the builder's own, so that the bytes do not depend on the builder. Sizes are the model's defaults. With open
ones IREE 3.13 fails in arr-coc-tiny's query scorer ("expected sizes to be non-negative").
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.artifact.store import read_artifact
from edgekit.errors import ExportError
from edgekit.model.folder import load_model
from edgekit.model.shapes import size_text
from edgekit.model.spec import Array
from edgekit.runtime.input_shapes import arguments, require_names
from edgekit.target import FP32_DELEGATED, ExportResult, Job, Need, Option, Place, Runtime, Target, TargetDescription
from edgekit_targets.iree import convert
from edgekit_targets.iree.session import CPU, FUNCTION, IreeSession
from edgekit_targets.onnx.passes.graph import fix_shapes, save_graph

if TYPE_CHECKING:
    import onnx


ENTRY = "model.vmfb"
DEVICE = Option(
    name="device",
    default="x86_64",
    choices=("x86_64", "arm64", "riscv64"),
    help="processor to compile for: x86-64-v3 (AVX2), armv8-a (NEON) or rv64gc. This host's own plays no role",
)
PROCESSORS = {
    "x86_64": ("x86-64-v3", ["--iree-llvmcpu-target-triple=x86_64-linux-gnu", "--iree-llvmcpu-target-cpu=x86-64-v3"]),
    "arm64": ("armv8-a", ["--iree-llvmcpu-target-triple=aarch64-linux-gnu", "--iree-llvmcpu-target-cpu=generic"]),
    "riscv64": (
        "rv64gc",
        [
            "--iree-llvmcpu-target-triple=riscv64-linux-gnu",
            "--iree-llvmcpu-target-cpu=generic-rv64",
            "--iree-llvmcpu-target-cpu-features=+m,+a,+f,+d,+c",
            "--iree-llvmcpu-target-abi=lp64d",
        ],
    ),
}
"""Device -> the features that the code needs, and the compiler's options."""
OPTIONS = (
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-debug-symbols=false",
    # Both would hold paths of the builder.
    "--iree-vm-bytecode-module-strip-source-map",
    "--iree-vm-bytecode-module-strip-debug-ops",
)
OPERATOR = re.compile(r"\bonnx\.(\w+)")
ERROR = re.compile(r"\berror: (?:loc\(.*?\): )?(.*?)(?:: %|$)")
# Printed by the compiler when it crashes.
CRASH = "crash backtrace"
# Characters of the compiler's words in a sentence.
LONGEST = 200


def export(source: Path, out: Path, job: Job) -> ExportResult:
    """Convert the ONNX artifact to `model.vmfb`.

    Raises:
        ExportError: If the graph cannot be fixed at the default sizes, or IREE cannot compile it.
    """
    import onnx

    spec, device = load_model(job.model), job.get(DEVICE)
    job.progress(0.1, "fixing the graph at the default sizes")
    try:
        graph = fix_shapes(onnx.load(job.entry), {i.name: spec.shape(i.name, {}) for i in spec.inputs})
    except Exception as error:
        raise ExportError(f"'{spec.name}' cannot be fixed at its default sizes: {error}") from error
    job.progress(0.3, f"compiling with IREE for {device}")
    log = compile_graph(graph, out / ENTRY, device)
    if not (out / ENTRY).is_file():
        raise ExportError(f"IREE cannot compile '{spec.name}': {reason(log)}")
    sizes = {name: axis.default for name, axis in spec.axes.items()}
    notes = [f"machine code for {device}, for processors with all of {PROCESSORS[device][0]}"]
    notes += [f"all axes are fixed: {size_text(sizes)}"] if sizes else []
    return ExportResult(precision="fp32", entry=ENTRY, notes=tuple(notes))


def load(artifact: Path, place: Place) -> Runtime:
    """Load the artifact in IREE, in this process."""
    return IreeRuntime(artifact, ENTRY)


def compile_graph(graph: onnx.ModelProto, file: Path, device: str) -> list[str]:
    """Compile a graph of fixed sizes and return the lines that IREE printed. A failure leaves no file."""
    import onnx

    graph.graph.name = FUNCTION
    facts = {
        kind: {v.name: onnx.helper.tensor_dtype_to_np_dtype(v.type.tensor_type.elem_type).name for v in values}
        for kind, values in (("inputs", graph.graph.input), ("outputs", graph.graph.output))
    }
    with tempfile.TemporaryDirectory(prefix="edgekit-") as scratch:
        save_graph(graph, Path(scratch) / "model.onnx")
        module_path = Path(scratch) / ENTRY
        command = [sys.executable, "-P", convert.__file__, "model.onnx", ENTRY, json.dumps(facts)]
        ended = subprocess.run(
            [*command, *OPTIONS, *PROCESSORS[device][1]],
            cwd=scratch,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if ended.returncode == 0:
            file.write_bytes(module_path.read_bytes())
    return [line.strip() for line in (ended.stdout + ended.stderr).splitlines() if line.strip()]


def reason(lines: Sequence[str]) -> str:
    """Return the operator that IREE lacks, or its first error, or the last words of the calling process."""
    errors = [match[1] for line in lines if (match := ERROR.search(line))]
    for line in lines:
        if ERROR.search(line) and (operator := OPERATOR.search(line)):
            return f"it cannot lower the operator {operator[1]}"
    if not errors and any(CRASH in line for line in lines):
        return "its compiler crashed"
    last = errors[0] if errors else lines[-1] if lines else "its process died"
    return last[:LONGEST]


class IreeRuntime(IreeSession):
    """A `.vmfb` file: the entry of an artifact.

    Raises:
        NotVerifiedHere: If IREE is not installed, or the code is for another processor.
        ArtifactError: If IREE refuses the file, or its inputs and outputs differ from the manifest's.
    """

    def __init__(self, folder: Path, entry: str) -> None:
        self._manifest = read_artifact(folder)
        super().__init__(folder / entry)
        try:
            require_names(self._manifest, entry, self.inputs, self.outputs)
        except BaseException:
            self.close()
            raise

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Compute the answers to one batch."""
        return super().run(arguments(self._manifest, inputs))


TARGET = Target(
    summary="IREE machine code for x86-64, ARM or RISC-V, fp32, fixed sizes",
    about=TargetDescription(
        use_case="servers and boards that take machine code and no framework",
        proved_by="IREE on the CPU, code for x86-64; default sizes",
        not_covered="other sizes; ARM but for an emulated one, RISC-V, GPUs",
    ),
    source="onnx",
    export=export,
    load=load,
    places=(Place(name=CPU, tolerance=FP32_DELEGATED),),
    opt_in=True,
    runs_code=True,
    needs=(Need("iree.compiler", "iree"), Need("iree.runtime", "iree")),
    options=(DEVICE,),
)
