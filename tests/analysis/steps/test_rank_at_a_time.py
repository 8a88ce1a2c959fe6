"""A job is read a rank at a time: what was made of its ranks is the same in whichever order they come."""

from __future__ import annotations

import copy
import json
import random
import re
import tracemalloc
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from analysis.report.made_pages import statistics
from analysis.why.made_runs import MS, START_NS, Lines, Training

from dftrace_ai.analysis.diff import compare, conditions_of, sampling
from dftrace_ai.analysis.diff.comparing import read_run
from dftrace_ai.analysis.diff.sampling import Sampling
from dftrace_ai.analysis.reading import event_columns, open_traces
from dftrace_ai.analysis.report.run import Gathered, Run
from dftrace_ai.analysis.steps import Job, Rank, job, measure, spans, timeline
from dftrace_ai.analysis.steps.timeline import PARTS
from dftrace_ai.analysis.why import LIMITS, why
from dftrace_ai.analysis.why.verdict import verdict_of

# Ranks of three hosts: alike, slow in a step, without workers, crowded, of another length, and one
# that waits for the others.
RANKS = (
    Training(steps=40, comm_ms=4),
    Training(steps=40, comm_ms=4, slow={30: 700.0}),
    Training(steps=40, comm_ms=4, workers=0, crowded=True),
    Training(steps=40, comm_ms=4, crowded=True, slow={20: 800.0}),
    Training(steps=30, item_ms=20.0),
    Training(steps=40, comm_ms=0.1, rare=3, rare_ms=2.0),
)


def write_rank(folder: Path, rank: int, training: Training) -> None:
    """The files of a training as those of a rank, with processes of its own."""
    of_rank = folder / f"of-{rank}"
    of_rank.mkdir()
    training.write(of_rank, rank + 1)
    host = rank // 2
    for path in of_rank.glob("*.pfw"):
        text = re.sub(
            r'"(p?pid|tid)":(\d+)',
            lambda m: f'"{m[1]}":{int(m[2]) + 1000 * rank}',
            path.read_text(),
        )
        text = text.replace('"rank":0,"world_size":1', f'"rank":{rank},"world_size":{len(RANKS)}')
        text = re.sub(r'"hhash":"(\w+)"', lambda m: f'"hhash":"{m[1][:-1]}{host}"', text)
        path.write_text(text)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranks")
    for rank, training in enumerate(RANKS):
        write_rank(folder, rank, training)
    # Two that work for no rank, one of which tells of tensors.
    for pid in (90_001, 90_002):
        lines = Lines(pid)
        lines.say("data", "item", pid, MS)
        for iteration in range(20):
            at, value = START_NS + iteration * MS, float("nan") if iteration > 15 else 1.5
            statistics(lines, f"layer{pid % 2}", "output", at, iteration, value)
            lines.counter("loss", at, train=iteration / pid)
        lines.footer()
        lines.write(folder / f"t-{pid}.pfw", 10**9)
    return folder


def plain(value: Any) -> str:
    """All bits of a value of dataclasses."""
    return json.dumps(value if isinstance(value, list) else asdict(value), default=repr)


def merged_at_random(pieces: list[Any], chance: random.Random) -> Any:
    """Two of them are merged until one is left."""
    left = [copy.deepcopy(piece) for piece in pieces]
    while len(left) > 1:
        chance.shuffle(left)
        left[-2].merge(left.pop())
    return left[0]


def test_partial_results_merge_in_any_order(ranks: Path) -> None:
    traces = open_traces([ranks])
    whole = Job(traces, events=True)
    gathered, sampled = [], []
    for member in whole:
        gathered.append(Gathered(LIMITS))
        gathered[-1].add(member)
        sampled.append(Sampling())
        sampled[-1].add(member)
    figures, other = Run(ranks).figures, read_run(ranks / "of-1", [])
    told = plain(compare(other, read_run(ranks, [])))
    first_ns, wanted = whole.facts.reach.first_ns, plain(figures.verdict)
    assert wanted == plain(why([ranks]))
    assert figures.verdict.ranks == len(RANKS)
    assert figures.verdict.of_some_ranks
    assert figures.tensors is not None
    assert len(gathered) == len(RANKS) + 2
    for seed in range(20):
        chance = random.Random(seed)
        one = merged_at_random(gathered, chance)
        verdict = verdict_of(one.judged, one.others, traces, whole.facts, LIMITS)
        assert plain(verdict) == wanted
        assert plain(one.flame.graph()) == plain(figures.flame)
        charts, left_out = one.counters.charts(first_ns)
        assert [plain(chart) for chart in charts] == [plain(chart) for chart in figures.counters]
        assert left_out == figures.counters_left_out
        assert plain(one.tensors.figures(one.tensors.series)) == plain(figures.tensors)
        facts, left_out = one.processes.facts
        assert [plain(fact) for fact in facts] == [plain(fact) for fact in figures.processes]
        assert [plain(step) for step in one.slowest.figures] == [
            plain(step) for step in figures.slowest
        ]
        # Which ranks are odd is said of all of them together, when they are merged.
        rows = [replace(row, odd=False) for row in figures.ranks]
        assert [plain(row) for row in one.ranks] == [plain(row) for row in rows]
        run = merged_at_random(sampled, chance).run(str(ranks))
        assert plain(compare(other, run)) == told


