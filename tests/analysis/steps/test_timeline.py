"""Whose time each moment of a thread is, of many spans at once and of one after the other."""

from __future__ import annotations

import random

import numpy as np
import pytest

from dftrace_ai.analysis.steps.roles import CODE, ROLES
from dftrace_ai.analysis.steps.spans import Spans
from dftrace_ai.analysis.steps.timeline import timeline_of

FAR_NS = 10**9

Row = tuple[int, int, str]


def spans_in_order(rows: list[Row]) -> Spans:
    """Return spans of one thread, sorted as those of a trace are."""
    rows = sorted(rows, key=lambda row: (row[0], -row[1]))
    start, end = (np.array([row[at] for row in rows], np.int64) for at in (0, 1))
    number = np.arange(len(rows))
    roles = np.array([CODE[role] for *_, role in rows], np.uint8)  # type: ignore[index]
    return Spans(start, end, roles, number * 0, number, number * 0, number, ())


def nested(noise: random.Random, rows: list[Row], low: int, high: int, depth: int) -> None:
    """Put spans into a stretch of time, some without length, some as long as what is around."""
    now = low
    while now < high and len(rows) < 30:
        start = now + noise.choice([0, 0, 1, 3, 10])
        end = min(start + noise.choice([0, 1, 3, 10, 40, 200]), high)
        if start >= high:
            return
        rows.append((start, end, noise.choice(ROLES)))
        if depth and noise.random() < 0.6:
            nested(noise, rows, start, end, depth - 1)
        now = end


def test_time_is_the_same_spans_whether_or_not_others_cut_each_other_later() -> None:
    noise = random.Random(4)
    pieces = 0
    for near_ns in (0, 2) * 300:
        rows: list[Row] = []
        nested(noise, rows, 0, noise.choice([50, 300, 1000]), 5)
        tidy = timeline_of(spans_in_order(rows), near_ns)
        cut = [(FAR_NS, FAR_NS + 50, "data"), (FAR_NS + 20, FAR_NS + 90, "comm")]
        line = timeline_of(spans_in_order(rows + cut), near_ns)
        assert line.end_ns[-2:].tolist() == [FAR_NS + 20, FAR_NS + 90]
        for name in ("start_ns", "end_ns", "part", "span"):
            assert getattr(tidy, name).tolist() == getattr(line, name)[:-2].tolist(), (rows, name)
        pieces += len(tidy.part)
    assert pieces > 1000


def test_it_is_the_same_in_how_many_stretches_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many spans only some are looked at at once; a span around all of them has no time."""
    noise = random.Random(5)
    for near_ns in (0, 2) * 100:
        rows: list[Row] = [(0, 1000, "transparent")]
        nested(noise, rows, 0, 1000, 5)
        if noise.random() < 0.3:
            rows += [(400, 450, "data"), (420, 490, "comm")]
        spans = spans_in_order(rows)
        whole = timeline_of(spans, near_ns)
        with monkeypatch.context() as patch:
            patch.setattr("dftrace_ai.analysis.steps.timeline.SPANS_AT_ONCE", 3)
            parts = timeline_of(spans, near_ns)
        for name in ("start_ns", "end_ns", "part", "span"):
            assert getattr(whole, name).tolist() == getattr(parts, name).tolist(), (rows, name)
