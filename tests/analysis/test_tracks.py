"""Which spans lie inside of which, and their own time, held against a plain computation."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dftrace_ai.analysis.tracks import own_ns, parents_of, track_order


class Span(NamedTuple):
    """A span on a track."""

    track: int
    start: int
    dur: int
    id: int

    @property
    def end(self) -> int:
        return self.start + self.dur


spans = st.lists(
    st.builds(Span, st.integers(1, 2), st.integers(0, 20), st.integers(0, 8), st.integers(0, 3)),
    max_size=25,
)


def parent_of(number: int, found: list[Span], near: int) -> int:
    """The last before it in order that encloses it."""
    own = found[number]
    for other in range(number - 1, -1, -1):
        outer = found[other]
        if outer.track != own.track or outer.end + near < own.end:
            continue
        if outer.end > own.start or outer.end == own.end:
            return other
    return -1


def own_of(number: int, found: list[Span], parents: list[int]) -> int:
    """The nanoseconds of a span in which none directly inside of it lies."""
    inner = [span for at, span in enumerate(found) if parents[at] == number]
    own = found[number]
    return sum(
        not any(span.start <= moment < span.end for span in inner)
        for moment in range(own.start, own.end)
    )


@settings(max_examples=200, deadline=None)
@given(given=spans, near=st.sampled_from([0, 0, 2]))
def test_each_span_lies_in_the_last_that_began_around_it(given: list[Span], near: int) -> None:
    columns = np.array(given, np.int64).reshape(-1, 4).T
    track, start, dur, ids = columns
    order = track_order(track, start, start + dur, ids)
    found = [given[at] for at in order.tolist()]
    keys = [(span.track, span.start, -span.end, span.id) for span in found]
    assert keys == sorted(keys)
    start, end = start[order], (start + dur)[order]
    parents = parents_of(track[order], start, end, near)
    assert parents.tolist() == [parent_of(at, found, near) for at in range(len(found))]
    own = own_ns(parents, start, end)
    assert own.tolist() == [own_of(at, found, parents.tolist()) for at in range(len(found))]


def test_many_spans_in_a_row_are_soon_done() -> None:
    """Each asks the one before it; the distances double, or this would take hours."""
    count = 200_000
    start = np.arange(count) * 10
    parents = parents_of(np.zeros(count), start, start + 5)
    assert (parents == -1).all()
    around = np.concatenate([[0], start])
    ends = np.concatenate([[10 * count], start + 5])
    parents = parents_of(np.zeros(count + 1), around, ends)
    assert (parents[1:] == 0).all()
    assert own_ns(parents, around, ends)[0] == 5 * count
