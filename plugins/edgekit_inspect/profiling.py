"""Speed of a model in each mode, the cost of compiling, and the number of runs after which it pays off.

Every mode is opened and run once, with PyTorch's compile cache empty: that is its first answer. Then all take turns, so
that a slow spell of the host affects them all. Break-even is the number of runs after which a mode's total time,
compiling included, is less than eager's.
"""

from __future__ import annotations

import copy
import json
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit import registry
from edgekit.artifact.profile import FILE, BatchProfile, ModeProfile, Profile, Share
from edgekit.artifact.store import contents, read_artifact
from edgekit.errors import EdgekitError, UsageError, reason
from edgekit.hosts.process import Progress
from edgekit.model.adapter import to_tensors
from edgekit.model.shapes import grid
from edgekit.model.spec import Array, Input, ModelSpec, Output
from edgekit.records import FP32
from edgekit.runtime.cuda_graph import capture_graph
from edgekit.runtime.ort import OrtRuntime
from edgekit.runtime.processor import threads
from edgekit.runtime.protocol import MultiModeRuntime, Runtime, SelfTimedRuntime
from edgekit.storage.files import write_text
from edgekit.target import Place, Target, silent
from edgekit_inspect import compilation

if TYPE_CHECKING:
    import torch

LISTED = 12
"""Number of modules and operators that are kept, the slowest first."""
SEED = 7
"""Seed of the inputs."""
ROUNDS = 10
"""Number of turns of each mode."""
SECONDS = 2.0
"""Minimum timed seconds of each mode."""
CLEAR_PEAK = "5"
"""Value that makes Linux reset a process's peak memory (proc(5), clear_refs)."""
CPU, CUDA = "cpu", "cuda"
EAGER = "eager"
COMPILED = "compiled"
"""Prefix of the names of `torch.compile`'s modes."""
COMPILER_MODES = ("default", "reduce-overhead", "max-autotune")
FOR_GPUS = "reduce-overhead"


@dataclass(frozen=True)
class Request:
    """The subject of a profile.

    Attributes:
        device: "cpu" or "cuda".
        batches: Batch sizes.
        modes: Their names; empty for all. Eager is always timed.
        rate: Runs per second, to express break-even as a time; 0 for none.
        seconds: Minimum timing of each mode.
        build: A build whose verified artifacts are timed too.
        trusted: True to run artifacts that contain code.
    """

    device: str = CPU
    batches: tuple[int, ...] = (1,)
    modes: tuple[str, ...] = ()
    rate: float = 0.0
    seconds: float = SECONDS
    build: Path | None = None
    trusted: bool = False


def profile(spec: ModelSpec, request: Request, progress: Progress = silent) -> Profile:
    """Profile a model on a device of this host.

    Raises:
        UsageError: If the device, batch size or mode is impossible.
    """
    _check(spec, request)
    # The compiler warns of its own deprecations and gives advice.
    with warnings.catch_warnings(action="ignore"):
        return _profile(spec, request, progress)


def part_of(spec: ModelSpec, path: str) -> ModelSpec:
    """Return one module of a model as a separate model, with random inputs of the shapes and ranges that it gets.

    Raises:
        UsageError: If the module does not exist, or its inputs or outputs are not tensors.
    """
    import torch

    modules = dict(spec.module.named_modules())
    if path not in modules or not path:
        near = ", ".join(name for name in modules if name and name.count(".") <= path.count("."))
        raise UsageError(f"'{spec.name}' has no module '{path}'. It has: {near}")
    caught: list[tuple[Any, ...]] = []
    if isinstance(spec.module, torch.jit.ScriptModule):
        raise UsageError(f"'{spec.name}' is TorchScript, whose modules take no hooks. Profile the whole model")

    def catch(submodule: torch.nn.Module, args: Any, kwargs: Any, answer: Any) -> None:
        caught.append((() if kwargs else args, answer))

    hook = modules[path].register_forward_hook(catch, with_kwargs=True)
    try:
        with torch.no_grad():
            spec.module(*to_tensors(spec, spec.random(seed=SEED)))
    finally:
        hook.remove()
    args, answer = caught[0] if caught else ((), ())
    answers = tuple(answer) if isinstance(answer, tuple | list) else (answer,)
    if not args or not all(isinstance(value, torch.Tensor) for value in (*args, *answers)):
        raise UsageError(f"'{path}' of '{spec.name}' does not take only positional tensors, or does not return tensors")
    inputs = {f"input_{number}": tensor.detach().cpu().numpy() for number, tensor in enumerate(args)}
    return ModelSpec(
        name=f"{spec.name}.{path}",
        module=modules[path],
        inputs=tuple(Input(n, tuple(a.shape), str(a.dtype), **_range(a)) for n, a in inputs.items()),
        outputs=tuple(Output(f"output_{number}") for number in range(len(answers))),
        axes={},
    )


