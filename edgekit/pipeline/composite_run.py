"""Models of several graphs, called by the user's own loop: first with the modules, then with artifacts.

Each component has its own build. The composite model is judged by the outputs of its loop on the user's inputs, with
the components of one target in place of the modules.
"""

from __future__ import annotations

import contextlib
import math
import signal
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from edgekit import doors, registry
from edgekit.artifact.fact import EVALUATION, Code, fact
from edgekit.artifact.manifest import AxisInfo, Manifest, TensorInfo
from edgekit.artifact.result import EvaluationResult, Evidence, Result
from edgekit.artifact.run_record import (
    HUB,
    PARTS,
    PartRecord,
    PartsRecord,
    WholeRecord,
    check_hub,
    read_parts,
    write_parts,
)
from edgekit.artifact.store import read_artifact
from edgekit.errors import ArtifactError, EdgekitError, HostError, ModelError, NotVerifiedHere, UsageError, suggestion
from edgekit.judge import metrics, verdict
from edgekit.judge.deviation import spreads
from edgekit.judge.metrics import Comparison
from edgekit.model.capture_errors import line_of, sentence
from edgekit.model.contract import check_spec
from edgekit.model.evaluation_set import BATCH, COUNT, rows_in, stack_runs
from edgekit.model.folder import CHANGED, code_digest, code_of
from edgekit.model.overrides import NOTHING, SpecOverrides, words_of
from edgekit.model.parts import Component, CompositeModel, Session
from edgekit.model.sources import resolve_model
from edgekit.model.sources.module import range_in, spec_of_module
from edgekit.model.spec import Array, EvaluationSet, Input, ModelSpec, Output
from edgekit.pipeline.loaded import LoadedArtifact, check_arrays, load
from edgekit.pipeline.outcome import ENDED, Build, TargetOutcome
from edgekit.pipeline.plan import made_in_memory
from edgekit.reference.dataset import EvaluationSets, distinct, split
from edgekit.reference.record import host
from edgekit.runtime.eager import EagerRuntime
from edgekit.storage.files import digest_text
from edgekit.storage.host_errors import as_sentences
from edgekit.target import Place, Target

Answer = dict[str, Array]
DRIVEN_BY = "its parts are judged by answers of the code of then, and the whole was driven by that of today"


@as_sentences()
def export(
    parts: CompositeModel,
    selection: tuple[str, ...],
    root: Path,
    export_part: Callable[[str, ModelSpec, tuple[str, ...]], Build],
    factory: str = "",
) -> Build:
    """Export a model's parts, judge each, and judge the whole model.

    Args:
        parts: The model.
        selection: Names and groups of targets; empty selects those that every part supports.
        root: Its build folder.
        export_part: Exports a part by its name for some targets into the build folder of that name.
        factory: Name of the factory that rebuilds the model, or empty.

    Raises:
        EdgekitError: If something concerns all targets: the driver, a part, an unknown target or option.
    """
    targets, _ = registry.loadable()
    composite_run = run_composite(parts)
    names = selection or made_in_memory(targets, composite_run.specs.values())
    builds = {name: export_part(name, spec, names) for name, spec in composite_run.specs.items()}
    shared = [name for name in next(iter(builds.values())) if all(name in build for build in builds.values())]
    outcomes = tuple(_outcome(parts, composite_run, builds, name, targets[name], root) for name in shared)
    build = Build(outcomes, root, composite_run.device, parts=builds)
    before = _earlier(root)
    results = {outcome.target: _of_target(outcome, builds) for outcome in outcomes}
    valid = (
        {name: target for name, target in before.targets.items() if _holds(root, target, composite_run)}
        if before
        else {}
    )
    record = _record(parts, composite_run, factory, valid | results)
    hub = {}
    if parts.files:
        verified = {name: target for name, target in record.targets.items() if target.status == "verified"}
        hub = doors.hook("write_hub")(
            parts, root, verified, before.hub if before else (), partial(_holds_with, parts, composite_run, root)
        )
    write_parts(root, record.model_copy(update={HUB: hub}))
    return build


