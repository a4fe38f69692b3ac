"""The parts of a graph for XNNPACK need each other in one order only."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit_targets.executorch.partitions import in_order, parts_by_depth


def graph_of(needs: list[list[int]]) -> tuple[torch.fx.Graph, list[torch.fx.Node]]:
    """Return a graph whose operators take the given earlier operators, or else the input."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    nodes: list[torch.fx.Node] = []
    for needed in needs:
        nodes.append(graph.call_function(torch.add, tuple(nodes[n] for n in needed) or (x,)))
    graph.output(nodes[-1])
    return graph, nodes


def test_a_part_with_a_path_out_and_back_is_divided() -> None:
    graph, (first, outside, last) = graph_of([[], [0], [0, 1]])
    assert in_order(graph, [[first], [last]])
    assert not in_order(graph, [[first, last]])
    assert parts_by_depth(graph, [[first], [last]]) == [[first], [last]]
    assert parts_by_depth(graph, [[first], [outside], [last]]) == [[first, outside, last]]


def test_parts_that_need_each_other_are_divided() -> None:
    graph, (a, b, c, d) = graph_of([[], [], [1], [0]])
    assert not in_order(graph, [[a, c], [b, d]])
    (part,) = parts_by_depth(graph, [[a], [b], [c], [d]])
    assert set(part) == {a, b, c, d}


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_the_parts_of_any_graph_hold_every_group_whole_and_have_an_order(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 14))
    graph, nodes = graph_of(
        [sorted(data.draw(st.sets(st.integers(0, n - 1), max_size=3))) if n else [] for n in range(count)]
    )
    pairs = [[node] for node in nodes if data.draw(st.booleans())]
    if len(pairs) > 1 and in_order(graph, [pairs[0] + pairs[1], *pairs[2:]]):
        pairs = [pairs[0] + pairs[1], *pairs[2:]]
    parts = parts_by_depth(graph, pairs)
    assert in_order(graph, parts)
    assert {node for part in parts for node in part} == {node for pair in pairs for node in pair}
    assert all(sum(bool(set(pair) & set(part)) for part in parts) == 1 for pair in pairs)