def _range(array: Array) -> dict[str, Any]:
    """Return the smallest and largest value of an input, if it takes a range of numbers."""
    if array.dtype.kind not in "fiu" or not array.size or not np.isfinite(array).all():
        return {}
    low, high = array.min().item(), array.max().item()
    return {"low": low, "high": high} if low < high else {}


def advice(profile: Profile, rate: float) -> str:
    """Return a sentence that recommends a mode, for the first batch size."""
    rows = [row for row in profile.batches[0].modes if not row.error]
    eager = next(row for row in rows if row.mode == EAGER)
    best = min(rows, key=lambda row: row.p50)
    if best.mode == EAGER or best.p90 > eager.p50:
        return "Stay with eager: no other mode is faster by more than the spread of its runs."
    speed = f"Take '{best.mode}': {eager.p50 / best.p50:.2f} times as fast as eager"
    if best.break_even is None:
        return "Stay with eager: the mean run is as long in every other mode."
    if best.break_even == 0:
        return f"{speed}, from the first run."
    after = f"{speed}; it pays off after {best.break_even:,} runs"
    return f"{after}, which is {_duration(best.break_even / rate)} at {rate:g} a second." if rate > 0 else f"{after}."


def break_even(first: float, run: float, eager_first: float, eager_run: float) -> int | None:
    """Return the runs after which a mode's total time is less than eager's: 0 if from the first, None if never.

    Args:
        first: Milliseconds to its first answer.
        run: Milliseconds of each further run.
        eager_first: Milliseconds to eager's first answer.
        eager_run: Milliseconds of each further run of eager.
    """
    if first <= eager_first:
        return 0 if run <= eager_run else None
    return 2 + math.floor((first - eager_first) / (eager_run - run)) if run < eager_run else None


def time_modes(opened: Mapping[str, Runtime], inputs: Mapping[str, Array], seconds: float) -> dict[str, list[float]]:
    """Return milliseconds of each run; runtimes take ROUNDS turns each, every second round backwards."""
    # A turn starts with an uncounted run: threads of the previous runtime spin for a while after their work
    # (OpenMP's do), and would occupy a core.
    times: dict[str, list[float]] = {name: [] for name in opened}
    for number in range(ROUNDS):
        for name in [*opened][:: -1 if number % 2 else 1]:
            opened[name].run(inputs)
            end = time.perf_counter() + seconds / ROUNDS
            while True:
                began = time.perf_counter()
                opened[name].run(inputs)
                now = time.perf_counter()
                times[name].append(1000 * (now - began))
                if now >= end:
                    break
    return times


def _profile(spec: ModelSpec, request: Request, progress: Progress) -> Profile:
    progress(0.0, "looking for graph breaks and recompilations")
    breaks, unexplained = compilation.graph_breaks(spec)
    sizes = tuple(grid(spec.axes))
    anew = compilation.recompilations(spec, sizes) if not unexplained else ()
    peak = compilation.peaks(request.device)
    left_out: tuple[str, ...] = ()
    modes = [*torch_modes(spec, request.device)]
    if request.build is not None:
        artifacts, reasons = artifact_modes(request.build, request.device, request.trusted)
        modes, left_out = [*modes, *artifacts], tuple(reasons)
    modes_by_name = {mode.name: mode for mode in modes}
    if wrong := [name for name in request.modes if name not in modes_by_name]:
        raise UsageError(f"no mode '{wrong[0]}'. Possible: {'; '.join(modes_by_name)}")
    modes = [mode for name, mode in modes_by_name.items() if name in {EAGER, *(request.modes or modes_by_name)}]
    batches = []
    for number, batch in enumerate(request.batches):
        share = 0.1 + 0.8 * number / len(request.batches)
        batches.append(_batch(spec, request, batch, modes, lambda text, share=share: progress(share, text)))  # type: ignore[misc]  # bound now
    progress(0.9, "timing modules and operators")
    module, tensors = to_device(spec, request.device, _inputs(spec, request.batches[0]))
    compiled = any(mode.name.startswith(COMPILED) for mode in modes)
    profile = Profile(
        model=spec.name,
        device=request.device,
        peaks=peak,
        batches=tuple(batches),
        breaks=breaks,
        unexplained=unexplained,
        recompilations=anew,
        sizes=sizes,
        modules=compilation.module_times(module, tensors)[:LISTED],
        operators=compilation.operator_times(module, tensors)[:LISTED],
        kernels=_kernels(module, tensors) if compiled else (),
        left_out=left_out,
        artifacts=contents(request.build) if request.build is not None else {},
        advice="",
    )
    return replace(profile, advice=advice(profile, request.rate))


