"""Where a report is to be written is looked at before anything is read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from analysis.trace_lines import small_trace
from safety.commands import invoke

from dftrace_ai.errors import DftraceError
from dftrace_ai.page.files import new_file


def test_what_is_in_the_way_is_told_before_anything_is_read(tmp_path: Path) -> None:
    foreign = tmp_path / "notes.html"
    foreign.write_text("mine")
    unread = tmp_path / "no traces"
    for words, part in (
        (["-o", foreign], "is no report of ours"),
        (["-o", foreign, "--json"], "is no report of ours"),
        (["-o", tmp_path], "is a directory"),
        (["-o", tmp_path / "missing" / "page.html"], "no such directory"),
        (["-o", tmp_path / "page.html", "--plots", foreign], "cannot be made"),
    ):
        done = invoke("report", unread, *words)
        assert (done.status, done.out, len(done.err.splitlines())) == (2, "", 1)
        assert part in done.err
    assert "no such file" in invoke("report", unread, "-o", foreign, "--force").err
    assert foreign.read_text() == "mine"


def test_no_force_replaces_what_others_write_to(tmp_path: Path) -> None:
    traces, pipe, link = (tmp_path / name for name in ("t.pfw.gz", "pipe", "link"))
    small_trace().write(traces)
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for path in (pipe, link):
        done = invoke("report", traces, "-o", path, "--force")
        assert (done.status, len(done.err.splitlines())) == (2, 1)
        assert "is left as it is" in done.err
        with pytest.raises(DftraceError, match="is left as it is"), new_file(path):
            pass
    assert pipe.is_fifo()
    assert link.is_symlink()


def test_a_report_of_ours_is_replaced(tmp_path: Path) -> None:
    path, page = small_trace().write(tmp_path / "t.pfw.gz"), tmp_path / "page.html"
    assert invoke("report", path, "-o", page).status == 0
    os.truncate(page, len(page.read_bytes()) // 2)
    assert invoke("report", path, "-o", page).status == 0
    assert page.read_text().rstrip().endswith("</html>")


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to this user")
def test_a_directory_that_is_closed_is_told_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    done = invoke("report", tmp_path / "no traces", "-o", tmp_path / "closed" / "page.html")
    assert (done.status, done.out) == (2, "")
    assert "Permission denied" in done.err
