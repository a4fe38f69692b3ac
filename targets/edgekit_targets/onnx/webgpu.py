"""ONNX Runtime's WebGPU provider without a browser, over Vulkan, Metal or Direct3D 12, from `onnxruntime-ep-webgpu`.

This module needs numpy and ONNX Runtime, and is part of packs. It trusts the file.
"""

from __future__ import annotations

import ctypes
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.errors import NotVerifiedHere, RuntimeMissingError, reason
from edgekit.runtime.ort_session import OrtSession
from edgekit.runtime.processor import processor
from edgekit.runtime.protocol import Timings

if TYPE_CHECKING:
    from edgekit.model.spec import Array
    from edgekit.runtime.protocol import Runtime

PACKAGE, PROVIDER = "onnxruntime_ep_webgpu", "WebGpuExecutionProvider"
INSTALL = "pip install onnxruntime-ep-webgpu"
SOFTWARE = "ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER"
"""Environment variable of the provider: with 1, a host without a GPU has a device if Vulkan has a software one."""
_LIBRARY = "edgekit.webgpu"


class WebgpuRuntime(OrtSession):
    """An ONNX model in ONNX Runtime's WebGPU provider.

    Args:
        model: Path of the `.onnx` file.
        settings: As for `OrtSession`; names with the prefix "provider." are the provider's options.
        sizes: Sizes of named dimensions, if they are fixed.

    Raises:
        NotVerifiedHere: If the package, the Vulkan loader, a driver or a GPU is missing, or no node runs on the GPU.
        ArtifactError: If ONNX Runtime refuses the model.
    """

    memory = "webgpu"

    def __init__(
        self, model: Path, settings: Mapping[str, str] | None = None, sizes: Mapping[str, int] | None = None
    ) -> None:
        super().__init__(model, {**(settings or {}), "provider": PROVIDER}, sizes)
        if not any(part.ep_name == PROVIDER for part in self._session.get_provider_graph_assignment_info()):
            raise NotVerifiedHere(f"WebGPU runs no node of '{model.name}'")

    @property
    def device(self) -> str:
        """Library, version, provider with its options and adapter, in words."""
        return f"{super().device}, WebGPU {metadata.version('onnxruntime-ep-webgpu')} on {adapter()}"

    @property
    def hardware(self) -> str:
        """The processor, which computes what the GPU cannot."""
        return processor()

    def facts(self) -> dict[str, str]:
        """Return the operators that the CPU computes."""
        parts = self._session.get_provider_graph_assignment_info()
        others = Counter(node.op_type for part in parts if part.ep_name != PROVIDER for node in part.get_nodes())
        return {"nodes on the CPU": ", ".join(f"{count} {name}" for name, count in others.most_common()) or "none"}

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run one batch.

        Raises:
            NotVerifiedHere: If the adapter cannot compute in fp16.
        """
        try:
            return super().run(inputs)
        except Exception as error:
            if "requires f16" in str(error):
                raise NotVerifiedHere(f"{adapter()} cannot compute in fp16 on WebGPU") from error
            raise

    def modes(self, inputs: Mapping[str, Array]) -> Iterator[tuple[str, Callable[[], Runtime]]]:
        """Yield modes with bound buffers at the inputs' sizes: launched node by node, and as a captured graph."""
        yield "bound buffers", lambda: self._bind(self._at_sizes(inputs, {"enableInt64": "1"}), inputs)
        yield "captured graph", lambda: self._bind(self._at_sizes(inputs, {"enableGraphCapture": "1"}), inputs)

    def _require_provider(self, onnxruntime: Any) -> None:
        self._devices = webgpu_devices(onnxruntime)

    def _open(self, onnxruntime: Any, options: Any) -> Any:
        # The provider takes one device, and selects the adapter itself.
        options.add_provider_for_devices(self._devices[:1], self._provider_options)
        return onnxruntime.InferenceSession(str(self._model), options)

    @property
    def _on_gpu(self) -> bool:
        return True


class SoftwareWebgpu(WebgpuRuntime):
    """The same on an adapter in software, whose latency says nothing of a GPU."""

    def benchmark(self, inputs: Mapping[str, Array], seconds: float) -> Timings:
        """Return no runs."""
        return Timings(notes=(f"{adapter()} is software, so WebGPU is not timed here",))


def open_webgpu(model: Path, settings: Mapping[str, str] | None = None) -> WebgpuRuntime:
    """Open an ONNX file on this host's WebGPU adapter; arguments and errors as for `WebgpuRuntime`."""
    return (SoftwareWebgpu if is_software() else WebgpuRuntime)(model, settings)