def _batch(
    spec: ModelSpec, request: Request, batch: int, modes: Sequence[Mode], tell: Callable[[str], None]
) -> BatchProfile:
    import torch
    from torch._inductor.utils import fresh_cache

    inputs = _inputs(spec, batch)
    torch._dynamo.reset()
    # Imports of the compiler do not count towards a model's first answer.
    with fresh_cache(), suppress(Exception):
        torch.compile(lambda x: x + 1, dynamic=False)(torch.zeros(1, device=request.device))
    rows: dict[str, ModeProfile] = {}
    opened: dict[str, Runtime] = {}
    with torch._dynamo.config.patch(recompile_limit=64):
        for mode in modes:
            tell(f"batch {batch}: opening {mode.name}{', which compiles' if mode.name.startswith(COMPILED) else ''}")
            with fresh_cache():
                rows[mode.name], runtime = _first(mode, inputs, request.device)
            if runtime is not None:
                opened[mode.name] = runtime
        if error := rows[EAGER].error:
            raise UsageError(f"'{spec.name}' itself fails at batch {batch}: {error}")
        tell(f"batch {batch}: timing {len(opened)} modes in turn")
        times = time_modes(opened, inputs, request.seconds)
        right = _answer(opened[EAGER], inputs)
        names = [output.name for output in spec.outputs if output.role != "features"]
        for name, runtime in opened.items():
            p10, p50, p90 = (float(share) for share in np.percentile(times[name], (10, 50, 90)))
            rows[name] = replace(
                rows[name],
                p10=p10,
                p50=p50,
                p90=p90,
                mean=float(np.mean(times[name])),
                max_abs=None if name == EAGER else furthest(_answer(runtime, inputs), right, names),
            )
            runtime.close()
    eager = rows[EAGER]
    whole = [
        row
        if row.error or row is eager
        else replace(row, break_even=break_even(row.first_ms, row.mean, eager.first_ms, eager.mean))
        for row in rows.values()
    ]
    module, tensors = to_device(spec, request.device, inputs)
    moved = sum(t.numel() * t.element_size() for t in (*module.parameters(), *tensors)) + sum(
        a.nbytes for a in right.values()
    )
    others = sorted((row for row in whole if row is not eager), key=lambda row: (bool(row.error), row.p50))
    work = compilation.floating_point_work(module, tensors)
    return BatchProfile(batch if "batch" in spec.axes else 0, work, moved, (eager, *others))


def _first(mode: Mode, inputs: Mapping[str, Array], device: str) -> tuple[ModeProfile, Runtime | None]:
    """Open a mode and run it once; return its time and memory, and the opened mode, or None if it does not run."""
    before = _memory(device, clear=True)
    began = time.perf_counter()
    try:
        runtime = mode.open(inputs)
        runtime.run(inputs)
    # Compilers and runtimes may raise anything.
    except Exception as error:
        return ModeProfile(mode.name, error=reason(error)), None
    took = time.perf_counter() - began
    after = _memory(device, clear=False)
    added = None if before is None or after is None else max(after - before, 0)
    return ModeProfile(mode.name, runtime.device, 1000 * took, memory=added), runtime


def _memory(device: str, clear: bool) -> int | None:
    """Return bytes: the current memory, with a reset of the peak; else the peak since then."""
    if device == CUDA:
        import torch

        if clear:
            torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated() if clear else torch.cuda.max_memory_allocated()
    word = "VmRSS:" if clear else "VmHWM:"
    with suppress(OSError, StopIteration):
        if clear:
            Path("/proc/self/clear_refs").write_text(CLEAR_PEAK)
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith(word)).split()[1])
    return None


