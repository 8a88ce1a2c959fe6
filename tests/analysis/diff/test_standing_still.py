"""Two runs of which one stands still longer for others: that is the collective's, not that of whom it is in."""

from __future__ import annotations

from pathlib import Path

import pytest
from analysis.trace_lines import TraceLines

from dftrace_ai.analysis.diff import diff

MS = 1_000_000
START_NS = 1_000_000_000
COLLECTIVES = 1_342_177_280
STEPS = 60


def write(path: Path, wait_ms: int, *, in_backward: bool) -> Path:
    """Steps that wait for an all_reduce, within backward or in no span; 5 ms of it are hidden."""
    lines = TraceLines()
    at = START_NS
    for step in range(STEPS):
        jitter = step * 7 % 11 * MS // 100
        work = 20 * MS + jitter
        call, end = at + 10 * MS, at + 5 * MS + work + wait_ms * MS
        # The sign behind which it waits is the end of a span, 5 ms behind the call.
        lines.span("forward", "compute", at + MS, 4 * MS)
        stop = end if in_backward else at + 5 * MS + work
        lines.span("backward", "compute", at + 5 * MS, stop - at - 5 * MS)
        lines.span("grad", "compute", at + 6 * MS, at + 5 * MS + work - at - 6 * MS)
        lines.span("all_reduce", "comm", call, end - call, tid=COLLECTIVES, group="0", late_us=10)
        lines.span("step", "compute", end, 2 * MS)
        lines.span("step", "pipeline", at, end + 2 * MS - at, tid=COLLECTIVES - (1 << 28))
        at = end + 3 * MS
    lines.footer()
    lines.write(path)
    return path


@pytest.mark.parametrize("in_backward", [True, False])
def test_a_longer_wait_is_the_collectives(tmp_path: Path, *, in_backward: bool) -> None:
    before, after = (
        write(tmp_path / f"{name}.pfw", wait, in_backward=in_backward)
        for name, wait in (("a", 10), ("b", 40))
    )
    found = diff(before, after)
    assert found.verdict == "slower"
    slower = {
        (row.cat, row.name, row.beside): row.change.added_ns
        for row in found.names
        if row.change.kind in {"slower", "faster", "new", "gone"}
    }
    assert slower == {("comm", "all_reduce", False): pytest.approx(30 * MS)}
    (place,) = [row.path for row in found.tree if row.change.kind == "slower"]
    around = ("compute.backward",) if in_backward else ()
    assert place == ("pipeline.step", *around, "comm.all_reduce")
