"""The Python API: `edgekit.check`."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from edgekit.api import Fields
from edgekit.errors import ShapeMissingError, UsageError
from edgekit.hosts import process
from edgekit.model.spec import ModelSpec
from edgekit.pipeline import given_model, run
from edgekit.pipeline.outcome import Build
from edgekit.pipeline.request import Criteria, EvaluationData, ExportRequest, ModelFacts, names_in
from edgekit.progress import Style, listener_for
from edgekit.storage.files import require_folder
from edgekit.storage.host_errors import as_sentences
from edgekit_check import files, matching, target

if TYPE_CHECKING:
    from edgekit.api import Model

CHECKS = Path("check")


@as_sentences()
def check(
    file: str | Path,
    against: Model,
    *,
    map: Iterable[str] = (),  # noqa: A002 - the option's name
    precision: str = "auto",
    example: Any = None,
    output: str | Path = CHECKS,
    facts: ModelFacts = ModelFacts(),
    data: EvaluationData | str | Path | None = None,
    criteria: Criteria = Criteria(),
    progress: Style = "auto",
    **fields: Unpack[Fields],
) -> Build:
    """Judge a file that another tool made, against its model, as edgekit judges its own artifacts.

    The file is copied, never changed. Its inputs and outputs are the model's of the same name, else those in the same
    position if type and sizes fit; notes of the verdict say what was assumed.

    Args:
        file: An ONNX, OpenVINO IR, LiteRT, ExecuTorch, Core ML, TorchScript, PyTorch Mobile or `torch.export` file, or
            a tool's folder with one of these.
        against: The model, as for `edgekit.export`. If it is a factory of a plain module, the input shapes are the
            file's.
        map: Pairs of names, "theirs=ours", with facts of the file: "pixels=images,layout=nhwc,range=0..255".
        precision: "fp32", "fp16" or "int8": whose limits apply. "auto": those of the file's weights.
        example: As for `edgekit.export`.
        output: The folder of results; those of this model are in it under the model's name.
        facts: Your declarations about the model, as for `edgekit.export`.
        data: Data to judge with, as for `edgekit.export`.
        criteria: Budgets, and whose limits apply; further places are not possible.
        progress: As for `edgekit.export`.
        fields: As for `edgekit.export`.

    Returns:
        A build with the one outcome "checked-file".

    Raises:
        EdgekitError: If the model or its data are unusable. An error of the file becomes its outcome.
    """
    path, pairs = files.find_file(Path(file)), names_in(map)
    matching.parse_words(pairs)
    require_folder(output, "results are written")
    judged = data if isinstance(data, EvaluationData) else EvaluationData(data=data)
    request = ExportRequest(
        model=against, example=example, facts=facts, criteria=criteria, data=replace(judged, splits=False)
    ).with_fields(fields)
    if request.criteria.places:
        raise UsageError("a checked file is judged in its format's own runtime. Leave out further places")
    spec = _resolve_model(path, request)
    options = {"file": path, "map": ";".join(pairs), "precision": precision}
    words = " ".join(("edgekit check", shlex.quote(path.name), "--against", shlex.quote(str(against))))
    with listener_for(progress) as listener:
        return run.export(
            spec, (target.NAME,), Path(output) / spec.name, {target.NAME: options}, listener, True,
            words if isinstance(against, str) else "", request.criteria,
        )  # fmt: skip


def _resolve_model(path: Path, request: ExportRequest) -> ModelSpec:
    """Return the model with its data; shapes that neither it nor the user declares are the file's."""
    facts, model = request.facts, request.model
    try:
        spec = given_model.resolve_model(model, request.example, facts)
    except ShapeMissingError as error:
        if not error.parameters:
            raise
        declared = process.call(files.describe, {"path": str(path)})["inputs"]
        own = facts.inputs if isinstance(facts.inputs, Mapping) else {}
        shapes = _shapes_of(declared, error.parameters)  # type: ignore[arg-type]  # as `describe` returns them
        if not shapes or isinstance(facts.inputs, str) or (facts.inputs and not own):
            raise
        spec = given_model.resolve_model(model, request.example, replace(facts, inputs=shapes))
    spec = given_model.with_data(spec, request.data, request.example)
    return given_model.with_authorship(spec, facts)


def _shapes_of(declared: list[dict[str, Any]], parameters: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """Return the file's shapes by the parameters of `forward`: of the same name, else in the same position.

    Empty if the file declares none, or leaves a dimension open after the first, which is the batch.
    """
    by_name = {tensor["name"]: tensor for tensor in declared}
    tensors = [by_name.get(parameter) for parameter in parameters]
    if not all(tensors[: len(declared)]):
        tensors = list(declared)
    shapes = {}
    for parameter, tensor in zip(parameters, tensors, strict=False):
        if tensor is None:
            continue
        shape = tensor["shape"]
        if shape is None or any(not isinstance(size, int) for size in shape[1:]):
            return {}
        sizes = [1, *shape[1:]] if shape else []
        if tensor["dtype"] == "uint8" and len(sizes) == matching.IMAGE_RANK and sizes[3] in (1, 3):
            sizes = [sizes[0], sizes[3], sizes[1], sizes[2]]
        kind = tensor["dtype"] if tensor["dtype"] in ("int64", "int32", "bool") else "float32"
        shapes[parameter] = {"shape": sizes, "dtype": kind}
    return shapes