def _answer(runtime: Runtime, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
    answer = runtime.run(inputs)
    return answer or getattr(runtime, "mode_answer", dict)()


def _kernels(module: Any, tensors: Sequence[Any]) -> tuple[Share, ...]:
    import torch

    # The modes already show why the module does not compile.
    with suppress(Exception):
        return compilation.operator_times(torch.compile(module, dynamic=False), tensors)[:LISTED]
    return ()


def _inputs(spec: ModelSpec, batch: int) -> dict[str, Array]:
    return spec.random(SEED, {"batch": batch} if "batch" in spec.axes else {})


def _check(spec: ModelSpec, request: Request) -> None:
    import torch

    from edgekit.model.sources import onnx

    if request.device not in (CPU, CUDA):
        raise UsageError(f"no device '{request.device}'. Possible: {CPU}, {CUDA}")
    if request.device == CUDA and not torch.cuda.is_available():
        raise UsageError("PyTorch finds no CUDA device on this host. Use --device cpu")
    if onnx.file_of(spec.module) is not None:
        raise UsageError(f"'{spec.name}' is an ONNX file without PyTorch code. Profile the original model")
    for name, number in (("seconds", request.seconds), ("rate", request.rate)):
        if not math.isfinite(number) or number < 0:
            raise UsageError(f"{name} {number}: give a number of 0 or more")
    if not request.batches:
        raise UsageError("no batch size. Name one or more")
    axis = spec.axes.get("batch")
    for batch in request.batches:
        if axis is None and batch != 1:
            raise UsageError(f"'{spec.name}' has no axis 'batch'. Leave out --batch")
        if batch < 1 or (axis is not None and (batch < axis.minimum or batch % axis.multiple_of)):
            raise UsageError(f"batch {batch} is not possible for '{spec.name}'")


def _duration(seconds: float) -> str:
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"


def write_profile(measured: Profile, folder: Path) -> tuple[Path, Path]:
    """Write `profile.json` and `profile.svg` into a folder."""
    from jinja2 import Environment, FileSystemLoader

    folder.mkdir(parents=True, exist_ok=True)
    jinja = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True)
    longest = max(row.p90 for batch in measured.batches for row in batch.modes if not row.error)
    svg = jinja.get_template("profile.svg.jinja").render(profile=measured, longest=longest) + "\n"
    data, plot = folder / FILE, folder / "profile.svg"
    write_text(data, json.dumps(measured.as_record(), indent=2) + "\n")
    write_text(plot, svg)
    return data, plot


@dataclass(frozen=True)
class Mode:
    """A mode: its name, and a function that opens it for one batch of inputs and does all but the first run."""

    name: str
    open: Callable[[Mapping[str, Array]], Runtime]


def torch_modes(spec: ModelSpec, device: str) -> Iterator[Mode]:
    """Yield PyTorch's own modes of a model's module, eager first; each on a copy of the module."""
    import torch

    yield Mode(EAGER, _opener(spec, device, lambda module: module))
    if device == CUDA:
        yield Mode("eager, TF32", _opener(spec, device, lambda module: module, tf32=True))
        yield Mode("CUDA graph", lambda inputs: GraphMode(spec, device, inputs, lambda module: module))
    for mode in COMPILER_MODES:
        if device == CUDA or mode != FOR_GPUS:
            name = COMPILED if mode == "default" else f"{COMPILED}, {mode}"
            yield Mode(name, _opener(spec, device, partial(torch.compile, mode=mode, dynamic=False)))


def _opener(
    spec: ModelSpec, device: str, make: Callable[[Any], Callable[..., Any]], tf32: bool = False
) -> Callable[[Mapping[str, Array]], Runtime]:
    return lambda inputs: TorchMode(spec, device, inputs, make, tf32)


def artifact_modes(build: Path, device: str, trusted: bool) -> tuple[list[Mode], list[str]]:
    """Return the modes of a build's verified artifacts for a device in this process, and why others are left out."""
    modes, skipped = [], []
    for folder in sorted(path for path in build.iterdir() if (path / "manifest.json").is_file()):
        try:
            manifest = read_artifact(folder)
            target = registry.find(manifest.target)
            registry.require(manifest.target, target)
            runtime = _runtime(target, folder, manifest.entry, device)
            if runtime is None or manifest.bundle.variants:
                continue
            statuses = {verdict.place: verdict.status for verdict in manifest.verdicts}
            if (status := statuses.get(_place(target, device).name, "not judged")) != "verified":
                skipped.append(f"{manifest.target}: {status}")
                continue
            registry.require_trust(manifest.target, target, trusted)
            modes.append(Mode(*runtime))
        except EdgekitError as error:
            skipped.append(f"{folder.name}: {error}")
    return modes, skipped


def _place(target: Target, device: str) -> Place:
    """Return the place of a target whose verdict counts on a device: on a GPU its own there, else its first."""
    return target.place_on(device) or target.places[0]