@as_sentences()
def verify(
    root: Path,
    only: Collection[str],
    verify_part: Callable[[Path], Build],
    signed: bool = False,
    again: Callable[[str], CompositeModel] | None = None,
) -> Build:
    """Check the files of a composite build, judge each part again, and run the driver again if its factory may run.

    Otherwise the recorded result of the whole is kept, as long as the artifacts are the same.

    Args:
        root: The whole's build folder.
        only: Targets; empty selects all in the build.
        verify_part: Judges a part's build folder again.
        signed: True if each part must be signed; this does not cover the whole's own files.
        again: Rebuilds the model from its factory's name; None if the build's code may not run.

    Raises:
        EdgekitError: If a record, a part's build or a file of the hub's folder is missing or damaged, or the factory
            fails or returns other parts.
    """
    record = read_parts(root)
    check_hub(root, record)
    builds = {name: verify_part(root / part.folder) for name, part in record.parts.items()}
    names = [name for name in record.targets if all(name in build for build in builds.values())]
    if lacking := [name for name in only if name in registry.available() and name not in names]:
        raise ArtifactError(f"'{root / PARTS}' has no result of the whole for '{lacking[0]}'. Export again")
    results = {
        name: _again(root, record.targets[name], {p: build[name] for p, build in builds.items()}) for name in names
    }
    outcomes, note = tuple(results.values()), ""
    if again is not None and record.factory:
        outcomes, note = _run_again(root, record, builds, results, again(record.factory))
    unsigned = (PARTS, *([HUB] if record.hub else [])) if signed else ()
    return Build(outcomes, root, next(iter(builds.values())).reference, unsigned, parts=builds, note=note)


def _run_again(
    root: Path,
    record: PartsRecord,
    builds: Mapping[str, Build],
    target_outcomes: Mapping[str, TargetOutcome],
    whole: CompositeModel,
) -> tuple[tuple[TargetOutcome, ...], str]:
    """Run the driver with the artifacts again and record it; return outcomes and a note if the code changed."""
    parts = replace(whole, name=record.name)
    if parts.parts.keys() != record.parts.keys():
        raise ArtifactError(f"'{record.factory}' returns other parts than '{root / PARTS}' names. Export again")
    composite_run, targets = run_composite(parts), registry.loadable()[0]
    outcomes = tuple(
        part_outcome
        if part_outcome.bad and part_outcome.result is None
        else _outcome(parts, composite_run, builds, name, targets[name], root)
        for name, part_outcome in target_outcomes.items()
    )
    again = {outcome.target: _of_target(outcome, builds) for outcome in outcomes}
    write_parts(root, record.model_copy(update={"targets": record.targets | again}))
    alike = record.code_sha256 == _code(parts, composite_run, record.factory)
    return outcomes, "" if alike else CHANGED.format(factory=record.factory, what=DRIVEN_BY)


def _again(root: Path, whole_record: WholeRecord, each: Mapping[str, TargetOutcome]) -> TargetOutcome:
    """Return the recorded result of the whole if its parts are the same artifacts and are verified again."""
    if bad := _bad_part(whole_record.target, root, each):
        return bad
    for part, outcome in each.items():
        sha256 = outcome.manifest.sha256 if outcome.manifest is not None else ""
        if sha256 != whole_record.artifacts.get(part):
            why = f"part '{part}' is not the artifact that the whole was judged with. Export again"
            return TargetOutcome(whole_record.target, root, "failed", why)
    if whole_record.result is None or whole_record.result.status != whole_record.status:
        return TargetOutcome(whole_record.target, root, "failed", "the whole was not judged. Export again")
    return TargetOutcome(whole_record.target, root, whole_record.status, result=whole_record.result, reused=True)


def _earlier(root: Path) -> PartsRecord | None:
    """Return the parts.json of an earlier run; None if it is missing or damaged."""
    with contextlib.suppress(ArtifactError):
        return read_parts(root)
    return None


