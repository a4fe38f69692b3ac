"""Model of an API call: from a name, a path, a factory, or a module with an example, with the user's data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit import metrics
from edgekit.errors import DataError, ModelError, UsageError, suggestion
from edgekit.model.constraints import with_constraints_of_rows
from edgekit.model.contract import check_name, check_spec
from edgekit.model.overrides import BATCH, NOTHING, SpecOverrides, words_of
from edgekit.model.parts import CompositeModel
from edgekit.model.sources import factory, factory_of, resolve, source_of
from edgekit.model.sources.arguments import tensors_of
from edgekit.model.sources.checkpoint import with_weights
from edgekit.model.sources.factory import call, single
from edgekit.model.sources.module import range_in, spec_of_module
from edgekit.model.sources.onnx import file_of, require_ranges
from edgekit.model.spec import Array, CalibrationSet, EvaluationSet, ModelSpec
from edgekit.pipeline.request import EvaluationData, ModelFacts
from edgekit.reference import dataset
from edgekit.reference.adopt import reference_folder

if TYPE_CHECKING:
    import torch

NO_FACTS = ModelFacts()


def with_data(spec: ModelSpec, evaluation_data: EvaluationData, example: Any = None) -> ModelSpec:
    """Return the model with the user's sets and reference; an example with enough rows serves as sets."""
    evaluation, calibration = evaluation_data.evaluation, evaluation_data.calibration
    if evaluation_data.data is not None and evaluation is not None:
        raise UsageError("data and evaluation both give an evaluation set. Leave one of them out")
    if evaluation_data.metric and evaluation_data.data is None:
        raise UsageError(f"the metric '{evaluation_data.metric}' needs a folder of inputs. Add data (--data FOLDER)")
    if evaluation is not None:
        if not callable(evaluation) and not isinstance(evaluation, EvaluationSet):
            raise UsageError(
                f"the evaluation set is a {type(evaluation).__name__}. Pass an edgekit.model.EvaluationSet"
            )
        spec = _with_sets(spec, evaluation, None)
    if (
        calibration is not None
        and not callable(calibration)
        and not isinstance(calibration, EvaluationSet | str | Path)
    ):
        raise UsageError(
            f"the calibration set is a {type(calibration).__name__}. Pass an edgekit.model.EvaluationSet, a function "
            "that returns one, or a folder"
        )
    if callable(calibration) or isinstance(calibration, EvaluationSet):
        spec = _with_sets(spec, None, calibration)
    spec = _with_folders(spec, evaluation_data)
    if spec.evaluation is None and spec.calibration is None:
        spec = _with_examples(spec, example, evaluation_data.splits)
    require_ranges(spec)
    if spec.evaluation is not None:
        spec = with_constraints_of_rows(spec)
    reference = evaluation_data.reference
    return spec if reference is None else replace(spec, reference=reference_folder(spec, Path(reference)))


def _with_sets(
    spec: ModelSpec, evaluation: EvaluationSet | Callable[[], EvaluationSet] | None, calibration: CalibrationSet | None
) -> ModelSpec:
    """Return the model with the user's sets, which are stored with it."""
    if evaluation is not None:
        make_evaluation = evaluation if callable(evaluation) else lambda: evaluation
        spec = replace(spec, evaluation=make_evaluation, brought=spec.brought | {"evaluation"})
    if calibration is not None:
        spec = replace(spec, calibration=calibration, brought=spec.brought | {"calibration"})
    return spec


def _with_folders(spec: ModelSpec, evaluation_data: EvaluationData) -> ModelSpec:
    folder = Path(evaluation_data.calibration) if isinstance(evaluation_data.calibration, str | Path) else None
    if evaluation_data.data is None and folder is None:
        return spec
    data = None if evaluation_data.data is None else Path(evaluation_data.data)
    sets = dataset.sets_of(spec, data, folder, evaluation_data.splits)
    spec = _with_data_ranges(spec, [dataset for dataset in (sets.evaluation, sets.calibration) if dataset is not None])
    evaluation, text = sets.evaluation, evaluation_data.metric
    if sets.classes:
        # Folders named by class say what the truth is, so top-1 follows unless the user names another metric.
        text = text or f"top_k:{_classifying_output(spec)}"
        spec = _with_classes(spec, text, sets.classes)
    if evaluation is not None:
        evaluation = _with_metric(spec, evaluation, text)
    spec = replace(spec, notes=(*spec.notes, sets.note)) if sets.note else spec
    return _with_sets(spec, evaluation, sets.calibration)


