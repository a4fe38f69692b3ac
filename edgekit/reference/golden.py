"""Golden vectors: a few rows with the reference's outputs by name, small enough to ship with an artifact.

Browsers and phones run them on the user's device as a self-test. The format (`golden.json`, `golden.bin`) is described
in web/README.md. The rows are the one that shows the usual faults of preprocessing most, the one whose outputs are
farthest from it and, for dynamic sizes, the first one at another width. Phones, whose libraries resize every picture,
also get a picture of another size, with outputs for each size that a model gives it.

A device passes if each output in the golden vectors has its shape and errors within its limits:

- max_abs, rms: for floats and counts, the largest and the root mean square difference; NaN fails.
- wrong: for other integers and booleans, the share of values that differ.
- lost_mass: for a ranking, the share of the best possible sum of its scores that the chosen places lack.

Limits are the verdict's for the artifact's precision, in units of the reference's spread over the evaluation set, and
at least `MARGIN` times the artifact's own errors here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from edgekit.artifact.manifest import Manifest
from edgekit.artifact.store import result_of
from edgekit.judge.limits import FP16, FP32, FP32_DELEGATED, INT8, Tolerance
from edgekit.model.image_input import from_planes, pixels_of, spec_in_planes, to_planes
from edgekit.model.spec import Array, Input, ModelSpec, Output
from edgekit.reference.batches import EVALUATION, PHOTOGRAPHS, STRESS, Batch
from edgekit.reference.pictures import in_size
from edgekit.reference.store import read_reference
from edgekit.storage.files import dump_json

FORMAT = 3
JSON, BINARY = "golden.json", "golden.bin"
# Rows to choose from.
CANDIDATES = 12
# Largest difference of a picture's value from a byte, in bytes.
EXACT = 1e-2
# Most values stored of an output; of a larger one every second, third ... value, from the first.
MOST = 65536
MARGIN = 2.0
# Limit on single values, in units of the spread: the verdict's limit on a row's error, as INT8 has no other.
LARGEST_INT8 = 0.3
# Limit on all values: a third of the verdict's, since the artifact's own errors here are known and widen it.
ERROR_INT8 = 0.1
# Score units. Ranks decide for INT8; a score with a larger error is broken, not quantized.
SCORE_INT8 = 2e-2
# Share: twice the limit of an artifact's verdict.
LOST_MASS = 0.02
# Limits by precision; "delegated" is fp32 with other kernels.
TOLERANCES: Mapping[str, Tolerance] = {
    "fp32": FP32, "delegated": FP32_DELEGATED, "fp16": FP16, "int8": INT8, "int4": INT8
}  # fmt: skip
# Rows come from the first of these batches that exists.
SOURCES = (EVALUATION, PHOTOGRAPHS, STRESS)
# Dtypes that golden.bin holds; other floats are held in float32, other integers in int64.
KEPT = ("float32", "int64", "int32", "int8", "uint8", "bool")
Answer = Callable[[Mapping[str, Array]], Mapping[str, Array]]
SizeOf = Callable[[tuple[int, int]], tuple[int, int]]
"""Height and width of a picture in pixels -> height and width after resizing."""
Limits = Mapping[str, Mapping[str, float]]
"""Output -> metric -> the largest value."""
# Usual faults of preprocessing: name -> a [1, 3, H, W] picture with that fault.
CHANNELS_REVERSED, TURNED = "channels in reverse order", "turned by 90 degrees"
FAULTS: Mapping[str, Callable[[Array, Input], Array]] = {
    CHANNELS_REVERSED: lambda image, _: image[:, ::-1],
    "bytes that were not scaled": lambda image, i: 255 * (image - i.low) / (i.high - i.low),
    "scaled to [-1, 1]": lambda image, i: 2 * (image - i.low) / (i.high - i.low) - 1,
    TURNED: lambda image, _: image.swapaxes(2, 3),
}
_WRONG = dict.fromkeys(("unequal", "wrong labels", "flips"), "wrong")
# Metric of a result -> its name in golden vectors; "error" is in units of the spread.
SHOWN = {"max abs": "max_abs", "error": "rms", "lost mass": "lost_mass", **_WRONG}


@dataclass(frozen=True)
class Case:
    """One row of the reference's inputs with its outputs.

    Attributes:
        name: Name of the row.
        image: [H, W, 3] uint8, RGB, usually of the model's size; None if no input is a picture of bytes.
        inputs: The other inputs by name, as the model takes them, with a batch of one.
        expected: The outputs by name, likewise.
        targets: The app's models that resize the picture to the size of `expected`; empty for all.
    """

    name: str
    image: Array | None
    inputs: Mapping[str, Array]
    expected: Mapping[str, Array]
    targets: tuple[str, ...] = ()

    def feed(self, spec: ModelSpec) -> dict[str, Array]:
        """Return the case as the model's inputs."""
        picture = _picture(spec)
        if self.image is None or picture is None:
            return dict(self.inputs)
        low, span = np.float32(picture.low), np.float32(picture.high - picture.low)
        scaled = low + span * (self.image.astype(np.float32) / np.float32(255))
        planes = np.ascontiguousarray(scaled.transpose(2, 0, 1)[None], np.float32)
        return from_planes(spec, {**self.inputs, picture.name: planes})


