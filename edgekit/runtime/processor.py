"""This host's processor: its name, and the number of threads of each measured runtime."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")


def processor() -> str:
    """Return the processor's name and architecture, for example `AMD EPYC (x86_64)`."""
    try:
        lines = CPUINFO.read_text().splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model"))]
    return f"{models[0] if models else platform.processor() or 'unnamed processor'} ({platform.machine()})"


def cpu_flags() -> list[str] | None:
    """Return the features of this x86 processor; None where the system does not list them."""
    try:
        lines = CPUINFO.read_text().splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), None)


def gpu_facts(*names: str) -> list[str]:
    """Return facts of the first NVIDIA GPU, in the words of `nvidia-smi`; empty if it does not answer."""
    command = ["nvidia-smi", f"--query-gpu={','.join(names)}", "--format=csv,noheader", "--id=0"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return answer.strip().split(", ")


VARIABLE = "EDGEKIT_THREADS"
# A phone's big cores; more would flatter a desktop.
MOST = 4


def threads() -> int:
    """Return EDGEKIT_THREADS if set, else the cores that this process may use, at most four."""
    if (count := os.environ.get(VARIABLE, "")).isdigit() and int(count) > 0:
        return int(count)
    return min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, MOST)


def int8_arithmetic() -> str:
    """Return the instruction set of this host's INT8; ARM's dot products and VNNI add in 32 bits."""
    if platform.machine().lower() in ("arm64", "aarch64"):
        return "ARM"
    if (flags := cpu_flags()) is None:
        return "unknown"
    names = {"amx_int8": "AMX", "avx512_vnni": "AVX-512 VNNI", "avx_vnni": "AVX VNNI"}
    return next((name for flag, name in names.items() if flag in flags), "x86 without VNNI")
