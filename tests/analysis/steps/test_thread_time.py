"""What the native reader says of the spans of a thread, against the same moment by moment."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from dftrace_ai import _reader
from dftrace_ai.analysis.steps.roles import CODE, ROLES, Role
from dftrace_ai.analysis.steps.timeline import (
    NO_CODE,
    OTHER_CODE,
    PART_TABLE,
    WITHIN,
    Part,
    part_within,
)

WORK: tuple[Role, ...] = ("forward", "backward", "optimizer", "wait")
DRAWN: tuple[Role, ...] = (*WORK, "other", "comm", "checkpoint", "evaluation", "compute")
Columns = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]


def columns(spans: list[tuple[int, int, Role]]) -> Columns:
    starts, ends, roles = zip(*spans, strict=True)
    codes = [CODE[role] for role in roles]
    return np.array(starts, np.int64), np.array(ends, np.int64), np.array(codes, np.uint8)


def numbers(*found: bytes) -> list[list[int]]:
    return [np.frombuffer(one, np.int64).tolist() for one in found]


def nested(made: random.Random, low: int, high: int, depth: int) -> list[tuple[int, int, Role]]:
    """Spans of which none cuts another, by their start, those around others before them."""
    found: list[tuple[int, int, Role]] = []
    while low + 1 < high and made.random() < 0.8:
        start = made.randrange(low, high - 1)
        end = made.randrange(start + 1, high)
        found.append((start, end, made.choice(DRAWN)))
        if depth:
            found += nested(made, start, end, depth - 1)
        low = end
    return found


def test_each_moment_belongs_to_the_innermost_span() -> None:
    made = random.Random(1)
    for _ in range(400):
        spans = nested(made, 1, 60, 3)
        if not spans:
            continue
        counts = np.array([made.random() < 0.9 for _ in spans])
        pieces = _reader.thread_pieces(columns(spans), counts, PART_TABLE, 0)
        starts, ends = numbers(*pieces[:2])
        parts, owners = (
            np.frombuffer(one, kind) for one, kind in zip(pieces[2:], "Bi", strict=True)
        )
        told = {
            moment: (int(part), int(owner))
            for start, end, part, owner in zip(starts, ends, parts, owners, strict=True)
            for moment in range(start, end)
        }
        for moment in range(60):
            part, owner = NO_CODE, -1
            for row, (start, end, role) in enumerate(spans):
                if not counts[row] or not start <= moment < end:
                    continue
                inner = int(WITHIN[part, CODE[role]])
                if inner != part or (inner == OTHER_CODE and role == "other"):
                    part, owner = inner, row
            assert told.get(moment, (NO_CODE, -1)) == (part, owner), (spans, moment)
        assert starts == sorted(starts)
        assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))


def test_spans_that_cut_each_other_end_with_those_around_them() -> None:
    spans: list[tuple[int, int, Role]] = [(0, 10, "forward"), (6, 14, "backward"), (20, 30, "wait")]
    pieces = _reader.thread_pieces(columns(spans), np.ones(3, bool), PART_TABLE, 0)
    assert numbers(*pieces[:2]) == [[0, 6, 20], [6, 14, 30]]
    # Neighbours whose times are rounded follow each other.
    spans = [(0, 10, "forward"), (9, 10, "backward")]
    pieces = _reader.thread_pieces(columns(spans), np.ones(2, bool), PART_TABLE, 1)
    assert numbers(*pieces[:2]) == [[0, 9], [9, 10]]


def test_work_that_lies_in_none_is_found() -> None:
    made = random.Random(2)
    kinds = np.array([1 if role in WORK else 2 * (role == "other") for role in ROLES], np.uint8)
    for _ in range(400):
        spans = nested(made, 1, 60, 3)
        if not spans:
            continue
        whole, mixed = numbers(*_reader.outermost_work(columns(spans), kinds, PART_TABLE))
        work = [row for row, span in enumerate(spans) if span[2] in WORK]
        within = {
            row: [other for other in range(row) if spans[other][1] > span[0]]
            for row, span in enumerate(spans)
        }
        tops = [row for row in work if not set(within[row]) & set(work)]
        begun = [
            row
            for row, (start, _, role) in enumerate(spans)
            if role == "other" and not any(spans[top][0] <= start < spans[top][1] for top in tops)
        ]
        chosen = sorted(work + begun)
        outer = [row for row in chosen if not set(within[row]) & set(chosen)]
        inside = {top: [row for row in chosen if top in within[row]] for top in outer}

        def is_mixed(top: int, inside: dict[int, list[int]] = inside) -> bool:
            own: Part = part_within("none", spans[top][2])
            return any(
                own == "other" or part_within(own, spans[row][2]) != own for row in inside[top]
            )

        assert whole == [top for top in outer if not is_mixed(top)]
        assert mixed == [row for top in outer if is_mixed(top) for row in (top, *inside[top])]


def test_pieces_are_cut_and_covered() -> None:
    made = random.Random(3)
    for _ in range(200):
        edges = sorted(made.sample(range(50), 8))
        starts, ends = (np.array(edges[at::2], np.int64) for at in (0, 1))
        cuts = np.array(sorted(made.sample(range(50), made.randrange(6))), np.int64)
        found = numbers(*_reader.cut_pieces(starts, ends, cuts))
        wanted = []
        for number, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            inside = [start, *(cut for cut in cuts.tolist() if start < cut < end), end]
            wanted += [(number, *pair) for pair in zip(inside, inside[1:], strict=False)]
        assert [*zip(*found, strict=True)] == wanted
        lows = np.array([made.randrange(50) for _ in range(9)], np.int64)
        highs = lows + np.array([made.randrange(20) for _ in range(9)])
        moments = [at for a, b in zip(starts, ends, strict=True) for at in range(int(a), int(b))]
        (told,) = numbers(_reader.covered((starts, ends), lows, highs))
        assert told == [
            sum(low <= at < high for at in moments) for low, high in zip(lows, highs, strict=True)
        ]


def test_spans_are_in_order_of_time() -> None:
    made = random.Random(4)
    starts, ends, ids = (
        np.array([made.randrange(most) for _ in range(500)]) for most in (100, 5, 2**40)
    )
    ends += starts
    order = np.argsort(starts, kind="stable")
    (found,) = numbers(_reader.time_order(order, starts, ends, ids.astype(np.uint64)))
    assert found == np.lexsort((ids, -ends, starts)).tolist()


def test_events_reach_from_the_first_start_to_the_last_end() -> None:
    phases = np.frombuffer(b"XXCM", np.uint8)
    starts, lengths = np.array([5, -1, 9, 99]), np.array([7, 50, -1, -1])
    assert _reader.event_reach(phases, starts, lengths, ord("M"), 1000) == (5, 12)
    assert _reader.event_reach(phases, starts, lengths, ord("M"), 10) == (5, 12)
    assert _reader.event_reach(phases[:0], starts[:0], lengths[:0], ord("M"), 10) is None


def test_what_cannot_be_is_refused() -> None:
    spans = columns([(0, 4, "forward"), (5, 6, "wait")])
    counts, kinds = np.ones(2, bool), np.zeros(len(ROLES), np.uint8)
    one = np.zeros(1, np.int64)
    for wrong in (
        lambda: _reader.thread_pieces((*spans[:2], spans[2][:1]), counts, PART_TABLE, 0),
        lambda: _reader.thread_pieces(spans, counts[:1], PART_TABLE, 0),
        lambda: _reader.thread_pieces(spans, counts, (WITHIN[:, :3], 2, 0, 0), 0),
        lambda: _reader.outermost_work(spans, kinds[1:], PART_TABLE),
        lambda: _reader.outermost_work((*spans[:2], spans[2] + np.uint8(200)), kinds, PART_TABLE),
        lambda: _reader.cut_pieces(one, one[:0], one),
        lambda: _reader.covered((one, one), one, one[:0]),
        lambda: _reader.time_order(one + 1, one, one, one.astype(np.uint64)),
        lambda: _reader.event_reach(np.zeros(2, np.uint8), one, one, 0, 9),
    ):
        with pytest.raises((ValueError, BufferError)):
            wrong()
