"""Effects of `torch.compile` on a module: graph breaks, recompilations, kernels, and where eager time goes."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import statistics
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgekit.artifact.profile import GraphBreak, Peaks, Recompilation, Share
from edgekit.model.adapter import to_tensors
from edgekit.model.spec import ModelSpec

if TYPE_CHECKING:
    import torch

RUNS = 5
"""Number of runs for each module's median."""
RECOMPILES = "torch._dynamo.guards.__recompiles"
GUARD = re.compile(r"^\s*- \d+/\d+: (?P<guard>.*)$", re.MULTILINE)
SAID_OF = {
    "## Call CompiledFxGraph": "Inductor's fused kernels",
    "TorchDynamo Cache Lookup": "Dynamo's guards",
    "Torch-Compiled Region": "Dynamo's call of the graph",
    "Pregraph bytecode": "Dynamo's bytecode",
}
"""Names for parts of a compiled run, by the beginning of their name in PyTorch's profiler."""
JUMP = "generic_jump"
BRANCH = "a branch of Python depends on a tensor's value"
"""Meaning of Dynamo's reasons that start with JUMP."""
SILENT = ("KINETO_LOG_LEVEL", "99")
"""Setting that keeps the profiler's library from writing to the terminal."""
WARNED_BY = "the guard itself is not due"
"""Beginning of PyTorch's own advice in a guard."""
MATRIX_EDGE = {"cpu": 1024, "cuda": 8192}
COPIED = {"cpu": 1 << 28, "cuda": 1 << 30}
"""Bytes of the copy that measures the memory's speed."""


def graph_breaks(spec: ModelSpec) -> tuple[tuple[GraphBreak, ...], str]:
    """Return where compiling cuts the module at its default sizes, and the error if PyTorch could not find out."""
    import torch

    with warnings.catch_warnings(action="ignore"):
        torch._dynamo.reset()
        try:
            explanation = torch._dynamo.explain(spec.module)(*to_tensors(spec, spec.random(seed=0)))
        # The user's module or Dynamo may raise anything.
        except Exception as error:
            return (), _first_line(error)
        finally:
            torch._dynamo.reset()
    breaks = []
    for cause in explanation.break_reasons:
        frame = cause.user_stack[-1] if cause.user_stack else None
        file, line, text = (frame.filename, frame.lineno or 0, frame.line or "") if frame is not None else ("", 0, "")
        why = _first_line(cause.reason)
        breaks.append(GraphBreak(file, line, text, BRANCH if why.startswith(JUMP) else why))
    return tuple(breaks), ""


def recompilations(spec: ModelSpec, sizes: Sequence[Mapping[str, int]]) -> tuple[Recompilation, ...]:
    """Return which of these sizes, run one after the other, recompile the module, and by which guard."""
    import torch

    compiled, messages = 0, _Messages()

    def backend(graph: torch.fx.GraphModule, example: list[torch.Tensor]) -> Any:
        nonlocal compiled
        compiled += 1
        return graph.forward

    reasons = []
    with warnings.catch_warnings(action="ignore"), messages.heard(), torch.no_grad():
        torch._dynamo.reset()
        module = torch.compile(spec.module, backend=backend)
        for number, size in enumerate(sizes):
            before, messages.texts = compiled, []
            try:
                module(*to_tensors(spec, spec.random(seed=number, sizes=dict(size))))
            # The user's module or Dynamo may raise anything.
            except Exception as error:
                reasons.append(Recompilation(dict(size), f"it fails: {_first_line(error)}"))
                break
            if number and compiled > before:
                reasons.append(Recompilation(dict(size), messages.guard))
        torch._dynamo.reset()
    return tuple(reasons)