def webgpu_devices(onnxruntime: Any) -> list[Any]:
    """Return the provider's devices of ONNX Runtime.

    Raises:
        NotVerifiedHere: If the package, the Vulkan loader, a driver or a GPU is missing.
    """
    if util.find_spec(PACKAGE) is None:
        raise RuntimeMissingError("onnxruntime-ep-webgpu is not installed")
    if sys.platform == "linux" and not vulkan_devices():
        raise NotVerifiedHere(
            "WebGPU needs the Vulkan loader (Debian: apt install libvulkan1) and a driver of the GPU, or of a software "
            "GPU (Debian: apt install mesa-vulkan-drivers); VK_DRIVER_FILES names a driver's file in another place"
        )
    import onnxruntime_ep_webgpu

    def registered() -> list[Any]:
        return [device for device in onnxruntime.get_ep_devices() if device.ep_name == PROVIDER]

    try:
        # It may be registered already.
        if not (devices := registered()):
            onnxruntime.register_execution_provider_library(_LIBRARY, onnxruntime_ep_webgpu.get_library_path())
            devices = registered()
    except Exception as error:
        raise NotVerifiedHere(f"the WebGPU provider cannot start here: {reason(error)}") from error
    if not devices:
        raise NotVerifiedHere(f"ONNX Runtime finds no GPU here. For a software one set {SOFTWARE}=1")
    return devices


@dataclass(frozen=True)
class VulkanDevice:
    """A device of Vulkan: its name with the driver's, and whether it is software."""

    name: str
    is_software: bool


class _Properties(ctypes.Structure):
    """The head of VkPhysicalDeviceProperties2 with VkPhysicalDeviceDriverProperties in its chain (Vulkan 1.2)."""

    _fields_ = (
        ("type", ctypes.c_int32),
        ("next", ctypes.c_void_p),
        ("versions", ctypes.c_uint32 * 4),
        ("kind", ctypes.c_int32),
        ("name", ctypes.c_char * 256),
        ("rest", ctypes.c_uint8 * 1024),
    )


class _Driver(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int32),
        ("next", ctypes.c_void_p),
        ("id", ctypes.c_int32),
        ("name", ctypes.c_char * 256),
        ("info", ctypes.c_char * 256),
        ("conformance", ctypes.c_uint8 * 4),
    )


class _Application(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int32),
        ("next", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("version", ctypes.c_uint32),
        ("engine", ctypes.c_char_p),
        ("engine_version", ctypes.c_uint32),
        ("api", ctypes.c_uint32),
    )


class _Create(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int32),
        ("next", ctypes.c_void_p),
        ("flags", ctypes.c_uint32),
        ("application", ctypes.POINTER(_Application)),
        ("names", ctypes.c_uint32 * 8),
    )


# Values of vulkan_core.h.
_VULKAN_1_2, _CPU_DEVICE = (1 << 22) | (2 << 12), 4
_PROPERTIES, _DRIVER = 1000059001, 1000196000


@lru_cache(maxsize=1)
def vulkan_devices() -> tuple[VulkanDevice, ...]:
    """Return the devices of the Vulkan loader; none without a loader or a driver."""
    try:
        vulkan = ctypes.CDLL("libvulkan.so.1")
    except OSError:
        return ()
    instance, count = ctypes.c_void_p(), ctypes.c_uint32()
    create = _Create(1, None, 0, ctypes.pointer(_Application(0, api=_VULKAN_1_2)))
    if vulkan.vkCreateInstance(ctypes.byref(create), None, ctypes.byref(instance)):
        return ()
    vulkan.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), None)
    handles = (ctypes.c_void_p * count.value)()
    vulkan.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), handles)
    devices = []
    for handle in handles:
        driver = _Driver(_DRIVER)
        properties = _Properties(_PROPERTIES, ctypes.addressof(driver))
        vulkan.vkGetPhysicalDeviceProperties2(ctypes.c_void_p(handle), ctypes.byref(properties))
        words = [properties.name.decode(), f"driver {driver.name.decode()} {driver.info.decode()}".strip()]
        devices.append(VulkanDevice(", ".join(words), properties.kind == _CPU_DEVICE))
    vulkan.vkDestroyInstance(instance, None)
    return tuple(devices)


def is_software() -> bool:
    """Return whether Vulkan has software devices only."""
    return bool(vulkan_devices()) and all(device.is_software for device in vulkan_devices())


def adapter() -> str:
    """Return the names of the devices among which the provider selects its adapter, each with its driver."""
    names = [device.name for device in vulkan_devices() if not device.is_software or is_software()]
    return " or ".join(dict.fromkeys(names)) or {"darwin": "Metal", "win32": "Direct3D 12"}.get(sys.platform, "a GPU")


def status() -> str:
    """Return the place's state for `edgekit doctor`."""
    if util.find_spec(PACKAGE) is None:
        return f"needs {PACKAGE}: {INSTALL}"
    import onnxruntime

    try:
        webgpu_devices(onnxruntime)
    except NotVerifiedHere as missing:
        return str(missing)
    return f"ready: {adapter()}" + ", in software, not timed" * is_software()
