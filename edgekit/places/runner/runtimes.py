"""The runtimes of places: each opens a model with settings, answers, and says what it is."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]


class MissingError(Exception):
    """This host has not what the place needs."""


class Ort:
    """ONNX Runtime: the settings name a provider with its options, a graph optimisation level, sizes that are fixed."""

    def __init__(self, model: Path, settings: Mapping[str, str], sizes: Mapping[str, int]) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise MissingError(f"ONNX Runtime is not installed there ({error})") from error
        self.provider = settings.get("provider", "CPUExecutionProvider")
        if self.provider not in onnxruntime.get_available_providers():
            raise MissingError(f"its ONNX Runtime {onnxruntime.__version__} has no {self.provider}")
        self.on_gpu = self.provider == "CUDAExecutionProvider"
        if self.on_gpu and hasattr(onnxruntime, "preload_dlls"):
            onnxruntime.preload_dlls()
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        threads = int(settings.get("threads", "0"))
        options.intra_op_num_threads = threads
        level = "ORT_" + settings.get("optimization", "enable_all").upper()
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        options.add_session_config_entry("session.force_spinning_stop", "1")
        for name, size in sizes.items():
            options.add_free_dimension_override_by_name(name, size)
        own = {key.partition(".")[2]: value for key, value in settings.items() if key.startswith("provider.")}
        self._session = onnxruntime.InferenceSession(str(model), options, providers=[(self.provider, own)])
        if self._session.get_providers()[0] != self.provider:
            raise MissingError(f"{self.provider} could not start there: its libraries are missing or too old")
        self._names = [output.name for output in self._session.get_outputs()]
        words = [f"ONNX Runtime {onnxruntime.__version__}", self.provider]
        words += [f"{key} {value}" for key, value in sorted(own.items())]
        words += [level.removeprefix("ORT_").lower()] if level != "ORT_ENABLE_ALL" else []
        words += [] if self.on_gpu else [f"{threads or _processors()} threads"]
        self.device = ", ".join([*words, _gpu_name() if self.on_gpu else _processor()])

    def run(self, inputs: Arrays) -> Arrays:
        """Answer one batch."""
        return dict(zip(self._names, self._session.run(None, inputs), strict=True))

    def facts(self) -> dict[str, str]:
        """How many nodes each provider runs."""
        try:
            parts = self._session.get_provider_graph_assignment_info()
        except AttributeError:
            return {}
        counts: dict[str, int] = {}
        for part in parts:
            counts[part.ep_name] = counts.get(part.ep_name, 0) + len(part.get_nodes())
        return {f"nodes in {name}": str(count) for name, count in sorted(counts.items())}

    def bound(self, inputs: Arrays) -> Callable[[], Arrays]:
        """A run with inputs and outputs in the device's memory, as an application has it that knows its device."""
        import onnxruntime

        device = "cuda" if self.on_gpu else "cpu"
        binding = self._session.io_binding()
        kept = [onnxruntime.OrtValue.ortvalue_from_numpy(array, device, 0) for array in inputs.values()]
        for name, value in zip(inputs, kept, strict=True):
            binding.bind_ortvalue_input(name, value)
        answer = self.run(inputs)
        made = [onnxruntime.OrtValue.ortvalue_from_numpy(answer[name], device, 0) for name in self._names]
        for name, value in zip(self._names, made, strict=True):
            binding.bind_ortvalue_output(name, value)

        def run() -> Arrays:
            self._session.run_with_iobinding(binding)
            binding.synchronize_outputs()
            return {}

        self._bound = (kept, made)
        return run

    def bound_answer(self) -> Arrays:
        """What the last bound run left in the device's memory."""
        return {name: value.numpy() for name, value in zip(self._names, self._bound[1], strict=True)}


class OpenVino:
    """OpenVINO on its CPU plug-in; the settings are its properties."""

    def __init__(self, model: Path, settings: Mapping[str, str], sizes: Mapping[str, int]) -> None:
        try:
            import openvino
        except ImportError as error:
            raise MissingError(f"OpenVINO is not installed there ({error})") from error
        own = {key.partition(".")[2]: value for key, value in settings.items() if key.startswith("property.")}
        self._compiled = openvino.Core().compile_model(str(model), "CPU", own)
        self._request = self._compiled.create_infer_request()
        version = openvino.__version__.partition("-")[0]
        said = ", ".join(f"{key} {value}" for key, value in sorted(own.items()))
        self.device = f"OpenVINO {version}, CPU, {said}, {_processor()}"

    def run(self, inputs: Arrays) -> Arrays:
        """Answer one batch."""
        found = self._request.infer(inputs)
        return {output.any_name: np.array(found[output]) for output in self._compiled.outputs}

    def facts(self) -> dict[str, str]:
        """Nothing beside the device."""
        return {}


RUNTIMES: dict[str, Any] = {"onnxruntime": Ort, "openvino": OpenVino}


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model"))]
    return f"{named[0] if named else platform.processor() or 'unnamed processor'} ({platform.machine()})"


def _gpu_name() -> str:
    asked = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader", "--id=0"]
    try:
        said = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return "unnamed GPU"
    return said.strip().replace(", ", ", driver ")