def _holds(root: Path, whole_record: WholeRecord, composite_run: CompositeRun) -> bool:
    """Return whether a recorded result still fits the artifacts, the parts and the reference outputs."""
    try:
        digests = {part: read_artifact(root / part / whole_record.target).sha256 for part in whole_record.artifacts}
    except EdgekitError:
        return False
    alike = digests == whole_record.artifacts and digests.keys() == composite_run.specs.keys()
    return (
        alike
        and whole_record.result is not None
        and whole_record.result.reference_sha256 == _digest(composite_run.answers)
    )


def _holds_with(
    parts: CompositeModel, composite_run: CompositeRun, root: Path, target: str, others: Mapping[str, Session]
) -> bool:
    """Return whether the whole is verified with other sessions for some parts."""
    folders = {part: root / part / target for part in parts.parts if part not in others}
    with contextlib.ExitStack() as stack:
        rest = {part: stack.enter_context(load(folder, trust_build=True)) for part, folder in folders.items()}
        answers = [run_driver(parts, {**rest, **others}, model_input) for model_input in parts.inputs]
    deciding = _deciding(read_artifact(root / part / target) for part in parts.parts)
    tolerance = registry.find(target).places[0].tolerance_of(deciding)
    return verdict.judge(tolerance, {}, evaluation=_compare(composite_run, answers)).status == "verified"


def _outcome(
    parts: CompositeModel,
    composite_run: CompositeRun,
    builds: Mapping[str, Build],
    name: str,
    target: Target,
    root: Path,
) -> TargetOutcome:
    """Return the outcome of the whole for one target."""
    each = {part: build[name] for part, build in builds.items()}
    if bad := _bad_part(name, root, each):
        return bad
    places = [p for p in target.places if all(p.name in [v.place for v in o.places] for o in each.values())]
    result = Result(
        name=parts.name,
        target=name,
        precision=_deciding(o.manifest for o in each.values()).precision,
        artifact_sha256=digest_text("\n".join(f"{p} {o.manifest.sha256}" for p, o in each.items() if o.manifest)),
        reference_sha256=_digest(composite_run.answers),
        reference_device=composite_run.device,
        size=sum(outcome.size or 0 for outcome in each.values()),
        host=host(),
        places=tuple(_judge(parts, composite_run, each, p).model_copy(update={"place": p.name}) for p in places),
    )
    return TargetOutcome(name, root, result.status, result=result, part_of=_bundle(each))


def _bad_part(name: str, root: Path, each: Mapping[str, TargetOutcome]) -> TargetOutcome | None:
    """Return the outcome of the whole if a part is bad, else None."""
    for part, outcome in each.items():
        if outcome.bad:
            why = f": {outcome.sentences[0]}" if outcome.sentences else ""
            error = f"part '{part}' {ENDED[outcome.status]}{why}"
            return TargetOutcome(name, root, outcome.status, error, part_of=_bundle(each))
    return None


def _bundle(each: Mapping[str, TargetOutcome]) -> str:
    """Return the bundle that a target's parts were made for; empty if the user selected the target."""
    return next(iter(each.values())).part_of


def _judge(
    parts: CompositeModel, composite_run: CompositeRun, each: Mapping[str, TargetOutcome], place: Place
) -> EvaluationResult:
    """Run the driver with a target's artifacts in one place and compare the outputs."""
    for part, outcome in each.items():
        if not any(
            place_outcome.place == place.name and place_outcome.status == "verified" for place_outcome in outcome.places
        ):
            return verdict.not_verified(fact(Code.TEXT, text=f"part '{part}' is not verified here"))
    try:
        with _open_artifacts(each, place) as sessions:
            device = next(iter(sessions.values())).device
            answers = [run_driver(parts, sessions, model_input) for model_input in parts.inputs]
    except (NotVerifiedHere, HostError) as error:
        return verdict.not_verified(fact(Code.RUNTIME_MISSING, text=str(error)))
    except EdgekitError as error:
        # A usage error here mostly means that an artifact has a fixed size: name the target that fixed it.
        fixed = (
            next(
                (
                    o.target
                    for o in each.values()
                    if (o.manifest is not None and not all(axis.dynamic for axis in o.manifest.axes.values()))
                ),
                "",
            )
            if isinstance(error, UsageError)
            else ""
        )
        hint = (
            f". If '{fixed}' fixed a size that varies, look for an option that keeps it dynamic: `edgekit targets "
            f"{fixed}`"
            if fixed
            else ""
        )
        return verdict.failed_verdict(fact(Code.RUNTIME_FAILED, text=f"{error}{hint}"))
    tolerance = place.tolerance_of(_deciding(o.manifest for o in each.values()))
    result = verdict.judge(tolerance, {}, evaluation=_compare(composite_run, answers))
    evidence = Evidence(
        inputs={EVALUATION: len(answers)}, place=device, answered_by={composite_run.device: len(answers)}
    )
    evidence_fact = fact(Code.ASKED, text=f"the whole model from end to end, {evidence}")
    more = {"device": device, "evidence": evidence, "notes": (evidence_fact, *result.notes)}
    return result.model_copy(update=more)


