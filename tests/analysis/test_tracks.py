"""Which spans lie inside of which, their own time, and sums put together in any order."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dftrace_ai._reader import Sums
from dftrace_ai.analysis.summary.event_reading import (
    NONE,
)
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


def column(*values: int) -> Any:
    return np.array(values, np.int64)


def part(noise: random.Random, number: int) -> Sums:
    """Spans of a process: names that all have, of which some have few and some have many."""
    sums = Sums(1 << 30)
    count = noise.choice([0, 3, 40, 100, 400])
    group, name = (np.array(noise.choices(range(3), k=count), np.int64) for _ in range(2))
    dur = np.array([noise.randint(0, 10 ** noise.randint(1, 15)) for _ in range(count)], np.int64)
    none = np.full(count, NONE)
    chosen = np.array(noise.choices([True, False], k=count), bool)
    start = np.arange(count, dtype=np.int64)
    sums.add(group, none, name, start, dur, dur // 3, chosen if number % 2 else None)
    return sums


@pytest.mark.parametrize("wall", [7, None, ...])
def test_sums_of_parts_are_the_same_in_any_order(wall: Any) -> None:
    noise = random.Random(6)
    parts = [part(noise, number) for number in range(12)]
    rows = []
    for _ in range(20):
        noise.shuffle(parts)
        # Some are put together before they are put to the others.
        cut = noise.randrange(len(parts))
        whole = Sums(1 << 30)
        for each in parts[cut:] + parts[:cut]:
            whole.take(each, wall, None)
        rows.append(whole.rows(100))
    # As other processes send them: some together, by names of their own.
    sent = Sums(1 << 30)
    for some in (parts[:5], parts[5:]):
        of_some = Sums(1 << 30)
        for each in some:
            of_some.take(each, wall, None)
        sent.take_packed(of_some.packed(), [0, 1, 2], None)
    rows.append(sent.rows(100))
    assert rows[0]
    assert {figures[2] for figures in rows[0]} - set(range(129)), "some have too many to keep"
    assert all(again == rows[0] for again in rows)


def test_sums_of_sums_are_those_of_the_whole() -> None:
    noise = random.Random(7)
    times = [noise.randint(0, 10**6) for _ in range(500)]
    for cut in (0, 3, 100, 128, 129, 400, 500):
        sums = [Sums(1 << 20) for _ in range(4)]
        for of_some, some in zip(sums, (times[:cut], times[cut:], times)):
            none = np.full(len(some), NONE)
            of_some.add(none, none, none, none, column(*some), column(*some), None)
        first, second, together, both = sums
        both.take(first, 1, None)
        both.take(second, 1, None)
        whole = Sums(1 << 20)
        whole.take(together, 1 if cut in (0, 500) else 2, None)
        assert both.rows(9) == whole.rows(9)


def test_what_was_sent_wrongly_is_refused() -> None:
    noise = random.Random(8)
    sums = Sums(1 << 30)
    for number in range(4):
        sums.take(part(noise, number + 1), 7, None)
    good = sums.packed()
    refused = 0
    for _ in range(3000):
        bad = np.frombuffer(good, np.int64).copy()
        for at in noise.choices(range(len(bad)), k=noise.randint(1, 3)):
            bad[at] = noise.choice([-1, 0, 1, 2**62, -(2**63), 2**63 - 1, noise.randrange(1000)])
        try:
            Sums(1 << 24).take_packed(bad.tobytes()[: noise.choice([None, -8])], [0, 1, 2], None)
        except (ValueError, OverflowError, MemoryError):
            refused += 1
    assert refused > 500
    for names, groups in (([0], None), ([0, 1, 2], [0])):
        with pytest.raises(ValueError, match="no packed sums"):
            Sums(1 << 24).take_packed(good, names, groups)
    renamed = Sums(1 << 24)
    renamed.take_packed(good, [5, 6, 7], [4, 5, 6])
    assert {row[:2] for row in renamed.rows(99)} == {
        ((first + 4, NONE), name + 5) for (first, _), name, *_ in sums.rows(99)
    }


def test_columns_that_do_not_fit_are_refused() -> None:
    sums, one, two = Sums(1 << 20), column(1), column(1, 2)
    with pytest.raises(ValueError, match="other lengths"):
        sums.add(one, one, one, one, one, two, None)
    with pytest.raises(ValueError, match="other lengths"):
        sums.add(two, two, two, two, two, two, np.array([True]))
    sums.add(one, one, one, one, one, one, None)
    with pytest.raises(ValueError, match="a number for each group"):
        Sums(1 << 20).take(sums, None, [1, 2])
    with pytest.raises(ValueError, match="of itself"):
        sums.take(sums, None, None)
    with pytest.raises(OverflowError):
        Sums(1000).add(*[np.arange(1000)] * 6, None)