def _classifying_output(spec: ModelSpec) -> str:
    return next((o.name for o in spec.outputs if o.role in ("logits", "probabilities")), spec.outputs[0].name)


def _with_classes(spec: ModelSpec, metric: str, classes: tuple[str, ...]) -> ModelSpec:
    """Name the classes of the output that a metric reads by their folders, unless the model declares names."""
    names = metrics.parse_metric(metric).outputs
    output = next((o for o in spec.outputs if o.name in names), None)
    if output is None or any(o.classes for o in spec.outputs):
        return spec
    outputs = tuple(replace(o, classes=classes) if o is output else o for o in spec.outputs)
    return replace(spec, outputs=outputs, words=(spec.words or NOTHING).with_classes(output.name, classes))


def _with_data_ranges(spec: ModelSpec, sets: list[EvaluationSet]) -> ModelSpec:
    """Return an ONNX or plain-module spec with the ranges of the user's data, unless the user declared ranges."""
    overrides = spec.words or NOTHING
    own = file_of(spec.module) is not None or any("shape" in facts for facts in overrides.inputs.values())
    ranges = {}
    for i in spec.inputs if own else ():
        if i.kind != "image" and "low" not in overrides.inputs.get(i.name, {}):
            ranges[i.name] = range_in(np.concatenate([np.atleast_1d(dataset.inputs[i.name]) for dataset in sets]))
    if ranges:
        inputs = (
            replace(i, low=ranges[i.name][0], high=ranges[i.name][1]) if i.name in ranges else i for i in spec.inputs
        )
        spec = replace(spec, inputs=tuple(inputs), words=overrides.with_ranges(ranges))
    for evaluation_set in sets:
        dataset.check_integers(evaluation_set.inputs, spec)
    return spec


def _with_metric(spec: ModelSpec, evaluation: EvaluationSet, text: str) -> EvaluationSet:
    """Return the evaluation set with its metric; raise unless the model itself is better than chance."""
    if not text:
        if evaluation.truth is None:
            return evaluation
        raise DataError(
            "the data has labels or truth, and no metric uses them. Add --metric "
            f"top_k:{_classifying_output(spec)}, or remove them"
        )
    metric = metrics.parse_metric(text)
    names = [o.name for o in spec.outputs]
    if unknown := [name for name in metric.outputs if name not in names]:
        meant = suggestion(unknown[0], names)
        raise UsageError(f"the metric '{text}' names unknown output '{unknown[0]}'. {meant}Outputs: {', '.join(names)}")
    if evaluation.truth is None:
        raise DataError(
            f"the metric '{text}' needs the truth. Put labels.csv (lines of file,label) next to the pictures, or an "
            f"array '{dataset.TRUTH}' into each .npz file"
        )
    evaluation_set = replace(evaluation, metric=metric, metric_name=text)
    dataset.check_truth(spec, evaluation_set)
    return evaluation_set


def _with_examples(spec: ModelSpec, example: Any, splits: bool) -> ModelSpec:
    """Return the model with the example's rows as its sets, if they suffice to calibrate and judge."""
    if example is None or not all(i.shape[:1] == (BATCH,) and not i.takes for i in spec.inputs):
        return spec
    tensors = tensors_of(spec.module, example)
    arrays: dict[str, Array] = {
        i.name: _array(tensors[i.name]).astype(i.dtype) for i in spec.inputs if i.name in tensors
    }
    if set(arrays) != {i.name for i in spec.inputs} or len({len(array) for array in arrays.values()}) != 1:
        return spec
    count = len(next(iter(arrays.values())))
    every = dataset.distinct(spec, EvaluationSet(arrays, tuple(f"example {row}" for row in range(count))))
    usual = all(array.shape[1:] == spec.shape(name)[1:] for name, array in arrays.items())
    if len(every.names) < dataset.ENOUGH or not usual:
        return spec
    sets = dataset.split(spec, every) if splits else dataset.EvaluationSets(every, None)
    return _with_sets(
        replace(spec, notes=(*spec.notes, *filter(None, (sets.note,)))), sets.evaluation, sets.calibration
    )


