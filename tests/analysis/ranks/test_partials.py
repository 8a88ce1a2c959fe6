"""What a rank says for the whole job: steps, own work, silences and calls, by its files."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from analysis.trace_lines import TraceLines

from dftrace_ai.analysis.ranks.job import RanksOfJob, read_ranks
from dftrace_ai.analysis.ranks.partials import UNTOLD, Group, StepsChunk
from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.reading.argument_members import NO_NUMBER, Wanted
from dftrace_ai.analysis.reading.event_columns import event_columns
from dftrace_ai.analysis.steps import Job, measure
from dftrace_ai.analysis.steps.timeline import covered_within
from dftrace_ai.errors import TraceError

MS = 1_000_000
BEGIN = 1_000_000_000
COLLECTIVES, STEP_TRACK, STREAM = 1_342_177_280, 1_073_741_825, 1_342_177_281
RANKS = 4
STEPS = 300


def rank_lines(rank: int, first: int = 0, steps: int = STEPS, **header: Any) -> TraceLines:
    """A rank of two groups that computes for `rank` ms longer in its backward, and waits else."""
    facts = {"rank": rank, "world_size": RANKS, "local_rank": rank, "cpus": 8, **header}
    pair = [rank // 2 * 2, rank // 2 * 2 + 1]
    lines = TraceLines(100 + rank, host="node1", layout=f"dp={rank // 2},pp={rank % 2}", **facts)
    for name, about, ranks in (("0", "all", [3, 2, 1, 0]), ("1", "pp", pair)):
        said = {"name": name, "description": about, "ranks": ranks}
        lines.custom("process_group", json.dumps(said))
    for number in range(steps):
        at, step = BEGIN + number * 100 * MS, first + number
        lines.span("step", "pipeline", at, 100 * MS, tid=STEP_TRACK, step=step)
        lines.span("fetch.iter", "dataloader", at, 5 * MS, count=number + 1, step=step)
        lines.span("forward", "compute", at + 5 * MS, 20 * MS)
        message = {"group": "1", "peer": pair[1 - rank % 2], "tag": 7, "waited_us": 9000}
        message["stage_index"] = rank % 2 + 2 * (number % 3 != 0)  # as of two chunks a rank
        lines.span("receive", "comm", at + 6 * MS, 10 * MS, tid=COLLECTIVES, seq=step, **message)
        reduced = {"group": "0", "nth": number, "bytes": 4096, "until": "waited"}
        began, ended = at + (40 + rank) * MS, at + 90 * MS
        lines.span("all_reduce", "comm", began, ended - began, tid=COLLECTIVES, seq=step, **reduced)
        lines.span("backward", "compute", at + 25 * MS, 65 * MS)
        lines.span("log", "logging", at + 92 * MS, 3 * MS)
    lines.footer()
    return lines


def written(folder: Path, *ranks: TraceLines) -> Path:
    for number, lines in enumerate(ranks):
        lines.write(folder / f"t{number}.pfw.gz", lines_a_block=700)
    return folder


def test_what_a_rank_says_is_what_why_measures(tmp_path: Path) -> None:
    traces = open_traces([written(tmp_path, *(rank_lines(rank, 1000) for rank in range(RANKS)))])
    job = read_ranks(traces)
    assert [one.place.rank for one in job.ranks] == [*range(RANKS)]
    assert not job.missing
    for rank, measured in zip(job.ranks, Job(traces).ranks, strict=True):
        number = rank.place.rank
        steps = measure(measured.process)
        assert steps is not None
        assert rank.place.layout == (("dp", number // 2), ("pp", number % 2))
        assert (rank.place.host, rank.place.cpus, rank.place.stage) == ("node1", 8, number % 2)
        assert rank.stage == number % 2
        assert [*rank.chunks] == [3, 4, 5]
        chunks = rank.chunks.values()
        numbers, time, blocked = (
            np.concatenate([getattr(chunk.steps, name) for chunk in chunks])
            for name in ("number", "time_ns", "blocked_ns")
        )
        assert numbers.tolist() == [*range(1000, 1000 + STEPS)]
        assert time.tolist() == steps.time_ns.tolist()
        assert blocked.tolist() == steps.parts["comm"].tolist()
        own = np.concatenate([chunk.own_ns(len(rank.names)) for chunk in chunks])
        assert (own.sum(1) + blocked == time).all()
        names = [*rank.names, "not annotated"]
        assert {name: ns // MS for name, ns in zip(names, own[0].tolist(), strict=True)} == {
            "receive": 0,
            "all_reduce": 0,
            "logging/log": 3,
            "not annotated": 7,
            "dataloader/fetch.iter": 5,
            "compute/forward": 11,
            "compute/backward": 15 + number,
        }
        assert (own == own[0]).all()
        pair = (number // 2 * 2, number // 2 * 2 + 1)
        assert rank.groups == (Group("1", "pp", pair), Group("0", "all", (0, 1, 2, 3)))
        for chunk in chunks:
            calls, still = chunk.calls, chunk.silences
            inside = covered_within(*still[:2], chunk.steps.start_ns, chunk.steps.end_ns)
            assert inside.tolist() == chunk.steps.blocked_ns.tolist()
            assert [rank.names[name] for name in calls.name[:2]] == ["receive", "all_reduce"]
            assert calls.group[:2].tolist() == [0, 1]
            assert calls.peer[:2].tolist() == [pair[1 - number % 2], UNTOLD]
            assert calls.tag[:2].tolist() == [7, UNTOLD]
            assert calls.nth[1] == calls.seq[1] - 1000
            assert (calls.step == np.repeat(np.arange(len(chunk.steps.number)), 2)).all()
            assert (still.call == np.arange(len(calls.step))).all()


def test_a_silence_is_one_whatever_begins_and_ends_beneath_it(tmp_path: Path) -> None:
    lines = TraceLines(1, rank=0, world_size=2)
    for number in range(6):
        at = BEGIN + number * 100 * MS
        lines.span("step", "pipeline", at, 100 * MS, tid=STEP_TRACK, step=number)
        lines.span("forward", "compute", at + 10 * MS, 20 * MS)
        lines.span("backward", "compute", at + 40 * MS, 20 * MS)
        told = {"group": "0", "seq": number, "bytes": 8, "waited_us": 30_000}
        lines.span("all_reduce", "comm", at + 5 * MS, 45 * MS, tid=COLLECTIVES, **told)
    lines.footer()
    (rank,) = read_ranks(open_traces([written(tmp_path, lines)])).ranks
    (chunk,) = rank.chunks.values()
    still = chunk.silences
    assert (still.end_ns - still.start_ns).tolist() == [30 * MS] * 6
    assert still.call.tolist() == [*range(6)]
    assert chunk.steps.blocked_ns.tolist() == [30 * MS] * 6
    # 20 ms of forward and 10 ms of backward lie beneath it.
    assert chunk.spans.blocked_ns.tolist() == [10 * MS, 10 * MS] * 6


def test_work_is_of_the_innermost_span_of_another_part(tmp_path: Path) -> None:
    """An optimizer that is given a closure holds the forward and backward of all of Lightning."""
    lines = TraceLines(1, rank=0, world_size=2)
    for number in range(6):
        at = BEGIN + number * 100 * MS
        lines.span("step", "pipeline", at, 100 * MS, tid=STEP_TRACK, step=number)
        lines.span("train_batch", "loop", at + 1 * MS, 95 * MS)
        lines.span("fetch.iter", "dataloader", at + 2 * MS, 4 * MS)
        lines.span("item", "data", at + 3 * MS, 2 * MS)  # for which the loop waits
        lines.span("step", "compute", at + 10 * MS, 80 * MS)
        lines.span("forward", "compute", at + 12 * MS, 40 * MS)
        lines.span("forward.layer", "compute", at + 15 * MS, 20 * MS)
        lines.span("norm", "mine", at + 40 * MS, 5 * MS)  # a piece of that forward
        lines.span("backward", "compute", at + 54 * MS, 30 * MS)
        lines.span("forward", "compute", at + 60 * MS, 7 * MS)  # checkpointed
        lines.span("log", "logging", at + 91 * MS, 3 * MS)
    lines.footer()
    (rank,) = read_ranks(open_traces([written(tmp_path, lines)])).ranks
    own = np.concatenate([chunk.own_ns(len(rank.names)) for chunk in rank.chunks.values()])
    names = [*rank.names, "not annotated"]
    assert (own == own[0]).all()
    assert {name: ns // MS for name, ns in zip(names, own[0].tolist(), strict=True)} == {
        "loop/train_batch": 95 - 4 - 80 - 3,
        "dataloader/fetch.iter": 4,
        "compute/step": 80 - 40 - 30,
        "compute/forward": 40 + 7,
        "compute/backward": 30 - 7,
        "logging/log": 3,
        "not annotated": 5,
    }
    for chunk in rank.chunks.values():
        assert (chunk.spans.end_ns[:-1] <= chunk.spans.start_ns[1:]).all()


def test_a_call_and_the_interval_of_the_stream_beside_it_are_one(tmp_path: Path) -> None:
    """With a time on the device that of the device counts; waits of a stream are no calls."""
    lines = TraceLines(100, host="node1", rank=0, world_size=1, local_rank=0, cpus=8)
    for number in range(20):
        at = BEGIN + number * 100 * MS
        lines.span("step", "pipeline", at, 100 * MS, tid=STEP_TRACK, step=number)
        lines.span("forward", "compute", at + 5 * MS, 20 * MS)
        told = {"group": "0", "nth": number, "bytes": 4096}
        lines.span("all_reduce", "comm", at + 30 * MS, MS, COLLECTIVES, until="enqueued", **told)
        beside = {"device": 0, "stream": 0, "error_us": 20, "p_idx": lines.last_id}
        lines.span("bcast", "comm", at + 32 * MS, MS, COLLECTIVES, until="enqueued", **told)
        lines.span(
            "all_reduce",
            "gpu.comm",
            at + 40 * MS,
            25 * MS,
            STREAM,
            **told,
            **beside,
        )
        lines.span("wait", "gpu.comm", at + 70 * MS, 5 * MS, STREAM, **beside)
    lines.footer()
    (rank,) = read_ranks(open_traces([written(tmp_path, lines)])).ranks
    calls = [chunk.calls for chunk in rank.chunks.values()]
    name = np.concatenate([one.name for one in calls])
    lasted = np.concatenate([one.end_ns - one.start_ns for one in calls])
    found = [
        (rank.names[at], ns // MS) for at, ns in zip(name.tolist(), lasted.tolist(), strict=True)
    ]
    assert found == [("bcast", 1), ("all_reduce", 25)] * 20


def test_ranks_that_are_missing_twice_or_of_other_runs(tmp_path: Path) -> None:
    few = {"steps": 6}
    job = read_ranks(
        open_traces([written(tmp_path / "a", rank_lines(1, **few), rank_lines(3, **few))])
    )
    assert job.missing == (0, 2)
    nameless = TraceLines(7)
    for step in range(6):
        nameless.span("step", "pipeline", BEGIN + step * MS, MS)
    nameless.footer()
    job = read_ranks(open_traces([written(tmp_path / "b", rank_lines(1, **few), nameless)]))
    assert len(job.ranks) == 1
    assert "a process with steps and no rank of the job: left out: host:7" in job.notes
    # By itself it is a training of one rank; of two nobody knows which is which.
    assert len(read_ranks(open_traces([written(tmp_path / "c", nameless)])).ranks) == 1
    another = TraceLines(8)
    another.lines += [line.replace('"pid":7', '"pid":8') for line in nameless.lines[4:]]
    with pytest.raises(TraceError, match="which rank it is of"):
        read_ranks(open_traces([written(tmp_path / "c", nameless, another)]))
    other = rank_lines(1, **few)
    other.lines = [line.replace('"pid":101', '"pid":201') for line in other.lines]
    with pytest.raises(TraceError, match="rank 1 is there twice: process 101 and 201"):
        read_ranks(open_traces([written(tmp_path / "d", rank_lines(1, **few), other)]))
    with pytest.raises(TraceError, match="traces of 2 runs: 00ff, 11ee"):
        lines = rank_lines(0, **few), rank_lines(1, run="11ee", run_id="b", **few)
        read_ranks(open_traces([written(tmp_path / "e", *lines)]))


def test_ranks_in_any_order_are_one_job(tmp_path: Path) -> None:
    traces = open_traces([written(tmp_path, *(rank_lines(rank) for rank in range(RANKS)))])
    ranks = [*read_ranks(traces).ranks]
    told = set()
    for seed in range(20):
        random.Random(seed).shuffle(ranks)
        job = RanksOfJob.of(ranks, ["two", "one"])
        totals = [block.total_own_ns.tobytes() + block.numbers.tobytes() for block in job.blocks()]
        told.add((b"".join(totals), job.notes, job.missing))
    assert len(told) == 1
    ((totals, _, _),) = told
    assert len(totals) == (RANKS + 1) * STEPS * 8


def test_who_goes_through_the_steps_has_each_chunk_unpacked_once(tmp_path: Path) -> None:
    asked: Counter[int] = Counter()

    class Packed(Mapping[int, StepsChunk]):
        def __init__(self, chunks: Mapping[int, StepsChunk]) -> None:
            self.chunks = chunks

        def __getitem__(self, number: int) -> StepsChunk:
            asked[number] += 1
            return self.chunks[number]

        def __iter__(self) -> Iterator[int]:
            return iter(self.chunks)

        def __len__(self) -> int:
            return len(self.chunks)

    folder = written(tmp_path, *(rank_lines(rank) for rank in range(3)))
    ranks = read_ranks(open_traces([folder])).ranks
    job = RanksOfJob.of(replace(one, chunks=Packed(one.chunks)) for one in ranks)
    steps = [block.numbers for block in job.blocks("steps")]
    assert np.concatenate(steps).tolist() == list(range(STEPS))
    assert set(asked.values()) == {len(ranks)}


def test_members_of_arguments_are_those_that_json_has(tmp_path: Path) -> None:
    made = random.Random(0)
    texts = ("", "0", "a b", 'q"', "\\", "\u00e9", "until", '"seq":5', "{}", "x" * 80)
    numbers = (0, 7, -3, 2**62, 2**70, 1.5, 1592.846, 1e3, True, None, [1, {"seq": 2}], {"seq": 3})
    names = ("seq", "bytes", "late_us", "group", "until", "other", 'se"q', "seq ")
    lines, told = [], []
    for number in range(2000):
        pairs = [
            (made.choice(names), made.choice((*numbers, *texts))) for _ in range(made.randrange(7))
        ]
        style = made.choice([(",", ":"), (", ", ": ")])
        ascii_only = bool(number % 2)
        inner = style[0].join(
            style[1].join(json.dumps(one, ensure_ascii=ascii_only) for one in pair)
            for pair in pairs
        )
        lines.append(
            f'{{"id":{number + 1},"name":"n","cat":"c","pid":1,"tid":1,"ts":1,"dur":1,"ph":"X",'
            f'"args":{{{inner}}}}}'
        )
        told.append(dict(pairs))
    path = tmp_path / "t.pfw"
    path.write_text("".join(line + "\n" for line in lines), "utf-8")
    wanted = Wanted(lambda _cat, _name: True, ("seq", "bytes"), ("late_us",), ("group", "until"))
    (columns,) = event_columns(open_traces([path]), (wanted,))
    (members,) = columns.arguments.members
    words = members.texts
    assert members.rows.tolist() == [*range(2000)]
    values = zip(*(members.columns[name].tolist() for name in wanted.names), strict=True)
    for found, args in zip(values, told, strict=True):
        for name, value in zip(("seq", "bytes"), found, strict=False):
            whole = args.get(name)
            if isinstance(whole, str) and whole.isdecimal() and whole.isascii():
                whole = int(whole)
            fits = type(whole) is int and abs(whole) < 2**63
            assert value == (whole if fits else NO_NUMBER), (name, args)
        micros = args.get("late_us")
        if type(micros) in {int, float} and abs(micros) < 2**50:
            assert found[2] == round(micros * 1000), args
        elif not isinstance(micros, int):
            assert found[2] == NO_NUMBER, args
        for name, place in zip(("group", "until"), found[3:], strict=True):
            assert (place == -1) == (name not in args), (name, args)
            if isinstance(args.get(name), str):
                assert words[place] == args[name]