def test_what_is_let_go_and_read_again_is_the_same(
    ranks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the processes of a host are too large to be held until it is known who works for whom."""
    held = replace(Run(ranks).figures, made_at="")
    told = plain(compare(read_run(ranks / "of-1", []), read_run(ranks, [])))
    monkeypatch.setattr(job, "MOST_HELD", 1)
    assert plain(replace(Run(ranks).figures, made_at="")) == plain(held)
    assert plain(compare(read_run(ranks / "of-1", []), read_run(ranks, []))) == told


def write_long(folder: Path, steps: int, *, slower: float = 1.0, calls: bool = True) -> Path:
    """One thread, all of whose steps lie in an epoch and in a training, and another one beside it."""
    chance, lines, at = random.Random(steps), Lines(100), 0
    folder.mkdir()
    for step in range(steps):
        begin, of_step = at, {"step": step, "epoch": 0}
        for cat, name, ms in (
            ("dataloader", "fetch", 1.0),
            ("compute", "forward", 3.0 * slower),
            ("compute", "backward", 5.0),
            ("compute", "step", 1.0),
        ):
            length = int(ms * MS * chance.uniform(0.9, 1.1))
            lines.say(cat, name, at, length, **of_step)
            if calls and name == "forward":
                # Of which the thread waits for a part, in the optimizer.
                call = {"group": "dp", "waited_us": 200, "waited_by": 100}
                lines.span("all_reduce", "comm", START_NS + at, 10 * MS, tid=1 << 30, **call)
            at += length + 10_000
        lines.say("pipeline", "step", begin, at - begin, **of_step)
        at += 5_000
        if step % 7 == 3:
            # It reaches into the next steps, and into the next of its kind.
            lines.span("upload", "host", START_NS + begin, 90 * MS, tid=101)
    lines.say("pipeline", "epoch", -1_000, at + 1_000)
    lines.say("pipeline", "train", -2_000, at + 2_000)
    lines.footer()
    lines.write(folder / "t-100.pfw.gz", 500)
    return folder


def look_at_few(monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    for where in (timeline, sampling, spans):
        for name in ("SPANS_AT_ONCE", "PIECES_AT_ONCE", "ROWS_AT_ONCE", "READ_AT_ONCE"):
            if hasattr(where, name):
                monkeypatch.setattr(where, name, few)


def test_a_stretch_at_a_time_all_is_the_same(
    ranks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However few spans are looked at together, and whatever reaches beyond them."""
    folders = [ranks, write_long(tmp_path / "a", 90), write_long(tmp_path / "b", 80, slower=1.2)]

    def all_told() -> list[Any]:
        runs = [read_run(folder, []) for folder in folders]
        asked = conditions_of(["comm.all_reduce mean > 1us", "pipeline.step mean > 1us"])
        told = [
            compare(*runs[1:], asked),
            compare(*runs[:2]),
            *(why([folder]) for folder in folders),
        ]
        lines = [
            [(part, (begin := steps.timeline.of(part))[1].sum() - begin[0].sum()) for part in PARTS]
            for rank in Job(open_traces([ranks])).ranks
            if (steps := measure(rank.process))
        ]
        return [*map(plain, told), *lines]

    at_once = all_told()
    look_at_few(monkeypatch, 9)
    assert all_told() == at_once


def test_of_a_long_run_little_is_held_for_each_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lies in a step is added up while it is at hand, though spans are around all of it."""
    look_at_few(monkeypatch, 300)
    monkeypatch.setattr(event_columns, "BYTES_AT_HAND", 100_000)
    runs = [(n, write_long(tmp_path / str(n), n, calls=False)) for n in (1_000, 4_000)]
    looks: dict[str, tuple[Callable[[Path], object], int]] = {
        "why": (lambda folder: why([folder]), 520),
        "diff": (lambda folder: read_run(folder, []), 700),
    }
    for name, (look, most) in looks.items():
        look(runs[0][1])  # what is imported for it is of no step
        peaks = []
        for _, folder in runs:
            tracemalloc.start()
            look(folder)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        of_step = (peaks[1] - peaks[0]) / (runs[1][0] - runs[0][0])
        assert of_step < most, (name, of_step)


def test_members_come_with_their_workers_host_by_host(ranks: Path) -> None:
    members = list(Job(open_traces([ranks])))
    found = [member for member in members if isinstance(member, Rank)]
    assert [rank.process.number for rank in found] == list(range(len(RANKS)))
    assert [len(rank.workers) for rank in found] == [one.workers for one in RANKS]
    assert len(members) == len(RANKS) + 2
    again = Job(open_traces([ranks])).again(found[3].named)
    assert [process.pid for process in again.workers] == [p.pid for p in found[3].workers]


@pytest.mark.parametrize("others", [[], ["backward"], ["backward", "step"]])
def test_passes_tell_of_a_training_where_no_host_shows_more(
    others: list[str], tmp_path: Path
) -> None:
    for host, names in enumerate([["forward"], ["forward", *others]]):
        lines = Lines(100 + host, rank=host, world_size=2, hhash=f"host{host}")
        for step in range(30):
            for number, name in enumerate(names):
                lines.say("compute", name, (step * 10 + number) * MS, MS, step=step)
        lines.footer()
        lines.write(tmp_path / f"t-host-{lines.pid}.pfw", 10**9)
    found = Job(open_traces([tmp_path])).ranks
    assert [rank.process.number for rank in found] == ([1] if "step" in others else [0, 1])
    assert all(measure(rank.process) for rank in found)