def _array(tensor: torch.Tensor) -> Array:
    return tensor.detach().cpu().float().numpy() if tensor.is_floating_point() else tensor.detach().cpu().numpy()


def with_authorship(spec: ModelSpec, facts: ModelFacts) -> ModelSpec:
    """Return the model with the user's name, author and licence."""
    name, author, licence = facts.name, facts.author, facts.licence
    if name is not None:
        check_name(name)
    return replace(
        spec,
        name=spec.name if name is None else name,
        author=spec.author if author is None else author,
        licence=spec.licence if licence is None else licence,
    )


def resolve_model(model: Any, example: Any = None, facts: ModelFacts = NO_FACTS) -> ModelSpec:
    """Return the single-graph model of an API call, as `edgekit.export` takes it."""
    return single(any_model(model, example, facts))


def any_model(model: Any, example: Any = None, facts: ModelFacts = NO_FACTS) -> ModelSpec | CompositeModel:
    """Return the model of an API call."""
    if facts.ema and facts.weights is None:
        raise UsageError("ema selects among the weights of a file. Add weights (--weights FILE --ema)")
    if facts.task and not isinstance(model, str | Path):
        raise UsageError(f"the task '{facts.task}' applies only to transformers:FOLDER. Leave it out")
    spec = _from_declaration(model, example, words_of(facts.axes, facts.inputs, facts.outputs), facts.task)
    return spec if facts.weights is None else with_weights(single(spec), Path(facts.weights), facts.ema)


def _from_declaration(model: Any, example: Any, words: SpecOverrides, task: str) -> ModelSpec | CompositeModel:
    if isinstance(model, str | Path):
        _refuse_beside(example)
        return resolve(str(model), words, task)
    if isinstance(model, CompositeModel):
        _refuse_beside(example)
        return call(lambda: model, model.name, words=words)
    if isinstance(model, ModelSpec):
        _refuse_beside(example)
        words.require_own_shapes()
        return check_spec(words.of_spec(model)) if words else check_spec(model)
    import torch

    if not isinstance(model, torch.nn.Module):
        _refuse_beside(example)
        if isinstance(model, type) and issubclass(model, torch.nn.Module):
            raise UsageError(f"'{model.__name__}' is a class. Pass an instance of it, in eval mode")
        if not callable(model):
            kinds = "a preset's name, a path, package.module:factory, a factory, a ModelSpec or a torch.nn.Module"
            raise UsageError(f"a {type(model).__name__} is not a model. Pass {kinds}")
        return factory_of(model, words)
    if example is None:
        raise UsageError(f"'{type(model).__name__}' needs an example of its inputs: export(net, example=(x,))")
    words.require_own_shapes()
    return spec_of_module(model, example, words)


def _refuse_beside(example: Any) -> None:
    if example is not None:
        raise UsageError(
            "an example is only for a module. A name, a path, a factory and a ModelSpec have their own inputs"
        )


def refuse_beside_parts(parts: CompositeModel, data: EvaluationData) -> None:
    """Raise if sets or a reference come with a composite model: the driver's calls are its data."""
    if data != EvaluationData():
        raise UsageError(
            f"'{parts.name}' is a model of parts, judged on its driver's calls. Put your inputs into "
            "CompositeModel(inputs=...), and others for INT8 into CompositeModel(calibration=...)"
        )


def factory_name(model: Any) -> str:
    """Return the factory's name if the model is given by one, else empty."""
    is_factory = isinstance(model, str) and ":" in model and source_of(model) is None and not Path(model).exists()
    return model if is_factory else ""


def parts_of_factory(name: str) -> CompositeModel:
    """Return the composite model that a factory rebuilds.

    Raises:
        ModelError: If it cannot be imported, raises, or returns anything but a composite model.
    """
    function = factory.load_named(name)
    if not isinstance(function, CompositeModel):
        raise ModelError(f"'{name}' no longer returns a model of parts. Export again")
    return function
