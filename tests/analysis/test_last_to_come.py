"""Arrows from the rank that came last into a collective, as the real Perfetto engine draws them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from analysis.trace_lines import TIME_BASE_US, TraceLines, training
from perfetto import engine
from safety.commands import invoke

from dftrace_ai.analysis import last_to_come
from dftrace_ai.analysis.merging import gathering
from dftrace_ai.analysis.merging.gathering import Asked, gathered
from dftrace_ai.analysis.ranks import blocks, clock_offsets, matching
from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.reading.time_window import TimeWindow

if TYPE_CHECKING:
    from dftrace_ai.analysis.ranks.packing import Tables

MS = 1_000_000
STEPS = 30
STEP_NS = 100 * MS
LANE = 0x50000000
DAY_US = 86_400_000_000


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Four ranks on two hosts that share process ids and began on different days.

    Rank 2 comes 40 ms late into every other step's all_reduce, and rank 0 sends to rank 1.
    """
    folder = tmp_path / "job"
    for rank in range(4):
        host = "ab"[rank // 2]
        base_us = TIME_BASE_US - DAY_US * (host == "b")
        shift_ns = DAY_US * 1000 * (host == "b")
        trace = TraceLines(
            100 + rank % 2,
            host=host,
            host_hash=f"00000000000000f{host}",
            time_base_us=base_us,
            boot_id=f"boot-{host}",
            rank=rank,
            world_size=4,
        )
        group = {"name": "0", "description": "default_pg", "ranks": [0, 1, 2, 3]}
        trace.custom("process_group", json.dumps(group))
        for step in range(STEPS):
            at = shift_ns + step * STEP_NS + 123
            late = 40 * MS if rank == 2 and step % 2 else rank * 100_000
            start, end = at + 20 * MS + late, at + 70 * MS + rank * 1000
            told = {"group": "0", "step": step, "bytes": 4096}
            trace.span("forward", "compute", at, 15 * MS, step=step)
            trace.span("all_reduce", "comm", start, end - start, LANE, **told, seq=step, nth=step)
            # What lies on the same track, and is over before the collective is.
            trace.span("copy", "app", start + 1000, 5 * MS, LANE, level=2)
            if rank < 2:
                name, other = (("send", 1), ("receive", 0))[rank]
                told |= {"seq": step, "tag": 3, "peer": other}
                trace.span(name, "comm", at + 80 * MS + rank * 1000, MS, LANE + 1, **told)
            trace.span("step", "pipeline", at, 95 * MS, step=step)
        trace.footer()
        trace.write(folder / f"t-{host}-{100 + rank % 2}.pfw.gz", 500)
    return folder


def drawn(path: Path) -> Counter[tuple[str, str, str, str]]:
    """The arrows by the spans and ranks that they begin and end in."""
    shown = engine.view(path)
    assert shown.answer.clean, (shown.answer.load_error, shown.answer.stats)
    found: Counter[tuple[str, str, str, str]] = Counter()
    for flow in shown.flows:
        ends = [shown.by_id[number] for number in flow]
        spans = [shown.parent(end) for end in ends]
        begin, end = (span for span in spans if span is not None)
        assert begin.arg["seq"] == end.arg["seq"]
        assert (ends[0].ts_ns, ends[1].ts_ns) == (begin.ts_ns + 1, end.ts_ns + end.dur_ns - 1)
        tail, head = (str(shown.process_names[span.pid or 0]) for span in (begin, end))
        found[begin.name, end.name, tail, head] += 1
    return found


LATE = {
    ("all_reduce", "all_reduce", "rank 2 · b", f"rank {rank} · {host}"): STEPS // 2
    for rank, host in ((0, "a"), (1, "a"), (3, "b"))
}
SENT = {("send", "receive", "rank 0 · a", "rank 1 · a"): STEPS}


def test_arrows_lead_from_the_last_to_all_others_and_from_sends_to_receives(
    job: Path, tmp_path: Path
) -> None:
    out = tmp_path / "all.pfw.gz"
    done = invoke("convert", job, "--to", "perfetto", "--out", out, "--json")
    assert json.loads(done.out)["told"] == ["pids of 2 processes changed, since hosts share them"]
    assert done.status == 0
    assert drawn(out) == LATE | SENT


def test_of_a_window_and_of_fewer_ranks_no_arrow_has_one_end(job: Path, tmp_path: Path) -> None:
    files = open_traces([job]).files
    out = tmp_path / "some.json"
    # Beginning and ending between the tail and the heads of a late step.
    base_us = DAY_US
    window = TimeWindow(base_us + 165e3, base_us + 565e3)
    out.write_bytes(b"".join(gathered(files, Asked(window=window)).merged()))
    assert drawn(out) == dict.fromkeys(LATE, 1) | dict.fromkeys(SENT, 4)
    # Who came last of a group is not known where one of it is not there.
    some = files[:3]
    out = tmp_path / "three.json"
    out.write_bytes(b"".join(gathered(some, Asked()).merged()))
    assert drawn(out) == SENT
    alone = gathered(files[:1], Asked())
    assert (alone.tracks, alone.told) == ({}, ())


def test_what_is_not_drawn_is_told_and_fails_nothing(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(last_to_come, "MOST_ARROWS", 7)
    out = tmp_path / "all.pfw.gz"
    done = invoke("convert", job, "--to", "perfetto", "--out", out)
    assert "7 of 75 arrows are shown" in done.err
    assert sum(drawn(out).values()) == 7
    other = training(1)
    other.lines[3] = other.lines[3].replace('"run":"00ff"', '"run":"00aa"')
    other.write(job / "t-c-101.pfw")
    found = gathered(open_traces([job], run="all").files, Asked())
    assert found.tracks == {}
    arrows, clocks = found.told
    assert arrows.startswith(gathering.NO_ARROWS)
    assert clocks.startswith("clocks of hosts are not measured")
    arrows, _ = gathered(open_traces([job]).files, Asked(most_bytes=1000)).told
    assert "larger than" in arrows


def test_a_message_that_is_there_in_the_next_block_of_steps_has_its_arrow(tmp_path: Path) -> None:
    """Each is sent in one step and received in the next; blocks of steps have 256."""
    steps = 260
    for rank in (0, 1):
        trace = TraceLines(100 + rank, boot_id="boot", rank=rank, world_size=2)
        group = {"name": "0", "description": "default_pg", "ranks": [0, 1]}
        trace.custom("process_group", json.dumps(group))
        for step in range(steps):
            at = step * STEP_NS + 123
            trace.span("forward", "compute", at, 15 * MS, step=step)
            told = {"group": "0", "tag": 3, "peer": 1 - rank}
            if rank == 0 and step < steps - 1:
                trace.span("send", "comm", at + 80 * MS, MS, LANE, **told, seq=step)
            if rank == 1 and step > 0:
                trace.span("receive", "comm", at + 5 * MS, MS, LANE, **told, seq=step - 1)
            trace.span("step", "pipeline", at, 95 * MS, step=step)
        trace.footer()
        trace.write(tmp_path / f"t-{rank}.pfw.gz", 500)
    found = gathered(open_traces([tmp_path]).files, Asked())
    heads = [line for some in found.tracks.values() for line in some if b'"ph":"f"' in line]
    assert (len(heads), found.told) == (steps - 1, ())


def test_of_many_calls_few_are_held_at_once_and_the_arrows_are_the_same(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the calls of a block some steps are held at a time, and each is unpacked once."""
    held: list[int] = []
    unpacked: list[int] = []
    whole, some = blocks.Block.with_calls, blocks.tables_of

    def with_calls(block: blocks.Block, edges: list[int]) -> Iterator[blocks.Block]:
        for found in whole(block, edges):
            held.append(len(found.tables.calls.rows.name))
            yield found

    def tables_of(*given: Any) -> Tables:
        found = some(*given)
        unpacked.append(len(found.calls.rows.name))
        return found

    monkeypatch.setattr(blocks.Block, "with_calls", with_calls)
    monkeypatch.setattr(blocks, "tables_of", tables_of)
    # Messages that are left from piece to piece are among them: ten pieces of three steps.
    calls = STEPS * (4 + 2)
    monkeypatch.setattr(clock_offsets, "_CALLS", calls // 10)
    files = open_traces([job]).files
    found = []
    for pieces, lot in ((1, 1), (10, calls), (10, calls // 4), (10, 1)):
        monkeypatch.setattr(matching, "CALLS_AT_ONCE", calls // pieces)
        monkeypatch.setattr(blocks, "CALLS_IN_LOT", lot)
        held.clear()
        unpacked.clear()
        shown = gathered(files, Asked(clocks="none"))
        assert shown.told == ()
        found.append({path: [*lines] for path, lines in shown.tracks.items()})
        assert max(held) == calls // pieces
        # Of one rank in all steps, for the clocks and for the arrows.
        assert sum(unpacked) <= 2 * calls
        assert max(unpacked) == (2 * STEPS if pieces > 1 and lot < calls else calls)
    # Arrows are numbered as they come, collectives of a piece before its messages.
    assert {path: len(lines) for path, lines in found[0].items()} == {
        path: len(lines) for path, lines in found[1].items()
    }
    assert found[1] == found[2] == found[3]
    assert sum(map(len, found[1].values())) > STEPS
