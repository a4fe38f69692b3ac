"""Two graphs as the branches of one, their weights once: a decoder's first run and its further ones in one file.

    first: ids, states -> logits, present; further: ids, past -> logits, present
    -> ids, states, past, use_cache_branch -> If(use_cache_branch) {further} {first} -> logits, present

An output that the second has not is its input of that name, `past_key_values.X` for `present.X`: what stays as it is.
transformers.js and optimum look for a decoder in this form.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from edgekit.model.onnx_check import bodies
from edgekit_targets.onnx.passes.graph import copied

if TYPE_CHECKING:
    import onnx

FLAG = "use_cache_branch"
PRESENT, PAST = "present.", "past_key_values."


def joined(first: onnx.ModelProto, further: onnx.ModelProto) -> onnx.ModelProto:
    """The graph that runs `further` where `use_cache_branch` [1] is true, and else `first`.

    Args:
        first: Has all outputs; its inputs' sizes are those of the whole where both have an input.
        further: Has some of them.
    """
    from onnx import TensorProto, helper

    inputs = {i.name: i for graph in (further, first) for i in graph.graph.input}
    outputs = list(first.graph.output)
    weights: dict[bytes, onnx.TensorProto] = {}
    then, otherwise = (
        _branch(graph, prefix, inputs, [o.name for o in outputs], weights)
        for prefix, graph in (("further/", further), ("first/", first))
    )
    chosen = helper.make_node(
        "If", [FLAG], [o.name for o in outputs], name="branches", then_branch=then, else_branch=otherwise
    )
    flag = helper.make_tensor_value_info(FLAG, TensorProto.BOOL, [1])
    graph = helper.make_graph([chosen], "branches", [*inputs.values(), flag], outputs, list(weights.values()))
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
    """A graph without inputs of its own: the weights are those of the whole, the values have names of their own."""
    from onnx import helper

    graph = copied(model).graph
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
    there = {output.name for output in graph.output}
    del graph.output[:]
    for name in outputs:
        kept = prefix + name
        source = name if kept in there else name.replace(PRESENT, PAST)
        if kept not in there:
            graph.node.append(helper.make_node("Identity", [source], [kept], name=kept))
        value = types[source]
        graph.output.append(helper.make_value_info(kept, value.type))
    graph.name = prefix.strip("/")
    return graph


def _rename(graph: onnx.GraphProto, prefix: str, names: Mapping[str, str]) -> None:
    """Give every value of a graph and of the graphs in it another name, but for those that have one already."""

    def new(name: str) -> str:
        return names.get(name, prefix + name) if name else name

    for node in graph.node:
        node.input[:] = map(new, node.input)
        node.output[:] = map(new, node.output)
        for body in bodies(node):
            _rename(body, prefix, names)
    for value in _values(graph):
        value.name = new(value.name)


def _values(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto | onnx.TensorProto]:
    yield from (*graph.input, *graph.output, *graph.value_info, *graph.initializer)