@dataclass(frozen=True)
class Golden:
    """The cases of a model, and the basis of their limits.

    Attributes:
        cases: The cases.
        spec: The model.
        spread: For each output of floats, the standard deviation of the reference's outputs over the evaluation set.
    """

    cases: tuple[Case, ...]
    spec: ModelSpec
    spread: Mapping[str, float]

    def limits(self, kind: str, measured: Limits) -> dict[str, dict[str, float]]:
        """Return a device's limits for each output.

        Args:
            kind: A key of `TOLERANCES`.
            measured: The artifact's errors here, in the same metrics.
        """
        least = {output.name: self._least(kind, output) for output in self._outputs}
        return {
            name: {
                m: float(f"{max(value, MARGIN * measured.get(name, {}).get(m, 0.0)):.3g}") for m, value in own.items()
            }
            for name, own in least.items()
        }

    def largest_errors(self, answer: Answer) -> dict[str, dict[str, float]]:
        """Return an artifact's largest errors on the cases, in the metrics of the limits; `answer` runs it."""
        metrics = {output.name: tuple(self._least("fp32", output)) for output in self._outputs}
        results = ((case, answer(case.feed(self.spec))) for case in self.cases)
        return _largest(
            {o: {m: self._error(m, case, o, answers) for m in own} for o, own in metrics.items()}
            for case, answers in results
        )

    def failures(self, answer: Answer, limits: Limits) -> tuple[str, ...]:
        """Return the reason of each failing case, in the words of browsers and phones; `answer` runs the artifact."""
        reasons = (self._failure(case, answer(case.feed(self.spec)), limits) for case in self.cases)
        return tuple(reason for reason in reasons if reason)

    def undetected_faults(self, answer: Answer, limits: Limits) -> tuple[str, ...]:
        """Return the faults of preprocessing that no case detects; empty if no case has a picture."""
        pictures = [case for case in self.cases if case.image is not None]

        def is_detected(fault: str) -> bool:
            return any(self._failure(case, answer(_faulty(fault, case, self.spec)), limits) for case in pictures)

        return tuple(name for name in _faults(self.spec) if pictures and not is_detected(name))

    def with_another_size(self, answer: Answer, sizes: Mapping[str, SizeOf]) -> Golden:
        """Add a picture for libraries that resize pictures: the first one's with mirrored borders.

        It is one case for each size that an artifact resizes it to. The reference has no outputs for these, so `answer`
        runs the picture in that size, resized by the input's rule and the filter that all libraries share
        (tests/golden/README.md). If the first case has no picture, the golden vectors are returned unchanged.

        Args:
            answer: Runs the model itself.
            sizes: By target, a function from a picture's size to its size there.
        """
        picture, case = _picture(self.spec), self.cases[0]
        if picture is None or case.image is None:
            return self
        height, width, _ = case.image.shape
        large = np.pad(case.image, ((0, max(height // 2, 1)), (0, max(width // 5, 1)), (0, 0)), "symmetric")
        targets: dict[tuple[int, int], list[str]] = {}
        for target, size_of in sizes.items():
            targets.setdefault(size_of(large.shape[:2]), []).append(target)
        others = []
        for size, names in targets.items():
            small = replace(case, image=in_size(large, *size, picture.fit))
            name = f"{case.name}, {large.shape[1]} x {large.shape[0]} pixels as {size[1]} x {size[0]}"
            expected = _golden_outputs(self.spec, answer(small.feed(self.spec)))
            others.append(replace(case, name=name, image=large, expected=expected, targets=tuple(names)))
        return replace(self, cases=(*self.cases, *others))

    @property
    def _outputs(self) -> list[Output]:
        return [output for output in self.spec.outputs if output.name in self.cases[0].expected]

    def _least(self, kind: str, output: Output) -> dict[str, float]:
        """Return the verdict's limits on one output."""
        tolerance = TOLERANCES[kind]
        score = tolerance.limit("max abs", "scores") or SCORE_INT8
        if output.role == "scores":
            return {"max_abs": score}
        # A count is its score times the range, rounded, so rounding adds at most 1.
        if output.role == "counts":
            return {"max_abs": 1 + score * (output.high - output.low)}
        if output.role == "ranking":
            return {"lost_mass": LOST_MASS}
        if output.name not in self.spread:
            return {"wrong": tolerance.limit("flips", "tensor") or 0.0}
        unit = self.spread[output.name]
        error = ERROR_INT8 if tolerance is INT8 else tolerance.limit("error", "tensor") or 0.0
        return {"max_abs": unit * (tolerance.limit("deviation", "tensor") or LARGEST_INT8), "rms": unit * error}

    def _error(self, metric: str, case: Case, output: str, answers: Mapping[str, Array]) -> float:
        expected, actual = case.expected[output], answers.get(output)
        if actual is None or actual.shape != expected.shape:
            return math.inf
        if metric == "lost_mass":
            of = next(tensor.of for tensor in self.spec.outputs if tensor.name == output)
            return _lost_mass(case.expected[of], expected, actual)
        return _error(metric, expected, actual)

    def _failure(self, case: Case, answers: Mapping[str, Array], limits: Limits) -> str:
        for output in case.expected:
            for metric, limit in limits[output].items():
                error = self._error(metric, case, output, answers)
                if not error <= limit:
                    return f"{metric} of the output '{output}' is {error:.2g} (limit {limit:.2g})"
        return ""


def choose_golden(spec: ModelSpec, path: Path, answer: Answer, dynamic: Collection[str] = ()) -> Golden:
    """Return a case of each kind; none if an input has a dtype that golden.bin does not hold.

    Without a picture of bytes, the first row replaces the one that shows faults of preprocessing most.

    Args:
        spec: The model.
        path: The reference folder.
        answer: Runs the verified fp32 artifact, or the model itself.
        dynamic: The axes that are dynamic in every artifact of these golden vectors.
    """
    batches = {batch.name: batch for batch in read_reference(path).batches}
    batch = next((batches[name] for name in SOURCES if name in batches), None)
    if batch is None or any(batch.inputs[i.name].dtype.name not in KEPT for i in spec.inputs):
        return Golden((), spec, {})
    runs = zip(range(min(CANDIDATES, len(batch.names))), batch.rows(), strict=False)
    cases = [_case(spec, batch, row, inputs, answer) for row, inputs in runs]
    cases = [case for case in cases if case.image is not None] or cases
    floats = {name: values for name, values in cases[0].expected.items() if values.dtype.kind == "f"}
    spread = {name: spread_of(batch.outputs.get(name, values)) for name, values in floats.items()}

    def weakest(case: Case) -> float:
        if case.image is None:
            return 0.0
        return min(difference(case.expected, answer(_faulty(fault, case, spec)), spread) for fault in _faults(spec))

    telling = max(cases, key=weakest)
    farthest = max(cases, key=lambda case: difference(telling.expected, case.expected, spread))
    wide = _of_another_width(telling, spec, answer, dynamic)
    selection = {case.name: case for case in (telling, farthest, *wide)}
    return Golden(tuple(selection.values()), spec, spread)


def write_golden(
    folder: Path, golden: Golden, limits: Mapping[str, Limits], more: Mapping[str, object] | None = None
) -> str:
    """Write golden.json and golden.bin; return the name of the former.

    Args:
        folder: The folder to write to.
        golden: The cases.
        limits: By variant, target or "delegated".
        more: Further fields of golden.json.
    """
    binary = bytearray()
    scored = {o.name: o.of for o in golden.spec.outputs if o.role == "ranking"}

    def part(array: Array, every: int = 1) -> dict[str, object]:
        subset = _select(array)
        where: dict[str, object] = {"offset": len(binary), "shape": list(subset.shape), "dtype": subset.dtype.name}
        binary.extend(np.ascontiguousarray(subset.ravel()[::every]).tobytes())
        binary.extend(b"\0" * (-len(binary) % 4))
        return {**where, "step": every}

    rows = [
        {
            "name": case.name,
            **({"targets": list(case.targets)} if case.targets else {}),
            "image": None if case.image is None else part(case.image),
            "inputs": {name: part(values) for name, values in case.inputs.items()},
            "expected": {
                name: {**part(values, step(values)), **({"of": scored[name]} if name in scored else {})}
                for name, values in case.expected.items()
            },
        }
        for case in golden.cases
    ]
    (folder / BINARY).write_bytes(bytes(binary))
    record = {"format": FORMAT, "binary": BINARY, "limits": limits, "cases": rows, **(more or {})}
    (folder / JSON).write_text(dump_json(record))
    return JSON


def pictures(spec: ModelSpec, path: Path, most: int) -> Iterator[Case]:
    """Yield the first evaluation rows with a picture of default size and of bytes, without outputs."""
    batch = next((b for b in read_reference(path).batches if b.name == EVALUATION), None)
    for row, inputs in zip(range(most), batch.rows() if batch is not None else (), strict=False):
        image, others = _split_picture(spec, inputs)
        if batch is not None and image is not None:
            yield Case(batch.names[row], image, others, {})


def difference(arrays: Mapping[str, Array], other: Mapping[str, Array], spread: Mapping[str, float]) -> float:
    """Return the distance of two outputs: the largest of floats in units of the spread, else the share of integers."""
    apart = 0.0
    for name, values in arrays.items():
        if name in other and values.shape == other[name].shape and (name in spread or not spread):
            metric = "rms" if name in spread else "wrong"
            apart = max(apart, _error(metric, values, other[name]) / spread.get(name, 1.0))
    return apart


def spread_of(values: Array) -> float:
    """Return the spread of the reference's outputs over the evaluation set; if all are equal, their size."""
    exact = values.astype(np.float64)
    spread = float(exact.std())
    return spread if spread > 0 else max(float(np.abs(exact).max(initial=0.0)), 1.0)


def step(values: Array) -> int:
    """Return the step between an output's stored values."""
    return max(-(-values.size // MOST), 1)


def _error(metric: str, expected: Array, array: Array) -> float:
    """Return the error of one output over the values that golden.bin holds."""
    a, b = (values.ravel()[:: step(values)] for values in (expected, array))
    if metric == "wrong":
        return float((a != b).mean()) if a.size else 0.0
    off = np.abs(a.astype(np.float64) - b.astype(np.float64))
    if not np.isfinite(off).all():
        return math.inf
    if metric == "rms":
        return float(np.sqrt((off**2).mean())) if off.size else 0.0
    return float(off.max(initial=0.0))


def _lost_mass(scores: Array, best: Array, array: Array) -> float:
    """Return the share of the best possible sum of scores that chosen places lack; scores [1, N], places [1, K]."""
    row = scores[0].astype(np.float64)

    def mass(places: Array) -> float:
        valid_indices = np.unique(places[(places >= 0) & (places < len(row))])
        return float(row[valid_indices].sum())

    possible = mass(best[0])
    return max(0.0, 1.0 - mass(array[0]) / possible) if possible > 0 else 0.0


def _largest(limits: Iterable[Limits]) -> dict[str, dict[str, float]]:
    """Return the largest of each output's errors in each metric."""
    largest: dict[str, dict[str, float]] = {}
    for case_limits in limits:
        for name, by_metric in case_limits.items():
            own = largest.setdefault(name, {})
            own |= {metric: max(own.get(metric, 0.0), value) for metric, value in by_metric.items()}
    return largest


def _case(spec: ModelSpec, batch: Batch, row: int, inputs: Mapping[str, Array], answer: Answer) -> Case:
    """Return a row with its recorded outputs; with those of `answer` if it is stored only in part."""
    image, others = _split_picture(spec, inputs)
    case = Case(batch.names[row], image, others, {})
    expected = _golden_outputs(spec, answer(case.feed(spec)))
    for name, array in expected.items():
        rows = batch.outputs.get(name, np.empty(0))
        if len(rows) == len(batch.names) and rows[row].size == array.size:
            expected[name] = rows[row].reshape(array.shape)
    return replace(case, expected=expected)


def _golden_outputs(spec: ModelSpec, answers: Mapping[str, Array]) -> dict[str, Array]:
    """Return the outputs in golden vectors: all but a ranking's features, whose rows change places with ties."""
    left_out = {output.name for output in spec.outputs if output.role == "features"}
    return {name: values for name, values in answers.items() if name not in left_out}


def _split_picture(spec: ModelSpec, inputs: Mapping[str, Array]) -> tuple[Array | None, dict[str, Array]]:
    """Return the picture of one run in bytes if it has the default size and consists of bytes, and the other inputs."""
    picture, image = _picture(spec), None
    if picture is not None and inputs[picture.name].shape == spec.shape(picture.name, {"batch": 1}):
        image = pixels_of(to_planes(spec, inputs)[picture.name][0], picture.low, picture.high, EXACT)
    return image, {n: values for n, values in inputs.items() if image is None or picture is None or n != picture.name}


def _of_another_width(case: Case, spec: ModelSpec, answer: Answer, dynamic: Collection[str]) -> Iterator[Case]:
    """Yield a case's picture, cropped to about half its width, or repeated if that is too narrow."""
    picture = _picture(spec)
    name = picture.shape[3] if picture is not None else 0
    if case.image is None or not isinstance(name, str) or name not in dynamic:
        return
    axis, multiple = spec.axes[name], spec.axes[name].multiple_of
    half = max(axis.default // 2 // multiple * multiple, -(-axis.minimum // multiple) * multiple)
    width = half if half < axis.default else axis.default + multiple
    if width > axis.maximum:
        return
    columns = np.arange(width) % axis.default
    cut = replace(case, name=f"{case.name}, {width} pixels wide", image=np.ascontiguousarray(case.image[:, columns]))
    yield replace(cut, expected=_golden_outputs(spec, answer(cut.feed(spec))))


def _faulty(fault: str, case: Case, spec: ModelSpec) -> dict[str, Array]:
    inputs, picture = case.feed(spec), _picture(spec)
    if picture is None:
        return inputs
    planes = to_planes(spec, inputs)
    planes[picture.name] = np.ascontiguousarray(FAULTS[fault](planes[picture.name], picture), np.float32)
    return from_planes(spec, planes)


def _faults(spec: ModelSpec) -> Iterable[str]:
    """Return the names of the faults that a caller can make: bytes have no other scale."""
    return FAULTS if not any(i.float_range for i in spec.inputs) else (CHANNELS_REVERSED, TURNED)


def _picture(spec: ModelSpec) -> Input | None:
    """Return the image input, in planes."""
    images = (i for i in spec_in_planes(spec).inputs if i.kind == "image")
    return next((i for i in images if i.dtype == "float32"), None)


def _select(array: Array) -> Array:
    if array.dtype.name in KEPT:
        return array
    return array.astype("<f4" if array.dtype.kind == "f" else "<i8")


def device_limits(golden: Golden, folder: Path, manifest: Manifest) -> Limits:
    """Return a device's limits for each output of an artifact."""
    # Phones and servers have other kernels than the host that verified the artifact.
    kernels = {"fp32": "delegated", "fp16": "fp16"}.get(manifest.precision, "int8")
    return golden.limits(kernels, _errors(folder, manifest, golden.spread))


def _errors(folder: Path, manifest: Manifest, spread: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Return an artifact's errors of each output on the evaluation set, as measured on this host."""
    result = result_of(folder, manifest)
    errors: dict[str, dict[str, float]] = {}
    for m in (m for place in (result.places if result is not None else ()) for m in place.measures):
        metric = SHOWN.get(m.metric)
        if m.batch == EVALUATION and metric is not None and m.value is not None:
            own = errors.setdefault(m.output, {})
            unit = spread.get(m.output, 1.0) if metric == "rms" else 1.0
            own[metric] = max(own.get(metric, 0.0), unit * m.value)
    for counts in (o for o in manifest.outputs if o.role == "counts" and o.of in errors):
        # INT8 is not measured by its largest difference in counts: a count is its score times the range, rounded.
        error = 1 + errors[counts.of].get("max_abs", 0.0) * (counts.high - counts.low)
        errors.setdefault(counts.name, {}).setdefault("max_abs", error)
    return errors
