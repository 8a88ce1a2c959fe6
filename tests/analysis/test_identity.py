"""Who is who: processes that have a number in common, ranks that were started again, and runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from analysis.trace_lines import TraceLines
from analysis.why.made_runs import START_NS, Lines
from conftest import clean_environment
from safety.commands import invoke

from dftrace_ai.analysis.ranks.job import read_ranks
from dftrace_ai.analysis.reading import open_traces

SECOND_NS = 1_000_000_000
STEPS = 40
JUDGED = "is judged; give the files of another to judge that"
MS = 1_000_000


def rank(
    number: int | None, *, pid: int = 1, at_s: float = 0, first: int = 0, **header: Any
) -> TraceLines:
    """A rank of two that trains for 0.8 s."""
    told = {} if number is None else {"rank": number, "world_size": 2}
    lines = Lines(pid, **{**told, **header})
    at_ns = START_NS + int(at_s * SECOND_NS)
    for step in range(STEPS):
        begin = at_ns + step * 20 * MS
        lines.span("fetch.iter", "dataloader", begin, MS, count=step + 1, step=first + step)
        lines.span("forward", "compute", begin + 2 * MS, 9 * MS, step=first + step)
        lines.span("backward", "compute", begin + 11 * MS, 8 * MS, step=first + step)
        lines.span("fetch.block", "dataloader", begin + MS, 19 * MS, count=step + 1)
    return lines


def worker(number: int | None, *, pid: int, at_s: float = 0, **header: Any) -> TraceLines:
    told = {} if number is None else {"rank": number, "world_size": 2}
    lines = Lines(pid, **{**told, "ppid": 1, **header})
    for item in range(STEPS):
        at_ns = START_NS + int(at_s * SECOND_NS) + item * 20 * MS
        lines.span("item", "data", at_ns, 5 * MS)
    return lines


def put(folder: Path, **traces: TraceLines) -> Path:
    for name, lines in traces.items():
        lines.footer()
        lines.write(folder / f"{name.replace('_', '-')}.pfw.gz", 10**6)
    return folder


def asked(folder: Path, query: str, run: str = "last") -> list[tuple[Any, ...]]:
    done = invoke("sql", folder, query, "--json", "--run", run)
    assert done.status == 0, done.err
    return [tuple(row.values()) for row in json.loads(done.out)]


def judged(folder: Path) -> dict[str, Any]:
    return json.loads(invoke("why", folder, "--json").out)


NAMED = {"boot_id": "b0", "pid_namespace": 7, "process_start": 50}
APART = {
    "rank": ({}, {}, (0, 1), 0),
    "rank, one after the other": ({}, {}, (0, 1), 5),
    "rank, and a namespace": (NAMED, {**NAMED, "pid_namespace": 8}, (0, 1), 0),
    "namespace": (NAMED, {**NAMED, "pid_namespace": 8}, (None, None), 0),
    "boot": (NAMED, {**NAMED, "boot_id": "b1"}, (None, None), 0),
    "start": (NAMED, {**NAMED, "process_start": 51}, (None, None), 0),
    "names": ({}, {}, (None, None), 0),
}


@pytest.mark.parametrize("way", APART)
def test_two_processes_of_one_number_are_two_everywhere(way: str, tmp_path: Path) -> None:
    one, other, (left, right), later = APART[way]
    ranks = rank(left, **one), rank(right, at_s=later + 0.001, **other)
    folder = put(tmp_path / "out", t_host_1=ranks[0], t_host_1_1=ranks[1])
    verdict = judged(folder)
    assert (verdict["ranks"], verdict["steps"]["count"]) == (2, STEPS), verdict["notes"]
    assert asked(folder, "select process, count(*) from steps group by 1 order by 1") == [
        (0, STEPS),
        (1, STEPS),
    ]
    assert asked(folder, "select rank, files from processes order by 1, 2") == [
        (number, [str(folder / name)])
        for number, name in sorted(
            [(left, "t-host-1.pfw.gz"), (right, "t-host-1-1.pfw.gz")],
            key=lambda each: (each[0] or 0, each[1]),
        )
    ]
    by_process = json.loads(invoke("summary", folder, "--by", "process", "--json").out)
    counts = {row["group"]: row["count"] for row in by_process["spans"]}
    assert list(counts.values()) == [STEPS] * 2
    threads = json.loads(invoke("summary", folder, "--by", "thread", "--json").out)
    assert {row["group"].rpartition(" 1 ")[0] for row in threads["spans"]} == set(counts)
    invoke("convert", folder, "--to", "perfetto", "--out", tmp_path / "all.pfw")
    invoke("convert", folder, "--to", "parquet", "--out", tmp_path / "all")
    lines = [json.loads(line) for line in (tmp_path / "all.pfw").read_text().splitlines()[1:]]
    shown = {line["pid"]: line["args"]["name"] for line in lines if line["name"] == "process_name"}
    assert len(shown) == 2 == len({line["pid"] for line in lines if line["ph"] == "X"})
    found = {path.parent.name for path in (tmp_path / "all").rglob("0*.parquet")}
    assert found == {"no-rank" if one is None else f"rank-{one}" for one in (left, right)}
    assert invoke("validate", folder).status == 0


def test_a_rank_that_was_started_again_is_one_rank(tmp_path: Path) -> None:
    """Other starts have other names of a run, or the same; what is judged is the last."""
    folder = tmp_path / "out"
    again = {"run_id": "job", "world_size": 8, "rank": 5}
    put(
        folder,
        t_host_70=rank(5, pid=70, **again, run="aa", restarts=0),
        t_host_71=rank(5, pid=71, **again, run="bb", restarts=1, at_s=2, first=25),
        t_host_71_1=rank(5, pid=71, **again, run="cc", restarts=2, at_s=4, first=30),
        t_host_71_2=rank(5, pid=71, **again, run="cc", restarts=2, at_s=6, first=35),
    )
    verdict = judged(folder)
    assert (verdict["ranks"], verdict["steps"]["count"]) == (1, STEPS)
    assert verdict["slowest"][0]["at_us"] >= (START_NS + 6 * SECOND_NS) / 1000
    assert verdict["length_ns"] < SECOND_NS
    assert [note.replace(verdict["began_at"], "THEN") for note in verdict["notes"]] == [
        f"rank 5 was started 4 times; the last start, which began at THEN, {JUDGED}",
        "run cc: 7 ranks without a file: 0, 1, 2, 3, 4, 6, 7",
    ]
    assert asked(folder, "select rank, attempt, len(files) from processes order by 2") == [
        (5, number, 1) for number in (1, 2, 3, 4)
    ]
    assert asked(folder, "select count(*), count(distinct process) from steps") == [(160, 4)]
    for command in ("summary", "info", "report", "sql", "convert", "view", "diff", "validate"):
        assert "rank 5 was started 4 times" in said(command, folder), command


def test_the_start_of_ranks_that_is_asked_for_is_read(tmp_path: Path) -> None:
    """Each start has its name of a run; rank 0 leaves no file of the second, as killed at once."""
    folder = tmp_path / "out"
    job = {"run_id": "job"}
    put(
        folder,
        t_host_70=rank(0, pid=70, **job, run="aa", restarts=0),
        t_host_71=rank(1, pid=71, **job, run="aa", restarts=0),
        t_host_72=worker(1, pid=72, at_s=2, **job, run="bb", restarts=1),
        t_host_73=rank(0, pid=73, **job, run="cc", restarts=2, at_s=4, first=30),
        t_host_74=rank(1, pid=74, **job, run="cc", restarts=2, at_s=4, first=30),
    )
    for attempt, pids in ((1, [70, 71]), (3, [73, 74])):
        done = invoke("whatif", folder, "--without", "rank=1", "--attempt", str(attempt))
        assert done.status == 0, done.err
        read = read_ranks(open_traces([folder]), attempt=attempt).ranks
        assert [one.place.pid for one in read] == pids
    second = invoke("ranks", folder, "--attempt", "2")
    assert second.status == 2
    assert "rank 1 have no step of a training in start 2; --attempt 1 reads" in second.err


@pytest.mark.parametrize("number", [None, 0])
def test_processes_that_say_no_rank_or_the_same_are_told_by_their_numbers(
    number: int | None, tmp_path: Path
) -> None:
    """As of `mp.spawn`: one of two waits for its loader, and no rank 0 is accused of it."""
    header = {} if number is None else {"rank": number}
    slow = Lines(20903, **header)
    for step in range(STEPS):
        begin = START_NS + step * 20 * MS
        slow.span("fetch.iter", "dataloader", begin, 11 * MS, count=step + 1, step=step)
        slow.span("forward", "compute", begin + 12 * MS, 3 * MS, step=step)
        slow.span("backward", "compute", begin + 15 * MS, 4 * MS, step=step)
        slow.span("fetch.block", "dataloader", begin + MS, 19 * MS, count=step + 1)
    folder = put(tmp_path / "out", t_host_20871=rank(None, pid=20871, **header), t_host_20903=slow)
    verdict = judged(folder)
    (finding,) = [one for one in verdict["findings"] if one["kind"] == "input-bound"]
    assert " On 1 of 2 processes: process 20903." in finding["what"]
    assert (verdict["rank"], finding["rank"], finding["ranks"]) == (None, None, [])
    text = invoke("why", folder).out
    assert "rank 0" not in text
    assert "process 20903 are shown" in text


def said(command: str, folder: Path, run: str = "last") -> str:
    """What a command says of traces, of itself and in its page."""
    page = folder.with_suffix(".html")
    page.unlink(missing_ok=True)
    more = {
        "sql": ["select count(*) from spans"],
        "convert": ["--to", "perfetto", "--out", page],
        "report": ["-o", page],
        "diff": [folder],
        "view": ["--steps", "999"],
    }
    chosen = [] if command == "diff" else ["--run", run]
    done = invoke(command, folder, *more.get(command, []), *chosen)
    text = page.read_text() if command == "report" else ""
    return " ".join((done.out + done.err + text).split())


def test_two_runs_are_never_ranks_of_one(tmp_path: Path) -> None:
    folder = put(
        tmp_path / "out",
        t_host_1=rank(0, pid=70, run="aa", world_size=1),
        t_host_2=rank(0, pid=71, run="bb", world_size=1, at_s=0.3),
        t_host_3=rank(None, pid=72, run="cc", at_s=9),
    )
    verdict = judged(folder)
    assert (verdict["ranks"], verdict["steps"]["count"]) == (1, STEPS)
    assert verdict["slowest"][0]["at_us"] >= (START_NS + 9 * SECOND_NS) / 1000
    assert verdict["notes"] == []
    told = "these are traces of 3 runs, and not of ranks of one"
    for command in ("summary", "info", "report", "sql", "convert", "view", "validate"):
        assert told in said(command, folder, "all"), command
        assert "the newest run of these; 2 older ones" in said(command, folder), command
    assert "the newest run of these; 2 older ones" in said("diff", folder)


def test_ranks_that_know_no_name_of_their_run_are_of_one(tmp_path: Path) -> None:
    """Torchrun has none by default; a second launch into the folder is another run."""
    folder = tmp_path / "out"
    launch = {"ppid": 7, "launcher": "torchrun"}
    put(
        folder,
        t_host_1=rank(0, pid=70, run="aa", **launch),
        t_host_2=rank(1, pid=71, run="bb", **launch, at_s=0.3),
    )
    verdict = judged(folder)
    assert (verdict["ranks"], verdict["steps"]["count"], verdict["notes"]) == (2, STEPS, [])
    assert "of 1 run," in said("info", folder)
    put(
        folder,
        t_host_3=rank(1, pid=80, run="cc", **{**launch, "ppid": 8}, at_s=0.4),
        t_host_4=rank(0, pid=81, run="dd", **{**launch, "ppid": 8}, at_s=0.5),
    )
    verdict = judged(folder)
    assert verdict["ranks"] == 2
    assert asked(folder, "select rank, run from processes order by run") == [(1, "cc"), (0, "dd")]
    assert len(asked(folder, "select run from processes", "all")) == 4


def test_workers_are_of_the_rank_in_whose_container_they_are(tmp_path: Path) -> None:
    """Each rank has number 1, so each worker's parent has."""
    folder = put(
        tmp_path / "out",
        t_host_1=rank(0),
        t_host_1_1=rank(1),
        t_host_9=worker(0, pid=9),
        t_host_9_1=worker(1, pid=9),
        t_host_10=worker(1, pid=10),
    )
    verdict = judged(folder)
    assert (verdict["ranks"], verdict["notes"]) == (2, [])
    invoke("convert", folder, "--to", "perfetto", "--out", tmp_path / "all.pfw")
    lines = [json.loads(line) for line in (tmp_path / "all.pfw").read_text().splitlines()[1:]]
    named = [line["args"]["name"] for line in lines if line["name"] == "process_name"]
    assert named[-5:] == [
        "rank 0 · host",
        "rank 0 · host · worker 1",
        "rank 1 · host",
        "rank 1 · host · worker 1",
        "rank 1 · host · worker 2",
    ]


