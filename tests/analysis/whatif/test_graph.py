"""The graph says what an event heap says that shares nothing with it; circles are named."""

from __future__ import annotations

import numpy as np
import pytest
from event_heap import Script, ends_of, random_script
from sampling import times

from dftrace_ai.analysis.whatif.graph import ALONE, CircleError, Graph


def _graph(script: Script) -> Graph:
    pairs = np.array(script.before, np.int64).reshape(-1, 2)
    meeting = [ALONE if one is None else one for one in script.meeting]
    return Graph(
        pairs[:, 0],
        pairs[:, 1],
        np.array(meeting, np.int64),
        np.array(script.gives, bool),
        np.array(script.waits, bool),
    )


def _longest_paths(script: Script) -> list[int]:
    """The same by networkx: the longest path to each end."""
    networkx = pytest.importorskip("networkx")  # torch brings it
    graph = networkx.DiGraph()
    for one, number in enumerate(script.meeting):
        takes = script.takes[one]
        graph.add_edge(("begin", one), ("end", one), takes=takes)
        if number is not None and script.gives[one]:
            graph.add_edge(("begin", one), ("meeting", number), takes=0)
        if number is not None and script.waits[one]:
            graph.add_edge(("meeting", number), ("end", one), takes=takes)
    for first, second in script.before:
        graph.add_edge(("end", first), ("begin", second), takes=0)
    found: dict[object, int] = {}
    for node in networkx.topological_sort(graph):
        found[node] = max(
            (found[one] + graph.edges[one, node]["takes"] for one in graph.predecessors(node)),
            default=0,
        )
    return [found["end", one] for one in range(len(script.takes))]


@pytest.mark.sampled
def test_ends_are_those_of_an_event_heap() -> None:
    for seed in range(times(1000, 0.1)):
        script = random_script(seed)
        columns = np.stack([script.takes, np.array(script.takes) * 3 + 1], 1).astype(np.int64)
        found = _graph(script).ends(columns)
        assert found[:, 0].tolist() == ends_of(script), seed
        assert found[:, 1].tolist() == ends_of(script, columns[:, 1].tolist()), seed
        if seed % 5 == 0:
            assert found[:, 0].tolist() == _longest_paths(script), seed


def test_operations_of_a_circle_are_named_and_not_what_comes_after_it() -> None:
    script = Script()
    first = script.do(1)
    one, other = script.do(1, first), script.do(1)
    script.before += [(one, other), (other, one)]
    after = script.do(1, other)
    script.do(1, after)
    with pytest.raises(CircleError) as raised:
        _graph(script)
    assert raised.value.operations.tolist() == [one, other]
