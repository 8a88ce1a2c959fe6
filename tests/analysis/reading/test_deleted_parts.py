"""A running job with `max_files`: its recorder deletes parts while they are read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from analysis.trace_lines import TraceLines
from conftest import clean_environment
from safety.commands import invoke

from dftrace_ai.analysis.reading import open_traces, search
from dftrace_ai.analysis.summary.table import summarise
from dftrace_ai.analysis.trace_facts import facts_of
from dftrace_ai.analysis.why import why
from dftrace_ai.errors import TraceError

PROGRAM = """
import os, select, sys
import dftrace_ai
from dftrace_ai import ai

with dftrace_ai.tracing(log_file="out/t", max_file_bytes=65536, max_files=3, overflow="wait"):
    step, told = 0, False
    while not select.select([sys.stdin], [], [], 0)[0]:
        for _ in range(2000):
            ai.update(step=step)
            step += 1
            with ai.dataloader.fetch:
                pass
            with ai.compute.forward:
                pass
        # From now on parts are deleted.
        if not told and any(".part4." in name for name in os.listdir("out")):
            told = True
            print("ready", flush=True)
print(2 * step, flush=True)
"""


def part(folder: Path, number: int, *, ended: str | None, earlier: int) -> Path:
    lines = TraceLines(100)
    lines.span("forward", "compute", 10 + number * 1000, 100)
    lines.span("backward", "compute", 510 + number * 1000, 100)
    if ended:
        lines.footer(ended=ended, part=number, **({"earlier_events": earlier} if earlier else {}))
    return lines.write(folder / f"t-host-100{f'.part{number}' * bool(number)}.pfw.gz")


def test_commands_read_a_job_that_deletes_its_parts(tmp_path: Path) -> None:
    job = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=clean_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert job.stdout is not None
        assert job.stdout.readline() == "ready\n"
        folder = tmp_path / "out"
        for _ in range(2):
            assert summarise([folder]).skipped == ()
            assert facts_of([folder]).skipped == ()
            why([folder])
        made = {
            "sql": ["select count(*) from events"],
            "convert": ["--to", "perfetto", "--out", tmp_path / "all.pfw"],
            "validate": ["--unfinished-ok"],
            "info": [],
            "summary": [],
            "why": [],
        }
        for command, more in made.items():
            done = invoke(command, folder, *more)
            assert done.status == 0, (command, done.out, done.err)
        counted = int(job.communicate("x")[0])
    finally:
        job.kill()
        job.wait()
    # What is gone is told by each, and with what is there it is everything.
    facts = facts_of([folder])
    files = sorted(folder.iterdir())
    told = [note for note in facts.notes if "deleted by max_files" in note]
    gone = int(told[0].partition("with ")[2].partition(" event")[0].replace(",", ""))
    assert (len(files), gone + facts.events) == (3, counted)
    for command in ("summary", "why"):
        value = json.loads(invoke(command, folder, "--json").out)
        notes = value.get("notes", value.get("warnings", value.get("losses")))
        assert [note for note in notes if "deleted" in note] == told, command


def test_what_was_found_can_be_read_though_it_is_deleted(tmp_path: Path) -> None:
    for number in range(1, 4):
        part(tmp_path, number, ended="rotated" if number < 3 else None, earlier=2 * number)
    traces = open_traces([tmp_path])
    for trace in traces:
        trace.path.unlink()
    assert sum(len(batch["ph"]) for batch in traces.batches(["ph"])) == 17
    assert [trace.end.closed for trace in traces] == [True, True, False]
    with pytest.raises(TraceError, match="no trace files"):
        open_traces([tmp_path])


@pytest.mark.parametrize("given", ["a directory", "files"])
def test_parts_that_go_while_they_are_looked_for_are_left_out(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [
        part(tmp_path, number, ended="rotated" if number < 3 else None, earlier=2 * number)
        for number in range(4)
    ]
    held_parts = search.held_parts

    def late(found: list[Path]) -> object:
        # The recorder is faster, once.
        if paths[0].exists():
            paths[0].unlink()
        return held_parts(found)

    monkeypatch.setattr(search, "held_parts", late)
    found = summarise([tmp_path] if given == "a directory" else paths)
    assert [Path(file.path) for file in found.files] == paths[1:]
    assert [note for note in found.warnings() if "deleted" in note] == [
        f"{tmp_path / 't-host-100'}: 1 part of 4, with 2 events, deleted by max_files, or not given"
    ]
    # A shell had found it.
    assert len(summarise(paths).files) == 3
    assert invoke("info", paths[0]).status == 2


def test_a_part_that_has_just_been_begun_is_read_as_what_it_is_named(tmp_path: Path) -> None:
    """It is empty when it is found, and no longer when it is read."""
    part(tmp_path, 1, ended="rotated", earlier=2)
    begun = tmp_path / "t-host-100.part2.pfw.gz"
    begun.touch()
    traces = open_traces([tmp_path])
    begun.write_bytes(part(tmp_path / "other", 2, ended=None, earlier=4).read_bytes())
    assert sum(len(batch["ph"]) for batch in traces.batches(["ph"])) == 11
    assert not [note for note in traces.notes if "without an event" in note]
