"""IREE in this process, on its CPU devices: a `.vmfb` file, machine code with its weights.

It needs numpy and IREE's runtime, and travels in packs. The names of inputs and outputs come from the description that
edgekit's compiling process left in the module. A file without it is refused.
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
from edgekit.runtime.processor import cpu_flags, processor, threads

if TYPE_CHECKING:
    from edgekit.model.spec import Array

CPU = "iree-cpu"
"""The name of this place."""
FUNCTION = "main"
KEY = "edgekit"
"""Of a module: its function, and the key in its reflection that holds the names of inputs and outputs."""
MACHINES = {"x86_64": ("x86_64", "AMD64"), "arm_64": ("aarch64", "arm64"), "riscv_64": ("riscv64",)}
"""A processor's name in IREE -> its name in systems."""
FORMAT = re.compile(rb"embedded-elf-(\w+?_64)")
X86_V3 = ("avx2", "bmi2", "f16c", "fma", "movbe")
"""Features of x86-64-v3, in Linux's names. A missing instruction would end the process."""
CODE = re.compile(r"^\S+\.[ch]:\d+: |^<vm>:\d+: ")


class IreeSession:
    """A module of one function.

    A damaged file can end the process, so the pipeline checks hashes first and runs this in a worker.

    Args:
        model: Path of the `.vmfb` file.
        settings: `threads` is the number of threads.

    Attributes:
        inputs: The inputs' dtypes by name, in the function's order.
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
            raise ArtifactError(f"'{model.name}' does not name its inputs and outputs. Export it again")
        facts = json.loads(function.reflection[KEY])
        self.inputs: dict[str, str] = facts["inputs"]
        self.outputs: dict[str, str] = facts["outputs"]
        # Check that this processor has the features that the code was compiled for.
        match = FORMAT.search(content)
        machine = match[1].decode() if match else "a processor that it does not name"
        if platform.machine() not in MACHINES.get(machine, ()):
            raise NotVerifiedHere(f"it is machine code for {machine}, and this host has {platform.machine()}")
        flags = cpu_flags()
        missing = [name for name in X86_V3 if flags is not None and name not in flags]
        if machine == "x86_64" and missing:
            raise NotVerifiedHere(f"it is machine code for x86-64-v3, and this processor lacks {', '.join(missing)}")
        try:
            # One thread alone waits for no other.
            if self._threads == 1:
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
        """Library, version, device and threads."""
        from importlib.metadata import version

        return f"IREE {version('iree-base-runtime')}, CPU, {self._threads} threads"

    @property
    def hardware(self) -> str:
        """The processor."""
        return processor()

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Compute the answers to one batch. They are copied, since IREE maps its own memory."""
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


def _why(error: Exception) -> str:
    """Return IREE's words without the place in its source."""
    words = reason(error).partition("; ")
    return words[2].strip("; ") or CODE.sub("", words[0])
