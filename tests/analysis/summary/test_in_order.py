"""Spans read as they come lie in the same ones, with the same own times, as those that are sorted."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from analysis.trace_lines import small_trace

from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.summary.chosen_events import InOrder, NotInOrderError, Sorted
from dftrace_ai.analysis.summary.durations import Spread


def nested(noise: random.Random, start: int, end: int, depth: int) -> Iterator[tuple[int, int]]:
    """Spans within some time, those inside of others before them."""
    at = start
    while depth and at < end and noise.random() < 0.8:
        begin = noise.randint(at, end)
        until = noise.randint(begin, end)
        yield from nested(noise, begin, until, depth - 1)
        yield begin, until
        at = until + noise.choice([0, 0, 1])


def written(noise: random.Random, folder: Path, number: int) -> Path:
    lines = ["[", '{"name":"thread_name","ph":"M","pid":1,"tid":1,"args":{"name":"main"}}']
    # Few moments make many spans without length, and many of the same times.
    moments = noise.choice([12, 10**6])
    for tid in (1, 2):
        spans = list(nested(noise, 0, moments, 4))
        ids = list(range(len(spans), 0, -1)) if noise.random() < 0.5 else [0] * len(spans)
        for id, (begin, end) in zip(ids, spans):
            time = f'"ts":{begin},"dur":{end - begin}' if noise.random() < 0.98 else '"dur":5'
            lines.append(
                f'{{"id":{id},"name":"s{len(lines)}","cat":"c","pid":1,"tid":{tid},{time},"ph":"X"}}'
            )
    path = folder / f"t{number}.pfw"
    path.write_text("\n".join([*lines, "]", ""]))
    return path


def told(reading: InOrder | Sorted) -> dict[str, tuple[int, int, str]]:
    """Of each span its duration, its own time, and the name of that around it."""
    (batch,) = list(reading.batches(parents=True)) or [None]
    if batch is None:
        return {}
    names = [label.name for label in reading.events.labels]
    name = [names[code] for code in batch.label.tolist()]
    around = [name[at] if at >= 0 else "" for at in reading.parents().tolist()]
    return dict(zip(name, zip(batch.dur_ns.tolist(), batch.own_ns.tolist(), around)))


def test_both_ways_to_read_spans_agree(tmp_path: Path) -> None:
    noise = random.Random(5)
    in_order = 0
    for number in range(150):
        traces = open_traces([written(noise, tmp_path, number)]).files
        try:
            found = told(InOrder(traces))
        except NotInOrderError:
            continue
        in_order += 1
        assert found == told(Sorted(traces))
    assert 50 < in_order < 140


def test_recorded_spans_are_read_as_they_come(tmp_path: Path) -> None:
    path = small_trace().write(tmp_path / "t.pfw.gz")
    assert told(InOrder(open_traces([path]).files))


def test_durations_that_were_added_apart_come_to_the_same() -> None:
    noise = random.Random(6)
    for sizes in ((3, 5), (100, 100), (3, 400), (400, 3), (500, 500)):
        parts = [np.array([noise.randint(0, 10**6) for _ in range(size)]) for size in sizes]
        together, first, second = Spread(), Spread(), Spread()
        together.add(np.concatenate(parts), 30)
        first.add(parts[0], 10)
        second.add(parts[1], 20)
        first.take(second)
        assert first.figures("c", "n", 7) == together.figures("c", "n", 7)
