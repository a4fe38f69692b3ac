"""Quality of a quantized graph against the fp32 graph, on samples that its ranges were not made from.

An INT8 file's outputs differ between exact sums and saturating pairs of products: `compare_processors`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgekit.artifact.fact import Code
from edgekit.judge import metrics, verdict
from edgekit.judge.deviation import spreads
from edgekit.judge.limits import CHANGED, INT8, TASK_DROP, TASK_DROP_WORST, Tolerance, kind_at_sizes
from edgekit.judge.verdict import score_tolerance
from edgekit.model.onnx_write import write_graph
from edgekit.model.spec import Array, ModelSpec
from edgekit.reference.batches import EVALUATION, Batch
from edgekit.reference.record import run_batches
from edgekit.runtime import ort
from edgekit_targets.onnx.passes import weight_only
from edgekit_targets.onnx.quantization.calibration import Samples

if TYPE_CHECKING:
    import onnx

    from edgekit.runtime.protocol import Runtime

STRICTER = 0.7
"""Share of the gate's limits that is used here: the final decision is made on other images."""
COMPARED_IMAGES = 4
"""Number of images for the comparison of processors: each takes half a second in the emulation."""
NOISELESS = 200.0
"""dB that represent no difference at all."""


@dataclass(frozen=True)
class Quality:
    """The loss of a graph.

    Attributes:
        passed: True if every limit of the INT8 gate holds with a margin: made stricter by STRICTER on every sample, and
            unchanged on the gate's inputs other than photographs.
        snr_db: Signal-to-noise ratio of the first float output over all samples.
        worst: Worst sample's value by metric: "spearman", "cosine" and "lost mass"; of "task drop" the mean.
        reasons: Sentences on the broken limits.
        broken: Sentences on the broken limits of the gate itself, on the samples held back.
    """

    passed: bool
    snr_db: float
    worst: Mapping[str, float]
    reasons: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()


class Evaluator:
    """Judges graphs on the same samples.

    Args:
        spec: The model.
        graph: The fp32 graph, which is the truth here.
        samples: Held back from calibration.
        folder: Folder for candidates.
        extra: Further inputs of the gate: extreme ones, which may exceed ranges made from photographs, and shapes.
        are_real: False if the samples are random: the gate's limits for changed inputs hold for them.
        settings: Entries of ONNX Runtime's session configuration.
        tolerance: Limits; default: `stricter(INT8)`.
    """

    def __init__(
        self,
        spec: ModelSpec,
        graph: onnx.ModelProto,
        samples: Samples,
        folder: Path,
        extra: tuple[Batch, ...] = (),
        settings: Mapping[str, str] | None = None,
        tolerance: Tolerance | None = None,
        are_real: bool = True,
    ) -> None:
        self._spec, self._samples, self._folder, self._settings = spec, samples, folder, settings
        self._are_real = are_real
        tolerance = stricter(INT8) if tolerance is None else tolerance
        self._tolerance = tolerance if are_real and samples.truth is not None else without_task(tolerance)
        self._asked = (Batch(EVALUATION, samples.inputs, {}, {}, samples.names, shapes=samples.shapes), *extra)
        self._truth = self._answers(self.open_graph(graph, "fp32"), self._asked)
        self._scales = spreads(spec.outputs, self._truth[:1], {})

    def open_graph(self, graph: onnx.ModelProto, name: str) -> Runtime:
        """Open a graph in ONNX Runtime."""
        path = self._folder / f"{name}.onnx"
        write_graph(graph, path)
        return ort.OrtRuntime(path, self._settings)

    def judge(self, graph: onnx.ModelProto) -> Quality:
        """Run all samples through a graph and compare."""
        return self.judge_runtime(self.open_graph(graph, "candidate"))

    def judge_runtime(self, runtime: Runtime) -> Quality:
        """Run all samples through a candidate of any format, in its own runtime, and compare; close the runtime."""
        answers = self._answers(runtime, self._asked)
        scores = score_tolerance(INT8, 0.0)
        comparison, *more = (
            replace(
                metrics.compare(
                    self._spec.outputs,
                    right,
                    got,
                    batch.names,
                    score_tolerance=scores,
                    scales=self._scales,
                    metric=self._samples.metric,
                    # Only the first batch has truth.
                    truth=self._samples.truth if batch.name == EVALUATION else None,
                ),
                kind=kind_at_sizes(self._spec, batch.sizes) if self._are_real and batch.sizes else None,
            )
            for batch, right, got in zip(self._asked, self._truth, answers, strict=True)
        )
        others = list(zip(self._asked[1:], more, strict=True))
        result = verdict.judge(
            self._tolerance,
            {},
            evaluation=[comparison] if self._are_real else [],
            stress=[comparison for batch, comparison in others if not batch.sizes],
            grid=[(batch.sizes, comparison) for batch, comparison in others if batch.sizes],
            more={} if self._are_real else {CHANGED: [comparison]},
        )
        tolerance = INT8 if comparison.task is not None else without_task(INT8)
        gate = verdict.judge(tolerance, {}, evaluation=[comparison])
        return Quality(
            passed=result.status != "rejected"
            and all(r.code not in (Code.TOO_FEW_ROWS, Code.TOO_FEW_FOR_MEAN) for r in result.reasons),
            snr_db=_snr(
                self._truth[0],
                answers[0],
                next((o.name for o in self._spec.outputs if np.dtype(o.dtype).kind == "f"), self._spec.outputs[0].name),
            ),
            worst=_worst(comparison),
            reasons=tuple(str(reason) for reason in result.reasons),
            broken=tuple(str(reason) for reason in gate.reasons if gate.status == "rejected"),
        )

    def snr(self, runtime: Runtime) -> float:
        """Return the least signal-to-noise ratio in dB of any float output on the samples; close the runtime."""
        answers = self._answers(runtime, self._asked[:1])[0]
        floats = [o.name for o in self._spec.outputs if np.dtype(o.dtype).kind == "f"]
        return min((_snr(self._truth[0], answers, name) for name in floats), default=NOISELESS)

    @property
    def sample(self) -> dict[str, Array]:
        """One sample, for timing."""
        return self._samples.batches(1)[0]

    def _answers(self, runtime: Runtime, batches: tuple[Batch, ...]) -> list[Mapping[str, Array]]:
        """Return the answers, one sample per run, as for the reference."""
        answers, _ = run_batches(runtime, self._spec.outputs, batches)
        runtime.close()
        return [batch.outputs for batch in answers]