def module_times(module: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> tuple[Share, ...]:
    """Return eager time of each module without its children, in milliseconds of one run, the most first."""
    import torch

    if isinstance(module, torch.jit.ScriptModule):
        # Its modules take no hooks.
        return ()
    cuda = any(tensor.is_cuda for tensor in inputs)
    lists = {name for name, submodule in module.named_modules() if isinstance(submodule, torch.nn.ModuleList)}
    names = {}
    for name, part in module.named_modules():
        # `*` replaces a number in a ModuleList: repeated blocks are one line.
        steps = name.split(".")
        steps = ["*" if ".".join(steps[:i]) in lists else step for i, step in enumerate(steps)]
        names[part] = ".".join(steps) or "(outermost)"
    whole: dict[str, list[float]] = {name: [] for name in names.values()}
    calls = dict.fromkeys(names.values(), 0)
    running: list[tuple[float, list[float]]] = []

    def now() -> float:
        if cuda:
            torch.cuda.synchronize()
        return time.perf_counter()

    def enter(submodule: torch.nn.Module, args: Any) -> None:
        running.append((now(), []))

    def leave(submodule: torch.nn.Module, args: Any, answer: Any) -> None:
        began, children = running.pop()
        took = now() - began
        if running:
            running[-1][1].append(took)
        whole[names[submodule]].append(took - sum(children))
        calls[names[submodule]] += 1

    hooks = [
        hook for name in names for hook in (name.register_forward_pre_hook(enter), name.register_forward_hook(leave))
    ]
    try:
        with torch.inference_mode():
            for run in range(RUNS + 1):
                # The first run warms up.
                if run == 1:
                    whole, calls = {name: [] for name in whole}, dict.fromkeys(calls, 0)
                module(*inputs)
    finally:
        for hook in hooks:
            hook.remove()
    times = [
        Share(name, 1000 * statistics.median(values) * calls[name] / RUNS, calls[name] // RUNS)
        for name, values in whole.items()
        if values
    ]
    return tuple(sorted(times, key=lambda entry: -entry.milliseconds))


def operator_times(call: Any, inputs: Sequence[torch.Tensor]) -> tuple[Share, ...]:
    """Return the time of each operator (on a GPU each kernel) in one run, in milliseconds, the most first."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    os.environ.setdefault(*SILENT)
    cuda = any(tensor.is_cuda for tensor in inputs)
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    with torch.inference_mode(), warnings.catch_warnings(action="ignore"):
        call(*inputs)
        with profile(activities=kinds) as profiler:
            for _ in range(RUNS):
                call(*inputs)
            if cuda:
                torch.cuda.synchronize()
    shares: dict[str, Share] = {}
    for event in profiler.key_averages():
        own = event.self_device_time_total if cuda else event.self_cpu_time_total
        on_device = str(event.device_type).endswith("CUDA")
        if own > 0 and on_device == cuda and not event.key.startswith(("cuda", "Activity Buffer")):
            name = next((label for start, label in SAID_OF.items() if event.key.startswith(start)), event.key)
            before = shares.get(name, Share(name, 0.0, 0))
            shares[name] = Share(name, before.milliseconds + own / 1000 / RUNS, before.calls + event.count // RUNS)
    return tuple(sorted(shares.values(), key=lambda share: -share.milliseconds))


def floating_point_work(module: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> int:
    """Return PyTorch's FLOP count of a run: matrix products, convolutions, attention (two per multiplication)."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(*inputs)
    return int(counter.get_total_flops())


def peaks(device: str) -> Peaks:
    """Measure this device's matrix and memory speed, for about a second."""
    import torch

    edge = MATRIX_EDGE[device]
    first, right = (torch.rand(edge, edge, device=device) for _ in range(2))
    source = torch.ones(COPIED[device], dtype=torch.uint8, device=device)
    sink = torch.empty_like(source)
    product = _best(device, lambda: torch.mm(first, right))
    copied = _best(device, lambda: sink.copy_(source))
    return Peaks(flops=2 * edge**3 / product, bandwidth=2 * COPIED[device] / copied)


def _best(device: str, call: Any) -> float:
    import torch

    times = []
    for _ in range(7):
        began = time.perf_counter()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return min(times[1:])


class _Messages(logging.Handler):
    """Dynamo's messages about recompilations."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())

    @property
    def guard(self) -> str:
        """The guard that failed last, in a line without PyTorch's advice."""
        guards = [match["guard"] for text in self.texts for match in GUARD.finditer(text)]
        if not guards:
            return ""
        condition, _, code = guards[0].partition("  # ")
        code = code.partition(WARNED_BY)[0].partition("  # ")[0].partition("(user code shown")[0].strip()
        return f"{condition.strip()}  ({code})" if code else condition.strip()

    @contextlib.contextmanager
    def heard(self) -> Iterator[None]:
        """Capture Dynamo's log of recompilations, and keep it off the terminal."""
        from torch._logging._internal import set_logs

        log = logging.getLogger(RECOMPILES)
        set_logs(recompiles=True)
        handlers, propagates = log.handlers, log.propagate
        log.handlers, log.propagate = [self], False
        try:
            yield
        finally:
            log.handlers, log.propagate = handlers, propagates
            set_logs()


def _first_line(error: object) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