def _runtime(
    target: Target, folder: Path, entry: str, device: str
) -> tuple[str, Callable[[Mapping[str, Array]], Runtime]] | None:
    """Return an artifact's name and how to open it; None if it does not run on the device in this process."""
    place = _place(target, device)
    if device == CUDA:
        if place.settings.get("device") == CUDA:
            return folder.name, lambda inputs: BoundMode(target.load(folder, place), inputs)
        if entry.endswith(".onnx"):
            settings = FP32.settings
            return f"{folder.name}, ONNX Runtime", lambda inputs: BoundMode(
                OrtRuntime(folder / entry, settings), inputs
            )
        return None
    if not target.places[0].timed or target.places[0].settings.get("device") == CUDA:
        return None

    def open_mode(inputs: Mapping[str, Array]) -> Runtime:
        runtime = target.load(folder, target.places[0])
        if isinstance(runtime, SelfTimedRuntime):
            runtime.close()
            raise EdgekitError("it measures itself elsewhere")
        return runtime

    return folder.name, open_mode


class TorchMode:
    """A module on a device, with its inputs there: a run answers them and waits."""

    def __init__(
        self,
        spec: ModelSpec,
        device: str,
        inputs: Mapping[str, Array],
        make: Callable[[torch.nn.Module], Callable[..., Any]],
        tf32: bool = False,
    ) -> None:
        import torch

        torch.set_num_threads(threads())
        self._spec, self._place, self._tf32 = spec, device, tf32
        module, self._tensors = to_device(spec, device, inputs)
        self._call = make(module)
        self._answer: Any = ()

    @property
    def device(self) -> str:
        """Library, version and device, in words."""
        import torch

        where = torch.cuda.get_device_name() if self._place == CUDA else f"CPU, {threads()} threads"
        return f"PyTorch {torch.__version__}, {where}"

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run the inputs on the device."""
        import torch

        if self._place == CUDA:
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = self._tf32
        with torch.inference_mode():
            self._answer = self._call(*self._tensors)
        if self._place == CUDA:
            torch.cuda.synchronize()
        return {}

    def mode_answer(self) -> dict[str, Array]:
        """Return the last answer, on the CPU."""
        values = self._answer if isinstance(self._answer, tuple | list) else (self._answer,)
        return {o.name: v.detach().cpu().numpy() for o, v in zip(self._spec.outputs, values, strict=True)}

    def close(self) -> None:
        """Free the module's copy."""
        del self._call, self._tensors, self._answer


class GraphMode(TorchMode):
    """A module captured as a CUDA graph."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        # The module's weights must outlive the graph.
        self._module = self._call
        graph, answer = capture_graph(self._call, self._tensors)

        def replay(*_: torch.Tensor) -> Any:
            graph()
            return answer

        self._call = replay


class BoundMode:
    """An artifact on a GPU, with its inputs and outputs in the GPU's memory."""

    def __init__(self, runtime: Runtime, inputs: Mapping[str, Array]) -> None:
        self._runtime = runtime
        self.device = runtime.device
        ways = dict(runtime.modes(inputs)) if isinstance(runtime, MultiModeRuntime) else {}
        self._bound: Runtime | None = None
        # The last is the fastest: a CUDA graph if there is one.
        for way in reversed(ways.values()):
            try:
                self._bound = way()
                break
            except Exception:  # noqa: S112 - the next way is tried: not every graph can be captured
                continue
        if self._bound is None:
            raise EdgekitError("it cannot keep its inputs on the GPU")

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run the inputs on the device, and wait."""
        return self._bound.run(inputs) if self._bound is not None else {}

    def mode_answer(self) -> dict[str, Array]:
        """Return the last answer, on the CPU."""
        return self._runtime.mode_answer() if isinstance(self._runtime, MultiModeRuntime) else {}

    def close(self) -> None:
        """Free the artifact."""
        self._runtime.close()


def to_device(
    spec: ModelSpec, device: str, inputs: Mapping[str, Array]
) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """Return a model's module (on a GPU a copy of it) and its inputs on a device."""
    module = spec.module if device == CPU else copy.deepcopy(spec.module).to(device)
    return module, tuple(tensor.to(device) for tensor in to_tensors(spec, inputs))


def furthest(answer: Mapping[str, Array], right: Mapping[str, Array], outputs: Sequence[str]) -> float | None:
    """Return the largest absolute difference of the floating outputs in both; None without any."""
    pairs = [(answer[name], right[name]) for name in outputs if name in answer and name in right]
    floats = [(a, b) for a, b in pairs if a.shape == b.shape and b.dtype.kind == "f" and b.size]
    return max((float(np.abs(a.astype(np.float64) - b).max()) for a, b in floats), default=None)
