"""Samples of stacks as readers have them: by any spelling of their lines, and beside lines that cannot be."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from analysis.lines.made_stacks import A_CHUNK, MadeStacks
from analysis.trace_lines import TIME_BASE_US, TraceLines
from safety.commands import invoke

from dftrace_ai.analysis.lines.stack_samples import StackReader
from dftrace_ai.analysis.reading import open_traces

MS = 1_000_000
SAMPLES = 3 * A_CHUNK
MAIN, DECODE = ("main", "train.py", 41), ("decode", "train.py", 88)
WITHOUT_NODES = re.compile(r'"ProfileChunk"(?!.*"nodes")')


def written(folder: Path, change: Callable[[str], str]) -> Path:
    """A trace of two threads, whose lines of samples without nodes were changed."""
    trace = TraceLines(100)
    for tid in (100, 7):
        stacks = MadeStacks(trace, 0, 100, tid)
        for number in range(SAMPLES):
            stacks.ready_us = 300
            stacks.sample(
                (10 * number + tid % 3) * MS,
                [MAIN, DECODE][: 1 + number % 2],
                number,
                number % 7 == 0,
            )
    trace.lines = [change(line) if WITHOUT_NODES.search(line) else line for line in trace.lines]
    return trace.write(folder / "t-a-100.pfw")


def columns_of(path: Path) -> tuple[list[list[int]], list[str]]:
    reader = StackReader()
    (found,) = reader.read(open_traces([path]).files)
    return [column.tolist() for column in found.columns], reader.notes


def in_other_words(change: Callable[[dict[str, Any]], object]) -> Callable[[str], str]:
    def changed(line: str) -> str:
        event = json.loads(line)
        change(event["args"])
        return json.dumps(event)

    return changed


def turned(args: dict[str, Any]) -> None:
    args["data"] = {"more": [{}], **dict(reversed(args["data"].items())), "nodes": 5}


@pytest.mark.parametrize(
    "change",
    [
        in_other_words(lambda _: None),
        in_other_words(turned),
        in_other_words(lambda of: of.pop("hhash")),
    ],
    ids=["spaces", "another order", "no host"],
)
def test_samples_are_the_same_however_their_lines_are_written(
    change: Callable[[str], str], tmp_path: Path
) -> None:
    for name in ("own", "other"):
        (tmp_path / name).mkdir()
    own, notes = columns_of(written(tmp_path / "own", str))
    assert [len(column) for column in own] == 8 * [2 * SAMPLES]
    assert notes == []
    other = written(tmp_path / "other", change)
    assert columns_of(other) == (own, [])
    at_ns, tid, _, cpu_ns, since_ns, cut, period_ns, ready_ns = own
    assert sorted(at_ns) == at_ns
    assert (sorted(set(tid)), set(period_ns), set(ready_ns)) == ([7, 100], {10 * MS}, {6000})
    of_one = [at for at, thread in enumerate(tid) if thread == 7]
    assert [cpu_ns[at] // 1000 for at in of_one] == list(range(SAMPLES))
    assert [cut[at] for at in of_one] == [int(number % 7 == 0) for number in range(SAMPLES)]
    assert {since_ns[at] for at in of_one[1:]} == {10 * MS}


@pytest.mark.parametrize(
    "change",
    [
        ('"samples":[', '"samples":[99,'),
        ('"timeDeltas":[', '"timeDeltas":[-'),
        ('"timeDeltas":[', '"timeDeltas":[9007199254740992,'),
        ('"timeDeltas":[1', '"timeDeltas":[99999999999999999999'),
        ('"timeDeltas":[1', '"timeDeltas":[1.5'),
        ('"timeDeltas":[1', '"timeDeltas":["1"'),
        ('"cpu":[', '"cpu":[-2,'),
        ('"cut":[', '"cut":[1,'),
        ('"ready":', '"late":[1],"ready":'),
        ('"ready":', '"ready":-2,"more":'),
    ],
)
def test_a_line_that_cannot_be_is_left_out_whole_and_counted(
    change: tuple[str, str], tmp_path: Path
) -> None:
    found, notes = columns_of(written(tmp_path, lambda line: line.replace(*change, 1)))
    assert len(notes) == 1
    assert "4 lines of samples that cannot be read" in notes[0]
    # Those with nodes stay.
    assert len(found[0]) == 2 * A_CHUNK


@pytest.mark.parametrize(
    ("change", "unread"),
    [
        (('"hz":100', '"hz":1.2e-7'), 4),  # each stands for 8,000 years
        ((f'"time_base_us":{TIME_BASE_US}', '"time_base_us":4611686018427387904'), 0),
    ],
    ids=["periods", "time base"],
)
def test_times_that_cannot_be_have_no_part_in_any_sum(
    change: tuple[str, str], unread: int, tmp_path: Path
) -> None:
    late = f'"late":{json.dumps([1000] * A_CHUNK, separators=(",", ":"))},"ready":'
    path = written(tmp_path, lambda line: line.replace('"ready":', late))
    path.write_text(path.read_text().replace(*change))
    summary = invoke("summary", path, "--by", "line", "--json")
    told = json.loads(summary.out)
    assert sum(line["share"] for line in told["lines"]) == pytest.approx(1)
    assert sum(line["samples"] for line in told["lines"] if line["function"] == "main") == (
        2 * SAMPLES - A_CHUNK * unread
    )
    assert (f"{unread} lines of samples that cannot be read" in summary.out) == bool(unread)
    out = tmp_path / "out.speedscope.json"
    assert invoke("convert", path, "--to", "speedscope", "-o", out).status == bool(unread)
    for profile in json.loads(out.read_bytes())["profiles"]:
        assert 0 < profile["endValue"] == sum(profile["weights"]) < 2**63