def _deciding(manifests: Iterable[Manifest | None]) -> Manifest:
    """Return the manifest that sets the tolerance of the whole: a self-quantized artifact if there is one."""
    available = [manifest for manifest in manifests if manifest is not None]
    return next((manifest for manifest in available if manifest.export.self_quantized), available[0])


@contextlib.contextmanager
def _open_artifacts(each: Mapping[str, TargetOutcome], place: Place) -> Iterator[dict[str, LoadedArtifact]]:
    with contextlib.ExitStack() as stack:
        yield {
            # Exported in this run, so its code is trusted.
            part: stack.enter_context(load(outcome.path, place=place.name, trust_build=True))
            for part, outcome in each.items()
        }


def _compare(composite_run: CompositeRun, answers: Sequence[Answer]) -> list[Comparison]:
    """Compare outputs with those of the modules, grouped by shape; an output of another shape is compared alone."""
    names = [f"input {number}" for number in range(len(answers))]
    groups: dict[object, list[int]] = {}
    for number, (expected, other) in enumerate(zip(composite_run.answers, answers, strict=True)):
        alike = _shapes(expected) == _shapes(other)
        groups.setdefault((_shapes(expected), None if alike else number), []).append(number)
    scales = spreads(
        composite_run.outputs, [{n: a[None] for n, a in answer.items()} for answer in composite_run.answers], {}
    )
    compared = []
    for rows in groups.values():
        reference, candidate = (_stack([side[row] for row in rows]) for side in (composite_run.answers, answers))
        filled = [o for o in composite_run.outputs if not _nothing(o.name, reference, candidate)]
        some = [names[row] for row in rows]
        compared.append(metrics.compare(filled, reference, candidate, some, scales=scales))
    return compared


def _nothing(name: str, reference: Answer, candidate: Answer) -> bool:
    """Return whether both outputs are empty and have the same shape."""
    expected, other = reference[name], candidate.get(name)
    return other is not None and not expected.size and expected.shape == other.shape


def _shapes(answer: Answer) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple((name, array.shape) for name, array in sorted(answer.items()))


def _stack(answers: Sequence[Answer]) -> Answer:
    return {name: np.stack([answer[name] for answer in answers]) for name in answers[0]}


def _digest(answers: Sequence[Answer]) -> str:
    return digest_text("\n".join(f"{name} {array.tolist()}" for answer in answers for name, array in answer.items()))


def _record(
    parts: CompositeModel, composite_run: CompositeRun, factory: str, targets: Mapping[str, WholeRecord]
) -> PartsRecord:
    """Return the record for parts.json: driver, parts, and each target's artifact hashes and result."""
    return PartsRecord(
        name=parts.name,
        driver=f"{parts.driver.__module__}:{getattr(parts.driver, '__qualname__', type(parts.driver).__name__)}",
        factory=factory,
        code_sha256=_code(parts, composite_run, factory),
        inputs=len(parts.inputs),
        parts={name: PartRecord(folder=name, calls=count) for name, count in composite_run.calls.items()},
        targets=dict(targets),
    )


def _code(parts: CompositeModel, composite_run: CompositeRun, factory: str) -> str:
    """Return the hash of the code of the parts, the driver and the factory."""
    names = {parts.driver.__module__, *([factory.partition(":")[0]] if factory else [])}
    return code_digest(names.union(*map(code_of, composite_run.specs.values())))


