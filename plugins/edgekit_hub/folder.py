"""The folder `hub` of a composite build, in the layout that transformers.js and optimum expect.

It holds the files that belong to the model, in `onnx` each part's verified ONNX files under its name, decoders of two
parts in one file, which the driver runs before the file is kept, and a model card. A model of one graph without a cache
also gets a self-test for browsers.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgekit.artifact.run_record import HUB, REFERENCE, WholeRecord
from edgekit.artifact.store import read_artifact, result_of
from edgekit.errors import ExportError
from edgekit.model.onnx_check import bodies
from edgekit.model.parts import CompositeModel, Session
from edgekit.model.spec import ModelSpec
from edgekit.runtime.ort import OrtRuntime
from edgekit.storage.files import digest_file, staging
from edgekit_hub.card import Variant, write_card
from edgekit_hub.selftest import write_selftest
from edgekit_targets.onnx.passes.graph import copy_graph

if TYPE_CHECKING:
    import onnx

    from edgekit.model.spec import Array

ONNX = ".onnx"
SUFFIXES = {"fp16": "_fp16", "int8": "_quantized", "int4": "_q4"}
"""Suffix of an ONNX file's name, by its precision, as in transformers.js and optimum."""
Holds = Callable[[str, Mapping[str, Session]], bool]
"""(a target, sessions for some parts) -> True if the composite model passes with them in place of the artifacts."""
FLAG = "use_cache_branch"
PRESENT, PAST = "present.", "past_key_values."


def write_hub(
    parts: CompositeModel, root: Path, verified: Mapping[str, WholeRecord], written: Collection[str], holds: Holds
) -> dict[str, str]:
    """Write the folder.

    Args:
        parts: The model.
        root: Its build folder.
        verified: Results of the targets with a verified composite model, by target.
        written: Files of the folder that an earlier run wrote.
        holds: Judges the composite model with other sessions for some parts.

    Returns:
        The hash of each file, by its path there.

    Raises:
        ExportError: If a file of two parts differs from these in its outputs.
    """
    with staging(root / HUB, lambda _: written) as staged:
        for name, path in parts.files.items():
            shutil.copyfile(path, staged / name)
        graphs: dict[str, Path] = {}
        variants: list[Variant] = []
        for target in verified:
            manifests = {part: read_artifact(root / part / target) for part in parts.parts}
            precision = next(iter(manifests.values())).precision
            suffix = SUFFIXES.get(precision, "")
            paths = {part: staged / "onnx" / f"{part}{suffix}{ONNX}" for part in (*manifests, *parts.joined)}
            if not all(manifest.entry.endswith(ONNX) for manifest in manifests.values()) or any(
                p.exists() for p in paths.values()
            ):
                # Of two targets with the same precision, only the first is written.
                continue
            (staged / "onnx").mkdir(exist_ok=True)
            for part, manifest in manifests.items():
                shutil.copyfile(root / part / target / manifest.entry, paths[part])
                graphs[precision] = paths[part]
                variants.append(
                    Variant(paths[part], part, target, precision, result_of(root / part / target, manifest))
                )
            for name, (first, further) in parts.joined.items():
                _write_joined(paths[name], {part: paths[part] for part in (first, further)}, target, holds)
                variants.append(Variant(paths[name], name, target, precision))
        [part, spec] = next(iter(parts.parts.items()))
        if (
            graphs
            and len(parts.parts) == 1
            and isinstance(spec, ModelSpec)
            and not any(i.name.startswith(PAST) for i in spec.inputs)
        ):
            write_selftest(staged, spec, root / part / REFERENCE, graphs)
        write_card(staged, parts, variants, verified)
        files = sorted(path for path in staged.rglob("*") if path.is_file())
        return {path.relative_to(staged).as_posix(): digest_file(path) for path in files}


def _write_joined(path: Path, of: Mapping[str, Path], target: str, holds: Holds) -> None:
    """Write two parts' graphs as one, and let the driver run it."""
    import onnx

    graph = join_graphs(*map(onnx.load, of.values()))
    path.write_bytes(graph.SerializeToString(deterministic=True))
    with closing(OrtRuntime(path)) as runtime:
        if not holds(
            target, {part: _Branch(runtime, graph, further) for part, further in zip(of, (False, True), strict=True)}
        ):
            raise ExportError(
                f"the outputs of '{path.name}' differ from those of {' and '.join(of)} of '{target}', of which it is "
                "made"
            )


