"""IREE in this process, on its CPU devices: a `.vmfb` file, machine code with its weights.

It needs numpy and IREE's runtime, and travels in packs. Inputs and outputs have names by what edgekit's compiling
process left in the module; without that a file is refused.
"""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgekit.errors import ArtifactError, NotVerifiedHere, RuntimeMissingError, reason
from edgekit.runtime.processor import processor, threads

if TYPE_CHECKING:
    from edgekit.model.spec import Array

CPU = "iree-cpu"
"""The name of this place."""
FUNCTION = "main"
KEY = "edgekit"
"""Of a module: what answers, and under what its reflection says what inputs and outputs are called."""
MACHINES = {"x86_64": ("x86_64", "AMD64"), "arm_64": ("aarch64", "arm64"), "riscv_64": ("riscv64",)}
"""A processor as IREE names it -> as systems do."""
FORMAT = re.compile(rb"embedded-elf-(\w+?_64)")
X86_V3 = ("avx2", "bmi2", "f16c", "fma", "movbe")
"""Of x86-64-v3, as Linux names what a processor has: a missing instruction would end the process."""
CODE = re.compile(r"^\S+\.[ch]:\d+: |^<vm>:\d+: ")


class IreeSession:
    """A module of one function.

    A damaged file can end the process: the pipeline checks hashes first and runs this in a worker.

    Args:
        model: Path of the `.vmfb` file.
        settings: `threads` is their number.

    Attributes:
        inputs: Their dtypes by name, in the function's order.
        outputs: Likewise.

    Raises:
        NotVerifiedHere: If IREE is not installed, or the code is for another processor.
        ArtifactError: If IREE refuses the file.
    """

    def __init__(self, model: Path, settings: Mapping[str, str] | None = None) -> None:
        try:
            import iree.runtime
        except ImportError as error:
            raise RuntimeMissingError(f"IREE is not installed ({error})") from error
        self._iree = iree.runtime
        self._threads = int((settings or {}).get("threads", "0")) or threads()
        content = model.read_bytes()
        try:
            instance = self._iree.VmInstance()
            module = self._iree.VmModule.copy_buffer(instance, content)
            function = module.lookup_function(FUNCTION)
        except Exception as error:
            raise ArtifactError(f"IREE refuses '{model.name}': {_why(error)}") from error
        if function is None or KEY not in function.reflection:
            raise ArtifactError(f"'{model.name}' does not say what its inputs and outputs are called: export again")
        facts = json.loads(function.reflection[KEY])
        self.inputs: dict[str, str] = facts["inputs"]
        self.outputs: dict[str, str] = facts["outputs"]
        # See that this processor has what the code was compiled for.
        match = FORMAT.search(content)
        machine = match[1].decode() if match else "a processor that it does not name"
        if platform.machine() not in MACHINES.get(machine, ()):
            raise NotVerifiedHere(f"it is machine code for {machine}, and this host has {platform.machine()}")
        if machine == "x86_64" and (missing := _missing()):
            raise NotVerifiedHere(f"it is machine code for x86-64-v3, and this processor has no {', '.join(missing)}")
        try:
            if self._threads == 1:  # one alone waits for no other
                driver = self._iree.get_driver("local-sync")
            else:
                self._iree.flags.parse_flags(f"--task_topology_group_count={self._threads}")
                driver = self._iree.get_driver("local-task")
            self._device = driver.create_default_device()
            hal = self._iree.create_hal_module(instance, self._device)
            self._context = self._iree.VmContext(instance, modules=[hal, module])
            self._function = self._iree.FunctionInvoker(self._context, self._device, function)
        except Exception as error:
            raise ArtifactError(f"IREE refuses '{model.name}': {_why(error)}") from error

    @property
    def device(self) -> str:
        """Library, version, device and threads, in words."""
        from importlib.metadata import version

        return f"IREE {version('iree-base-runtime')}, CPU, {self._threads} threads"

    @property
    def hardware(self) -> str:
        """The processor."""
        return processor()

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Answer one batch; the answer is copied, since IREE maps its own memory."""
        arrays = [np.asarray(inputs[name], dtype=dtype, order="C") for name, dtype in self.inputs.items()]
        try:
            values = self._function(*arrays)
            several = values if isinstance(values, tuple) else (values,)
            own = zip(self.outputs.items(), several, strict=True)
            return {name: np.array(value.to_host(), dtype=dtype) for (name, dtype), value in own}
        except Exception as error:
            raise ArtifactError(f"IREE failed: {_why(error)}") from error

    def close(self) -> None:
        """Free the module."""
        for name in ("_function", "_context", "_device"):
            self.__dict__.pop(name, None)


def _missing() -> list[str]:
    """What this x86 processor lacks of x86-64-v3; nothing where the system does not say."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []
    has = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), None)
    return [] if has is None else [name for name in X86_V3 if name not in has]


def _why(error: Exception) -> str:
    """IREE's words without the place in its source."""
    words = reason(error).partition("; ")
    return words[2].strip("; ") or CODE.sub("", words[0])