def _of_target(outcome: TargetOutcome, builds: Mapping[str, Build]) -> WholeRecord:
    each = {part: build[outcome.target].manifest for part, build in builds.items()}
    return WholeRecord(
        target=outcome.target,
        status=outcome.status,
        error=outcome.error,
        artifacts={part: manifest.sha256 for part, manifest in each.items() if manifest is not None},
        result=outcome.result,
    )


Row = Mapping[str, Array]
Call = tuple[str, Row]
"""Name of the whole's input during which a part was called, and the inputs of that call."""
Sizes = tuple[tuple[str, int], ...]
FIRST = "input 0"
# Output name if the driver returns a single array.
WHOLE = "output"
# Exit code of the SystemExit that the command line raises for SIGTERM; one raised by the driver has another code.
TERMINATED = 128 + signal.SIGTERM


@dataclass(frozen=True)
class CompositeRun:
    """Result of running a composite model with its modules.

    Attributes:
        specs: Specs of the parts; the driver's calls serve as their evaluation and calibration sets.
        calls: Number of calls of each part.
        outputs: Outputs of the driver.
        answers: Outputs of the whole, one entry per input.
        device: What answered, in words.
    """

    specs: Mapping[str, ModelSpec]
    calls: Mapping[str, int]
    outputs: tuple[Output, ...]
    answers: tuple[dict[str, Array], ...]
    device: str


class Sessions(dict[str, Session]):
    """The parts by name; an unknown name raises an error with suggestions."""

    def __init__(self, model: str, parts: Mapping[str, Session]) -> None:
        super().__init__(parts)
        self._model = model

    def __missing__(self, name: str) -> Session:
        raise UsageError(
            f"the driver of '{self._model}' calls unknown part '{name}'. {suggestion(str(name), self)}Parts: "
            f"{', '.join(self)}"
        )


def run_composite(parts: CompositeModel) -> CompositeRun:
    """Run a model's driver with its modules.

    Raises:
        EdgekitError: If it fails, calls an unknown part, passes inputs that a part does not take, never calls a part,
            or is not deterministic.
    """
    sessions = {name: Recording(name, part) for name, part in parts.parts.items()}
    answers: list[dict[str, Array]] = []
    for number, model_input in enumerate(parts.inputs):
        for session in sessions.values():
            session.asked = f"input {number}"
        answers.append(run_driver(parts, sessions, model_input))
    counts = {name: len(session.calls) for name, session in sessions.items()}
    if idle := next((name for name, count in counts.items() if not count), None):
        raise ModelError(
            f"the driver of '{parts.name}' never calls part '{idle}'. Call it for at least one input, or remove it"
        )
    _refuse_chance(parts, sessions, answers[0])
    _refuse_unheard(parts, sessions, answers)
    calls = {name: list(session.calls) for name, session in sessions.items()}
    for session in sessions.values():
        # The calls so far are the evaluation set; the following ones calibrate.
        session.calls.clear()
    for model_input in parts.calibration:
        run_driver(parts, sessions, model_input)
    specs = {name: _with_sets(session, calls[name], parts) for name, session in sessions.items()}
    device = next(iter(sessions.values())).device
    return CompositeRun(specs, counts, _outputs(parts, answers), tuple(answers), device)


def run_driver(parts: CompositeModel, sessions: Mapping[str, Session], model_input: Any) -> dict[str, Array]:
    """Return the driver's outputs for one input, as arrays by name.

    Raises:
        ModelError: If the driver raises, or returns anything else.
    """
    raised: list[BaseException] = []
    try:
        watched = {name: _WatchedSession(session, raised) for name, session in sessions.items()}
        answer = parts.driver(Sessions(parts.name, watched), model_input)
    except (Exception, SystemExit) as error:
        # A part's own error explains more than the driver's error that follows from it.
        if first := next(
            (failure for failure in (*raised, error) if isinstance(failure, EdgekitError) or _stops(failure)), None
        ):
            raise first from None
        raise ModelError(f"the driver of '{parts.name}' failed{line_of(error)}: {sentence(error)}") from error
    if raised:
        _refuse_going_on(parts, raised[0])
    outputs = answer if isinstance(answer, Mapping) else {WHOLE: answer}
    # A copy: a driver may fill one buffer.
    arrays = {str(name): np.array(value) for name, value in outputs.items()}
    if wrong := next((name for name, array in arrays.items() if array.dtype.kind not in "biuf"), None):
        raise ModelError(
            f"the driver of '{parts.name}' returns {type(outputs[wrong]).__name__} in '{wrong}'. Return arrays of "
            "numbers, alone or by name"
        )
    if not arrays:
        raise ModelError(f"the driver of '{parts.name}' returns nothing. Return an array, or arrays by name")
    return arrays