class _Branch:
    """One branch of a joined graph as a part; inputs that this branch does not read are empty."""

    def __init__(self, runtime: OrtRuntime, graph: onnx.ModelProto, further: bool) -> None:
        self._runtime, self._inputs = runtime, [i for i in graph.graph.input if i.name != FLAG]
        self._flag = np.array([further])

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run one batch."""
        from onnx import helper

        feed = {FLAG: self._flag}
        for declared in self._inputs:
            if declared.name in inputs:
                feed[declared.name] = inputs[declared.name]
                continue
            kind = declared.type.tensor_type
            sizes = [size.dim_value for size in kind.shape.dim]
            feed[declared.name] = np.zeros(sizes, helper.tensor_dtype_to_np_dtype(kind.elem_type))
        return self._runtime.run(feed)


def join_graphs(first: onnx.ModelProto, further: onnx.ModelProto) -> onnx.ModelProto:
    """Return a graph that runs `further` if `use_cache_branch` [1] is true, otherwise `first`.

        first: ids, states -> logits, present; further: ids, past -> logits, present
        -> ids, states, past, use_cache_branch -> If(use_cache_branch) {further} {first} -> logits, present

    Weights are written once. An output that `further` does not have is its input of that name, `past_key_values.X` for
    `present.X`, passed through unchanged. transformers.js and optimum expect a decoder in this form.

    Args:
        first: Has all outputs; the joined graph has its sizes for inputs of both.
        further: Has some of the outputs.
    """
    from onnx import TensorProto, helper

    inputs = {i.name: i for graph in (further, first) for i in graph.graph.input}
    outputs = list(first.graph.output)
    weights: dict[bytes, onnx.TensorProto] = {}
    then, otherwise = (
        _branch(graph, prefix, inputs, [o.name for o in outputs], weights)
        for prefix, graph in (("further/", further), ("first/", first))
    )
    branch_node = helper.make_node(
        "If", [FLAG], [o.name for o in outputs], name="branches", then_branch=then, else_branch=otherwise
    )
    flag = helper.make_tensor_value_info(FLAG, TensorProto.BOOL, [1])
    graph = helper.make_graph([branch_node], "branches", [*inputs.values(), flag], outputs, list(weights.values()))
    whole = helper.make_model(
        graph, opset_imports=first.opset_import, ir_version=max(first.ir_version, further.ir_version)
    )
    functions = {(f.domain, f.name): f for model in (first, further) for f in model.functions}
    whole.functions.extend(functions.values())
    whole.producer_name = first.producer_name
    return whole


def _branch(
    model: onnx.ModelProto,
    prefix: str,
    inputs: Mapping[str, onnx.ValueInfoProto],
    outputs: list[str],
    weights: dict[bytes, onnx.TensorProto],
) -> onnx.GraphProto:
    """Return a graph without inputs: its weights belong to the joined graph, and its values get a prefix."""
    from onnx import helper

    graph = copy_graph(model).graph
    names = {name: name for name in inputs}
    for tensor in graph.initializer:
        renamed = type(tensor)()
        renamed.CopyFrom(tensor)
        renamed.name = ""
        digest = hashlib.sha256(renamed.SerializeToString(deterministic=True)).digest()
        renamed.name = prefix + tensor.name
        names[tensor.name] = weights.setdefault(digest, renamed).name
    types = {value.name: value for value in (*graph.output, *graph.input, *inputs.values())}
    del graph.initializer[:], graph.input[:], graph.value_info[:]
    _rename(graph, prefix, names)
    output_names = {output.name for output in graph.output}
    del graph.output[:]
    for name in outputs:
        full_name = prefix + name
        source = name if full_name in output_names else name.replace(PRESENT, PAST)
        if full_name not in output_names:
            graph.node.append(helper.make_node("Identity", [source], [full_name], name=full_name))
        value = types[source]
        graph.output.append(helper.make_value_info(full_name, value.type))
    graph.name = prefix.strip("/")
    return graph


def _rename(graph: onnx.GraphProto, prefix: str, names: Mapping[str, str]) -> None:
    """Rename every value of a graph and of its inner graphs with a prefix, or as in `names`."""

    def new(name: str) -> str:
        return names.get(name, prefix + name) if name else name

    for node in graph.node:
        node.input[:] = map(new, node.input)
        node.output[:] = map(new, node.output)
        for body in bodies(node):
            _rename(body, prefix, names)
    for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        value.name = new(value.name)