PROGRAM = """
import sys
import dftrace_ai
from dftrace_ai import ai

with dftrace_ai.tracing(log_file="out/t"):
    print(flush=True)
    sys.stdin.read(1)
    for step in range(40):
        ai.update(step=step)
        with ai.dataloader.fetch:
            pass
        with ai.compute.forward:
            sum(range(20_000))
"""


def test_ranks_in_containers_are_told_apart_by_their_headers(tmp_path: Path) -> None:
    """Without a rank only what the recorder writes of the process tells them apart."""
    (tmp_path / "program.py").write_text(PROGRAM)
    command = ["unshare", "-p", "-f", "--mount-proc", sys.executable, "program.py"]
    environment = {**clean_environment(), "SLURM_JOB_ID": "7"}
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    running = [subprocess.Popen(command, cwd=tmp_path, env=environment, **pipes) for _ in range(2)]
    # Both record before one of them ends.
    begun = [process.stdout.readline() for process in running]
    told = [process.communicate(b"x")[1] for process in running]
    if not all(begun) and any(b"unshare" in text or b"mount" in text for text in told):
        pytest.skip("namespaces cannot be made here")
    rows = asked(tmp_path / "out", "select process, pid, run from processes")
    assert [pid for _, pid, _ in rows] == [1, 1]
    assert len({run for *_, run in rows}) == 1
    counted = "select process, count(*) from steps group by 1 order by 1"
    assert asked(tmp_path / "out", counted) == [(0, 40), (1, 40)]


def test_files_that_contradict_each_other_are_told_by_validate(tmp_path: Path) -> None:
    folder = put(
        tmp_path / "out",
        t_host_1=rank(0, **NAMED),
        t_host_1_1=rank(0, at_s=0.3, **NAMED),
        t_host_2=rank(1, pid=2),
    )
    other = rank(0, pid=2, at_s=1)
    other.footer(part=1)
    other.write(folder / "t-host-2.part1.pfw.gz", 10**6)
    notes = json.loads(invoke("validate", folder, "--json").out)["notes"]
    path = folder / "t-host-1"
    assert f"{folder / 't-host-2'}: its parts are of 2 processes by their headers" in notes
    assert f"{path}-1.pfw.gz: of the same process and the same time as {path}.pfw.gz" in notes
    assert asked(folder, "select count(*) from processes") == [(3,)]