def _refuse_going_on(parts: CompositeModel, error: BaseException) -> None:
    """Raise if the driver caught an error of a part: otherwise a failing artifact would be verified."""
    if isinstance(error, NotVerifiedHere) or _stops(error):
        raise error
    raise ModelError(
        f"the driver of '{parts.name}' continues after one of its parts failed ({sentence(error)}). Do not catch "
        "errors of a part: a failing artifact must be rejected"
    ) from error


def _stops(error: BaseException) -> bool:
    """Return whether the user or the system is stopping the process."""
    return isinstance(error, KeyboardInterrupt) or (isinstance(error, SystemExit) and error.code == TERMINATED)


@dataclass
class _WatchedSession:
    """A part as the driver calls it; records every error, even one that the driver catches."""

    session: Session
    raised: list[BaseException]

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        try:
            return self.session.run(inputs)
        except BaseException as error:
            self.raised.append(error)
            raise


@dataclass
class Recording:
    """A part's module as a session that records its calls.

    Attributes:
        name: Name of the part.
        part: The part as declared.
        calls: Inputs of each call, and the whole's input that it belongs to.
        asked: The whole's input that is being run.
    """

    name: str
    part: Any
    calls: list[Call] = field(default_factory=list)
    asked: str = ""
    _spec: ModelSpec | None = None
    _runtime: EagerRuntime | None = None

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run one batch and record it."""
        if not isinstance(inputs, Mapping):
            raise ModelError(f"the driver calls '{self.name}' with a {type(inputs).__name__}. Pass arrays by name")
        if self._runtime is None:
            self._spec = self._describe(inputs)
            self._runtime = EagerRuntime(self._spec)
        _check(self.name, self.spec, inputs)
        # The driver may reuse its buffers, and a module may write into its inputs.
        copies = {i.name: np.array(inputs[i.name]) for i in self.spec.inputs}
        self.calls.append((self.asked, copies))
        return self._runtime.run({name: array.copy() for name, array in copies.items()})

    @property
    def spec(self) -> ModelSpec:
        """The part as a model; available after the first call."""
        if self._spec is None:
            raise ModelError(f"part '{self.name}' was not called")
        return self._spec

    @property
    def device(self) -> str:
        """Description of the device that runs it."""
        return self._runtime.device if self._runtime is not None else ""

    @property
    def words(self) -> SpecOverrides:
        """The user's overrides for the part."""
        part = self.part
        return words_of(part.axes, part.inputs, part.outputs) if isinstance(part, Component) else NOTHING

    def _describe(self, inputs: Mapping[str, Array]) -> ModelSpec:
        import torch

        if isinstance(self.part, ModelSpec):
            return check_spec(self.part)
        if isinstance(self.part, str | Path):
            return resolve_model(str(self.part))
        part = self.part if isinstance(self.part, Component) else Component(self.part)
        example = part.example
        if example is None:
            example = {name: torch.from_numpy(np.array(array)) for name, array in inputs.items()}
        return spec_of_module(part.module, example, self.words)


def _check(name: str, spec: ModelSpec, inputs: Mapping[str, Array]) -> None:
    """Check that a part takes the driver's inputs.

    Raises:
        UsageError: With the part, the input and the possible values.
    """
    names = [i.name for i in spec.inputs]
    if wrong := sorted({*names} ^ {*inputs}):
        word = "lacks" if wrong[0] in names else "does not have"
        raise UsageError(
            f"the driver calls '{name}', which {word} the input '{wrong[0]}'. Its inputs: {', '.join(names)}"
        )
    axes = {axis: AxisInfo.of_axis(declared, True) for axis, declared in spec.axes.items()}
    check_arrays(name, map(TensorInfo.of_input, spec.inputs), axes, inputs, "which it declares")


