"""Patterns in quotes: the files that match, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from analysis.trace_lines import small_trace
from safety.commands import invoke

from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.errors import TraceError


def test_a_pattern_stands_for_the_files_that_match(tmp_path: Path) -> None:
    for name in ("a-1.pfw", "a-2.pfw.gz", "b-1.pfw", "deep/er/a-3.pfw", "odd/[x]*.pfw"):
        small_trace().write(tmp_path / name)

    def opened(*patterns: str) -> list[str]:
        traces = open_traces([tmp_path / pattern for pattern in patterns])
        assert all(trace.file.asked_for for trace in traces)
        return [str(trace.path.relative_to(tmp_path)) for trace in traces]

    assert opened("a-*.pfw*") == ["a-1.pfw", "a-2.pfw.gz"]
    assert opened("?-1.pfw", "a-[12].*") == ["a-1.pfw", "a-2.pfw.gz", "b-1.pfw"]
    assert opened("**/a-*") == ["a-1.pfw", "a-2.pfw.gz", "deep/er/a-3.pfw"]
    # What exists is meant by its name.
    assert opened("odd/[x]*.pfw") == ["odd/[x]*.pfw"]
    with pytest.raises(TraceError, match="no file matches this pattern"):
        opened("c-*.pfw")


def test_every_command_takes_patterns(tmp_path: Path) -> None:
    small_trace().write(tmp_path / "a.pfw")
    small_trace(200).write(tmp_path / "b.pfw")
    small_trace(300).write(tmp_path / "c.txt")
    for command in ("summary", "validate", "why"):
        done = invoke(command, tmp_path / "*.pfw")
        assert done.status == 0, done.err
    assert "20 events in 2 files" in invoke("summary", tmp_path / "*.pfw").out
    for command in ("summary", "validate", "why", "view"):
        done = invoke(command, tmp_path / "none*.pfw")
        assert (done.status, done.out) == (2, "")
        assert done.err == f"dftrace: {tmp_path}/none*.pfw: no file matches this pattern\n"


def test_what_matches_is_held_to_what_is_given(tmp_path: Path) -> None:
    small_trace().write(tmp_path / "a.pfw")
    (tmp_path / "b.pfw").write_text("no trace")
    done = invoke("summary", tmp_path / "*.pfw")
    assert done.status == 2
    assert "b.pfw: not a trace file" in done.err