def without_task(tolerance: Tolerance) -> Tolerance:
    """Return the same limits without those on the task metric, of samples without truth."""
    return tolerance.without(TASK_DROP, TASK_DROP_WORST)


def stricter(tolerance: Tolerance) -> Tolerance:
    """Return the same limits with STRICTER of their room, those on the task metric unchanged."""

    def room(limit: float) -> float:
        return 1.0 - (1.0 - limit) * STRICTER

    ranks = tolerance.with_limit("spearman", "scores", room).with_limit("cosine", "scores", room)
    return ranks.with_limit("lost mass", "ranking", lambda limit: limit * STRICTER)


def strictest(tolerance: Tolerance) -> Tolerance:
    """Return `stricter` limits that also cover errors in all outputs.

    For a choice among few candidates: an artifact whose error was a fifth below the gate's limit here broke it
    on other inputs, and so did one whose worst channel was just within its limit.
    """
    tolerance = stricter(tolerance)
    for metric in ("error", "channel error", "gain", "channel gain", "offset", "channel offset"):
        tolerance = tolerance.with_limit(metric, "tensor", lambda limit: STRICTER * limit)
    return tolerance


def _snr(truth: Mapping[str, Array], answers: Mapping[str, Array], output: str) -> float:
    right, got = truth[output].astype(np.float64), answers[output].astype(np.float64)
    noise = float(((right - got) ** 2).sum())
    return NOISELESS if noise == 0 else float(10.0 * np.log10(max(float((right**2).sum()), 1e-30) / noise))


def _worst(comparison: metrics.Comparison) -> dict[str, float]:
    worst: dict[str, float] = {}
    for measure in comparison.measures:
        if measure.metric in ("spearman", "lost mass", "cosine") and len(measure.values):
            value = float(measure.values.max() if measure.metric == "lost mass" else measure.values.min())
            previous = worst.get(measure.metric, value)
            worst[measure.metric] = max(previous, value) if measure.metric == "lost mass" else min(previous, value)
    if comparison.task is not None:
        worst[TASK_DROP] = float((comparison.task[0] - comparison.task[1]).mean())
    return worst


@dataclass(frozen=True)
class ProcessorComparison:
    """The quality of one graph, twice.

    Attributes:
        exact: With exact sums, as with VNNI.
        saturating: With saturating pairs of products, as on x86 without VNNI.
        convolutions: Number of INT8 convolutions of the graph, which are not emulated.
    """

    exact: Quality
    saturating: Quality
    convolutions: int = 0

    def sentence(self, advice: str) -> str:
        """Return a sentence on the difference, with the advice if it matters."""
        lost = max(self.exact.snr_db - self.saturating.snr_db, 0.0)
        how = f"emulated, except its {self.convolutions} INT8 convolutions" if self.convolutions else "emulated"
        text = f"on x86 without VNNI the noise is {lost:.1f} dB higher than with it ({how})"
        if self.exact.passed and not self.saturating.passed:
            return f"{text}, more than the limits for INT8 allow: {advice}"
        return text


def compare_processors(
    spec: ModelSpec, graph: onnx.ModelProto, quantized: onnx.ModelProto, samples: Samples
) -> ProcessorComparison:
    """Judge a quantized graph against its fp32 graph on the last few of some samples, both ways."""
    with tempfile.TemporaryDirectory(prefix="edgekit-") as folder:
        evaluator = Evaluator(
            spec, graph, samples.part(-COMPARED_IMAGES, None), Path(folder), settings=weight_only.EXACT
        )
        quantized = weight_only.unshare_constants(quantized)
        saturating = evaluator.judge(weight_only.emulate_without_vnni(quantized))
        return ProcessorComparison(evaluator.judge(quantized), saturating, weight_only.convolutions(quantized))