def _refuse_chance(parts: CompositeModel, sessions: Mapping[str, Recording], first: Mapping[str, Array]) -> None:
    """Run the first input again and raise unless the calls and the outputs are the same."""
    counts = {name: len(session.calls) for name, session in sessions.items()}
    again = run_driver(parts, sessions, parts.inputs[0])
    odd = ""
    for name, session in sessions.items():
        once = [call for question, call in session.calls[: counts[name]] if question == FIRST]
        twice = [call for _, call in session.calls[counts[name] :]]
        if len(once) != len(twice) or not all(map(_equal, once, twice)):
            odd = odd or f"passes other inputs to '{name}'"
        del session.calls[counts[name] :]
    odd = odd or ("" if _equal(first, again) else "returns other outputs")
    if odd:
        raise ModelError(
            f"the driver of '{parts.name}' {odd} when it runs the same input again. Use no random numbers, and keep no "
            "state from one input to the next"
        )


@dataclass
class _Perturbed:
    """A part with perturbed outputs and the same call limit as the right one."""

    session: Session
    slope: int
    left: int

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        self.left -= 1
        if self.left < 0:
            raise ModelError("the perturbed part was called more often")
        answer = self.session.run(inputs).items()
        return {n: ~a if a.dtype.kind == "b" else (self.slope * a + self.slope).astype(a.dtype) for n, a in answer}


def _refuse_unheard(parts: CompositeModel, sessions: Mapping[str, Recording], answers: Sequence[Row]) -> None:
    """Raise if the whole's outputs do not depend on a part: no artifact of that part could be rejected."""
    for name, session in sessions.items():
        call_counts = Counter(number for number, _ in session.calls)
        counts = {other: len(session.calls) for other, session in sessions.items()}
        # Two slopes: a driver that clips or compares may hide one of them.
        probes = (
            (number, slope) for number in range(len(answers)) for slope in (-1, 3) if call_counts[f"input {number}"]
        )
        heard = any(
            _heard(parts, sessions, name, number, _Perturbed(session, slope, call_counts[f"input {number}"]), answers)
            for number, slope in probes
        )
        # Calls with a perturbed part are not data for the others.
        for other, other_session in sessions.items():
            del other_session.calls[counts[other] :]
        if not heard:
            raise ModelError(
                f"the driver of '{parts.name}' returns the same outputs whatever part '{name}' returns. Use each "
                "part's outputs for at least one input, or remove the part"
            )


def _heard(
    parts: CompositeModel,
    sessions: Mapping[str, Session],
    name: str,
    number: int,
    wrong: Session,
    answers: Sequence[Row],
) -> bool:
    try:
        return not _equal(run_driver(parts, {**sessions, name: wrong}, parts.inputs[number]), answers[number])
    except EdgekitError:
        return True


def _equal(row: Row, other: Row) -> bool:
    return row.keys() == other.keys() and all(np.array_equal(row[n], other[n], equal_nan=True) for n in row)


def _outputs(parts: CompositeModel, answers: Sequence[Mapping[str, Array]]) -> tuple[Output, ...]:
    """Return the driver's outputs with their roles; raise unless every input gives the same names."""
    declared = {output.name: output for output in parts.outputs}
    if unknown := next((name for name in declared if name not in answers[0]), None):
        raise ModelError(
            f"the driver of '{parts.name}' does not return the declared output '{unknown}'. It returns "
            f"{', '.join(answers[0])}"
        )
    for number, answer in enumerate(answers):
        if answer.keys() != answers[0].keys():
            raise ModelError(
                f"the driver of '{parts.name}' returns {', '.join(answer)} for input {number}, and "
                f"{', '.join(answers[0])} for input 0. Return the same names for each input"
            )
    if empty := next((name for name in answers[0] if not any(answer[name].size for answer in answers)), None):
        raise ModelError(
            f"the driver of '{parts.name}' returns an empty '{empty}' for each input. Add an input that fills it"
        )
    kinds = {name: "labels" if array.dtype.kind in "iu" else "tensor" for name, array in answers[0].items()}
    outputs = (declared.get(name, Output(name, role=role)) for name, role in kinds.items())  # type: ignore[arg-type]  # two of the roles
    return tuple(replace(output, dtype=str(answers[0][output.name].dtype)) for output in outputs)


