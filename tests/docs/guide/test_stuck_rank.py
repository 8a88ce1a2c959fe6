"""The page on the stuck rank shows what the commands print about its example."""

from __future__ import annotations

import inspect
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import LEAN_ENDS, SCRIPT_LIMIT_S, clean_environment
from live.made import dead, process, snapshot_of
from live.programs import dftrace, until
from live.terminal import Terminal

from dftrace_ai.errors import TraceError
from dftrace_ai.live import RankStatus, find_stuck, snapshot
from dftrace_ai.live import stuck as judging
from dftrace_ai.live.verdict_words import verdict_lines
from docs.pages import DOCS, EXAMPLES, blocks, plain, section, table

PAGE = DOCS / "guide" / "find-the-stuck-rank.md"
PATHS = {0: ["comm.all_reduce", 2], 1: ["dataloader.fetch.iter", 1]}


def there(processes: list[RankStatus]) -> bool:
    return {p.rank: [p.place[-1].label, p.step] for p in processes if p.place} == PATHS


def seen_in(folder: Path) -> list[RankStatus]:
    try:
        return snapshot([folder]).processes
    except TraceError:
        return []  # it has not begun


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory in which the example runs; it traces into `out` there."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("stuck")
    with (folder / "said").open("w") as said:
        running = subprocess.Popen(
            [sys.executable, EXAMPLES / "stuck_rank.py", "out"],
            cwd=folder,
            env={
                **clean_environment(),
                **LEAN_ENDS,
                "OMP_NUM_THREADS": "1",
                "GLOO_SOCKET_IFNAME": "lo",
            },
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
    try:
        (folder / "out").mkdir(exist_ok=True)
        until(lambda: seen_in(folder / "out"), there)
        yield folder
    finally:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait(SCRIPT_LIMIT_S)


def shown(language: str, mark: str) -> str:
    (text,) = [block.text for block in blocks(PAGE, language) if mark in block.text]
    return text


def without_figures(text: str) -> list[str]:
    """The words of the lines, without what differs from run to run."""
    text = re.sub(r"\b\d+(\.\d+)? (s|ms|min)\b(?! *step)", "TIME", text)
    text = re.sub("─+", "RULE", text)
    text = re.sub(r"run [0-9a-f]{8}", "run RUN", text)
    # Kernels differ in the names of their functions, and not all tell them.
    text = re.sub(r"^  (sleeps( in \w+)?|runs)\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"processes {2}\S+ {2}for TIME {2}\S+", "processes HOST TIME CLOCK", text)
    return [" ".join(line.split()) for line in text.splitlines()]


def test_the_verdict_is_as_shown(job: Path) -> None:
    told = dftrace("stuck", "--idle", "0", job / "out")
    assert told.status == 1, told.err
    text = shown("text", "$ dftrace stuck out").removeprefix("$ dftrace stuck out\n")
    assert without_figures(text) == [*without_figures(told.out), "$ echo $?", str(told.status)]
    assert dftrace("stuck", "--idle", "3600", job / "out").status == 0


def test_the_live_view_is_as_shown(job: Path) -> None:
    expected = shown("text", "$ dftrace top out").removeprefix("$ dftrace top out\n")

    def as_shown(frame: list[str]) -> bool:
        text = "\n".join(frame)
        return [*filter(None, without_figures(text))] == without_figures(expected)

    # The ranks have to be in their places for as long as the window and the patience of the marks.
    with Terminal("top", job / "out", "--interval", "0.2", columns=100) as terminal:
        terminal.until(as_shown)
        terminal.type("q")
        assert terminal.wait() == 0


def test_a_large_job_reads_as_shown() -> None:
    text = shown("text", "255 ranks in")
    train = ("pipeline.train", "pipeline.epoch.block")
    ranks = [
        process(rank, *train, "comm.all_reduce", for_s=61 + rank / 85)
        for rank in range(256)
        if rank != 17
    ]
    ranks.append(process(17, *train, "dataloader.fetch.iter", for_s=63.0, step=11))
    assert [line for line, _ in verdict_lines(find_stuck(snapshot_of(*ranks)))] == text.splitlines()


def test_a_death_reads_as_shown() -> None:
    text = shown("text", "rank 1 died")
    train = ("pipeline.train", "pipeline.epoch.block")
    waiting = process(0, *train, "comm.all_reduce", for_s=61.0)
    died = dead(1, *train, "comm.all_reduce", for_s=35.0)
    lines = [line for line, _ in verdict_lines(find_stuck(snapshot_of(waiting, died)))]
    assert lines[1:] == text.splitlines()


def run_block(text: str, stubs: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = f'dftrace() {{ {sys.executable} -m dftrace_ai.cli "$@"; }}\nexport -f dftrace\n'
    return subprocess.run(
        ["bash", "-c", command + stubs + text],
        cwd=folder,
        env={**clean_environment(), "SLURM_JOB_ID": "77", "JOB": "77"},
        capture_output=True,
        text=True,
        timeout=SCRIPT_LIMIT_S,
        check=False,
    )


def test_the_watchdog_ends_the_job_that_is_stuck(job: Path) -> None:
    block = shown("sh", "scancel")
    assert "--idle 300" in block
    done = run_block(
        block.replace("--idle 300", "--idle 0"),
        "sleep() { :; }\nscancel() { echo cancelled $1; }\n",
        job,
    )
    assert (done.stdout, done.stderr) == ("cancelled 77\n", "")
    assert "likely cause" in (job / "stuck.txt").read_text()
    assert json.loads((job / "stuck.json").read_text())["kind"] == "dftrace snapshot"
    kept = dftrace("stuck", "--idle", "0", job / "stuck.json")
    assert without_figures(kept.out) == without_figures((job / "stuck.txt").read_text())
    assert "comm.all_reduce" in dftrace("top", "--once", job / "stuck.json").out


def test_the_watchdog_ends_with_the_job(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    stubs = "sleep() { :; }\nscancel() { echo cancelled; }\n"
    done = run_block(shown("sh", "scancel"), stubs, tmp_path)
    assert done.stdout == ""
    assert "nothing was recorded here" in done.stderr


def test_the_snapshots_of_all_hosts_are_put_together(job: Path) -> None:
    # In place of each host's step: the one that there is.
    stubs = 'srun() { while [[ $1 == --* ]]; do shift; done; "$@"; }\nhostname() { echo node7; }\n'
    stubs += 'export -f hostname\nsh() { bash "$@"; }\n'
    block = shown("sh", "srun").replace("dftrace stuck", "dftrace stuck --idle 0")
    done = run_block(block, stubs, job)
    assert done.returncode == 1, done.stderr
    assert "likely cause" in done.stdout
    assert [path.name for path in (job / "seen").iterdir()] == ["node7.json"]


def test_the_remarks_are_those_that_are_made() -> None:
    rows = table(
        section(PAGE, "Watching with top").partition("| remark | |")[2].join(["| remark | |", ""])
    )
    words = {word for row in rows for word in plain(row[0]).split(", ")}
    made = set(re.findall(r'Mark\(\s*"([\w ]+)"', inspect.getsource(judging))) | {"slow", "busy"}
    assert words == made