def _with_sets(session: Recording, calls: Sequence[Call], parts: CompositeModel) -> ModelSpec:
    """Return a part's spec with the driver's calls as its evaluation and calibration sets."""
    spec = session.spec
    if not isinstance(session.part, ModelSpec | str | Path):
        spec = _with_ranges(spec, [call for _, call in (*calls, *session.calls)], session.words)
    rows = list(_rows(spec, calls))
    usual = _usual(session.name, rows)
    axes = {name: replace(axis, default=dict(usual).get(name, axis.default)) for name, axis in spec.axes.items()}
    spec = replace(spec, name=f"{parts.name}.{session.name}", axes=axes, factory="", words=None, reference=None)
    evaluation = distinct(spec, _set(spec, [row for row in rows if row.sizes == usual]))
    others = tuple(row.inputs for row in rows if row.sizes != usual)
    usual_rows = [row for row in _rows(spec, session.calls) if row.sizes == usual]
    calibration = distinct(spec, _set(spec, usual_rows[:COUNT])) if usual_rows else None
    sets = split(spec, evaluation) if calibration is None else EvaluationSets(evaluation, calibration)
    judge = replace(sets.evaluation or evaluation, others=others)
    notes = (*spec.notes, sets.note) if sets.note else spec.notes
    return replace(spec, evaluation=lambda: judge, calibration=sets.calibration, notes=notes)


def _with_ranges(spec: ModelSpec, calls: Sequence[Row], words: SpecOverrides) -> ModelSpec:
    """Return a spec whose input ranges cover the driver's calls, unless the user declared a range."""

    def of(i: Input) -> Input:
        if i.kind == "image" or "low" in words.inputs.get(i.name, {}):
            return i
        low, high = range_in(np.concatenate([np.ravel(call[i.name]) for call in calls]))
        return replace(i, low=low, high=high)

    return replace(spec, inputs=tuple(map(of, spec.inputs)))


@dataclass(frozen=True)
class _Row:
    """One row of a call: its name, its sizes except the batch, and the inputs of one run."""

    name: str
    sizes: Sizes
    inputs: Row


def _rows(spec: ModelSpec, calls: Sequence[Call]) -> Iterator[_Row]:
    shapes = {i.name: i.shape for i in spec.inputs}
    for number, (question, call) in enumerate(calls):
        sizes = {
            axis: size
            for name, shape in shapes.items()
            for axis, size in zip(shape, call[name].shape, strict=True)
            if isinstance(axis, str) and axis in spec.axes
        }
        count = sizes.pop(BATCH, 1)
        for row in range(count):
            inputs = {name: rows_in(call[name], [row], shape) for name, shape in shapes.items()}
            yield _Row(
                f"{question}, call {number}" + (f", row {row}" if count > 1 else ""), tuple(sizes.items()), inputs
            )


def _usual(part: str, rows: Sequence[_Row]) -> Sizes:
    """Return the most frequent sizes without a 0; of several, the ones in the middle."""
    # An empty axis (a cache before its first token) cannot be the default size.
    counts = Counter(row.sizes for row in rows if all(size for _, size in row.sizes))
    if not counts:
        raise ModelError(f"the driver calls '{part}' only with an empty axis. Call it with a size of 1 or more too")
    most = max(counts.values())
    often = [sizes for sizes, count in counts.items() if count == most]
    return sorted(often, key=lambda sizes: (math.prod(size for _, size in sizes), sizes))[len(often) // 2]


def _set(spec: ModelSpec, rows: Sequence[_Row]) -> EvaluationSet:
    inputs = {i.name: stack_runs(row.inputs[i.name] for row in rows) for i in spec.inputs}
    return EvaluationSet(inputs, tuple(row.name for row in rows))
