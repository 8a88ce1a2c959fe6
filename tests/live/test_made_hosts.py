"""A job whose ranks are on several hosts, seen from each: by files beside the traces."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from printed_json import SCHEMAS, checked
from safety.commands import invoke
from sampling import SEED, share_of, times

from dftrace_ai.analysis.reading import search
from dftrace_ai.live import Snapshot, Verdict, find_stuck, snapshot
from dftrace_ai.live.told import ToldHost
from dftrace_ai.live.verdict_words import told_lines
from live.dumps.made_dumps import planted, write
from live.made_hosts import Job, made_job
from live.programs import dftrace, until

# Of the hang of the issue: 64 ranks, 20 times, files each five seconds.
HOSTS = 4
RANKS = max(1, round(16 * share_of(0.125)))
HANGS = 20


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """Ranks that can be had to hang."""
    with made_job(tmp_path_factory.mktemp("job") / "out", HOSTS, RANKS, 0.5) as found:
        yield found


def stuck_from(job: Job, host: int, idle_s: float) -> dict[str, Any]:
    """What the command says on one of the hosts."""
    command = [sys.executable, "-m", "dftrace_ai", "stuck", job.out, "--json"]
    done = subprocess.run(
        job.on_host(host, *command, "--idle", idle_s), capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def causes(verdict: Verdict) -> list[int | None]:
    return [one.rank for job in verdict.jobs for one in job.findings if one.cause]


@pytest.mark.sampled
def test_a_hang_is_named_from_another_host(job: Job) -> None:
    """Whichever rank it is, and wherever it stands; from a host and from outside of all."""
    chance = random.Random(SEED)
    for step in range(times(HANGS, 0.15)):
        late = chance.randrange(HOSTS * RANKS)
        place = ("fetch", "forward", "no span")[step % 3]
        job.say(f"{step},{late},{place}")

        def stand(seen: Snapshot, step: int = step, late: int = late) -> bool:
            """All but one are in the collective, and as long as counts."""
            others = [one.main for one in seen.processes if one.rank != late]
            come = all(one and one.open and one.open[-1].name == "all_reduce" for one in others)
            told = all(one.step == step for one in seen.processes)
            return come and told and len(causes(find_stuck(seen, 0.3))) == 1

        seen = until(lambda: snapshot([job.out]), stand)
        assert causes(find_stuck(seen, 0.3)) == [late]
        if step == 0:
            verdict = until(
                lambda: stuck_from(job, 1, 0.3),
                lambda verdict: len(verdict["jobs"][0]["findings"]) == HOSTS * RANKS,
            )
            (found,) = (one for one in verdict["jobs"][0]["findings"] if one["cause"])
            assert (found["rank"], found["step"]) == (late, step), found
            # Of its own ranks the spools are seen, which are preferred.
            assert [one["host"] for one in verdict["told"]] == ["node0", "node2", "node3"]
            assert all(one["processes"] == RANKS for one in verdict["told"])
        job.say("go")


def test_what_is_printed_of_several_hosts(job: Job) -> None:
    """Each host by a line with the age of what it tells, and all ranks in one table."""
    job.say("99,1,fetch")
    until(
        lambda: snapshot([job.out]),
        lambda seen: all(rank.step == 99 for rank in seen.processes),
    )
    schema = json.loads((SCHEMAS / "live.schema.json").read_text())
    for path in job.out.glob("*.live"):
        jsonschema.validate(json.loads(path.read_bytes()), schema)
    printed = checked(dftrace("top", job.out, "--json").out, "snapshot")
    assert {rank["rank"] for rank in printed["processes"]} == set(range(HOSTS * RANKS))
    assert all(rank["told_s"] >= 0 for rank in printed["processes"])
    table = dftrace("top", "--once", job.out).out
    assert f"  {HOSTS * RANKS} processes  {HOSTS} hosts" in table
    ranks = f"of ranks {RANKS}-{2 * RANKS - 1}"
    assert f"by files beside the traces: {RANKS} processes {ranks}: on host node1, " in table
    job.say("go")


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Job]:
    """Two ranks on each of two hosts."""
    with made_job(tmp_path / "out", 2, 2, 0.2) as found:
        yield found


def file_of(job: Job, rank: int) -> Path:
    found = (
        path for path in job.out.glob("*.live") if json.loads(path.read_bytes())["rank"] == rank
    )
    return next(found)


def grown_older(path: Path, by_s: float) -> None:
    """As if its process had written nothing for so long."""
    info = path.stat()
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns - round(by_s * 1e9)))


def test_a_rank_that_was_killed_tells_its_age(pair: Job) -> None:
    """Nobody on another host knows that it died; its host completes its trace, and the file goes."""
    pair.say("5,3,killed")
    path = file_of(pair, 3)
    markers = len(list(pair.out.glob("*.spool-at")))
    until(lambda: not _alive_on(pair, 1, 3), bool)
    grown_older(path, 100)
    seen = until(lambda: snapshot([pair.out]), lambda seen: _others_stand(seen, 3))
    (dead,) = (process for process in seen.processes if process.state == "dead")
    assert (dead.rank, dead.host) == (3, "node1")
    assert dead.told_s is not None
    assert dead.told_s > 100
    done = dftrace("stuck", pair.out, "--idle", 0.1)
    assert done.status == 1
    # A hundred seconds, and what a busy machine took for this.
    assert re.search(r"rank 3 on node1 told nothing for [1-5]\d\d s", done.out), done.out
    assert "<- likely cause: it may have died" in done.out
    recovered = subprocess.run(
        pair.on_host(1, sys.executable, "-m", "dftrace_ai", "recover", pair.out),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert recovered.returncode == 0, recovered.stderr
    assert not path.exists()
    assert len(list(pair.out.glob("*.spool-at"))) == markers - 1


def _others_stand(seen: Snapshot, rank: int) -> bool:
    """Whether all but one tell of step 5; that one may have told of it before it was gone."""
    return all(one.step == 5 for one in seen.processes if one.rank != rank)


def _alive_on(job: Job, host: int, rank: int) -> bool:
    """Whether a rank runs, asked of its host, which sees its spool."""
    return any(
        one["rank"] == rank and one["state"] == "alive"
        for one in _snapshot_from(job, host)["processes"]
    )


def _snapshot_from(job: Job, host: int) -> dict[str, Any]:
    done = subprocess.run(
        job.on_host(host, sys.executable, "-m", "dftrace_ai", "top", "--json", job.out),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_host_that_stands_still_and_goes_on(pair: Job) -> None:
    """It is silent while it is stopped, and alive again once it tells."""
    pair.say("5,2,stopped")
    (host,) = (
        Path(f"/proc/{pair.hosts[1].pid}/task/{pair.hosts[1].pid}/children").read_text().split()
    )
    ranks = Path(f"/proc/{host}/task/{host}/children").read_text().split()
    until(lambda: [_is_stopped(rank) for rank in ranks], any)
    until(lambda: snapshot([pair.out]), lambda seen: _others_stand(seen, 2))
    grown_older(file_of(pair, 2), 60)
    (verdict,) = find_stuck(snapshot([pair.out]), 300).jobs
    assert [(one.rank, one.what) for one in verdict.findings] == [(2, "dead")]
    for child in ranks:
        os.kill(int(child), signal.SIGCONT)
    until(
        lambda: snapshot([pair.out]),
        lambda seen: all(p.state == "alive" and p.step == 5 for p in seen.processes),
    )
    pair.say("go")
    pair.end()
    assert sorted({path.suffix for path in pair.out.iterdir()}) == [".gz"]


def _is_stopped(pid: str) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


# What lies there, as whoever may write to the directory can have it.
BOOT = "00000000-0000-0000-0000-000000000000"
NOW = 1_700_000_000_000_000_000


def told(process: int, **other: object) -> dict[str, object]:
    """What a process on another host tells, each of its lengths of time in seconds."""
    return {
        "kind": "dftrace live", "format": 1, "host": "node7", "run": "ab" * 16, "pid": process + 1,
        "parent_pid": 1, "every_ms": 5000, "wall_ns": NOW, "lives_ns": 60_000_000_000, "dropped": 0,
        "write_error": 0, "rank": process, "world_size": 4, "step": 3,
        "threads": [
            {
                "tid": process + 1, "name": "MainThread", "records": 9, "depth": 1,
                "quiet_ns": 50_000_000_000,
                "open": [
                    {"name": "all_reduce", "cat": "comm", "for_ns": 50_000_000_000,
                     "group": "default_pg", "nth": 12}
                ],
            }
        ],
        "threads_left_out": 0, **other,
    }  # fmt: skip


def put(
    folder: Path, process: int, content: bytes | None = None, boot: str = BOOT, **other: object
) -> Path:
    """A marker of another host, and what lies beside it."""
    stem = folder / f"t-node7-{process + 1}"
    spool = f"/dev/shm/dftrace-{'ab' * 8}-{process + 1}-1-0.spool"
    Path(f"{stem}.spool-at").write_text(f"{spool}\n{boot} 4026531836\n")
    path = Path(f"{stem}.live")
    path.write_bytes(json.dumps(told(process, **other)).encode() if content is None else content)
    return path


def deep(bytes_: int) -> bytes:
    return b"[" * bytes_


HOSTILE: dict[str, Callable[[Path], object]] = {
    "nothing": lambda path: path.write_bytes(b""),
    "no JSON": lambda path: path.write_bytes(b"\x00" * 100),
    "too large": lambda path: path.write_bytes(b" " * 3000 + b"{}"),
    "holes": lambda path: os.truncate(path, 2**40),
    "nested": lambda path: path.write_bytes(deep(2000)),
    "nested as it is read, not written": lambda path: path.write_bytes(
        b'{"kind":"dftrace live","format":1,"host":' + b'{"a":' * 300 + b"1" + b"}" * 301
    ),
    "another kind": lambda path: path.write_bytes(b'{"kind":"dftrace snapshot"}'),
    "another version": lambda path: path.write_bytes(b'{"kind":"dftrace live","format":2}'),
    "text for a number": lambda path: path.write_text(json.dumps(told(1, pid="1"))),
    "no end": lambda path: path.write_text(json.dumps(told(1, step=2**64))[:-3]),
    "below zero": lambda path: path.write_text(json.dumps(told(1, lives_ns=-1))),
    "a link": lambda path: (path.unlink(), path.symlink_to("/etc/passwd")),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "a directory": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_file_that_is_none(tmp_path: Path, what: str) -> None:
    """It is told in a line, its process is not visible, and the others are told."""
    put(tmp_path, 0)
    HOSTILE[what](put(tmp_path, 1))
    seen = snapshot([tmp_path])
    assert [process.rank for process in seen.processes] == [0]
    assert len(seen.hidden) == 1
    (problem,) = seen.problems
    assert problem.startswith(f"{tmp_path}/t-node7-2.live: ")
    done = dftrace("stuck", tmp_path)
    assert "Traceback" not in done.out + done.err


def test_numbers_and_names_at_their_worst(tmp_path: Path) -> None:
    """They are shown as text, and add up to nothing that fails."""
    name = "\x1b[2J\u202e[bold]" + "x" * 60
    thread = {
        "tid": 2**32 - 1, "name": name, "records": 2**64 - 1, "depth": 2**64 - 1,
        "quiet_ns": 2**64 - 1, "stack": [[name, name, 2**64 - 1, 2**64 - 1]],
        "stack_for_ns": 2**64 - 1,
        "open": [{"name": name, "cat": name, "for_ns": 2**64 - 1, "nth": -(2**63)}],
    }  # fmt: skip
    numbers = {"rank": 2**63 - 1, "world_size": 2**63 - 1, "lives_ns": 2**64 - 1, "wall_ns": 0}
    put(
        tmp_path,
        0,
        host=name,
        threads=[thread],
        every_ms=2**64 - 1,
        write_error=2**12 - 1,
        **numbers,
    )
    for words in (("top", "--once"), ("top", "--json"), ("stuck",), ("stuck", "--json")):
        done = dftrace(*words, tmp_path)
        assert "Traceback" not in done.out + done.err
        assert "\x1b[2J" not in done.out
    again = tmp_path / "again.json"
    again.write_text(dftrace("top", "--json", tmp_path).out)
    assert dftrace("top", "--once", again).status == 0


def test_a_file_of_another_user_than_its_marker(tmp_path: Path) -> None:
    """Whoever may write to the directory does not speak for a process of somebody else."""
    if os.geteuid() != 0:
        pytest.skip("only root can make files of another user")
    put(tmp_path, 0)
    os.chown(put(tmp_path, 1), 4711, 4711)
    seen = snapshot([tmp_path])
    assert [process.rank for process in seen.processes] == [0]
    assert seen.problems == [f"{tmp_path}/t-node7-2.live: belongs to another user than its marker"]


def aged(path: Path, ns: int) -> None:
    os.utime(path, ns=(ns, ns))


def test_clocks_that_differ(tmp_path: Path) -> None:
    """The age is by the file system's time: an hour ahead of this host, as its own file shows."""
    import dftrace_ai._native as native

    boot = native.marker_place().partition(" ")[0]
    hour = 3600 * 1_000_000_000
    now = time.time_ns()
    # The writer's own clock counts for nothing.
    aged(put(tmp_path, 0, wall_ns=1), now + hour - 20_000_000_000)
    aged(put(tmp_path, 1, boot=boot, wall_ns=now), now + hour)
    by_rank = {process.rank: process for process in snapshot([tmp_path]).processes}
    told_s = by_rank[0].told_s
    assert told_s is not None
    assert told_s >= 20
    assert by_rank[0].state == by_rank[1].state
    # Without one of this host, the present is no earlier than what half of the others have told.
    (tmp_path / "t-node7-2.spool-at").unlink()
    (alone,) = snapshot([tmp_path]).processes
    assert (alone.told_s, alone.state) == (0, "alive")


def test_a_file_of_the_future_accuses_nobody(tmp_path: Path) -> None:
    now = time.time_ns()
    aged(put(tmp_path, 0), now)
    aged(put(tmp_path, 1), now + 11 * 86_400 * 1_000_000_000)
    by_rank = {process.rank: process for process in snapshot([tmp_path]).processes}
    assert {process.state for process in by_rank.values()} == {"alive"}
    assert dftrace("stuck", "--json", "--idle", "3600", tmp_path).status == 0


def test_an_attempt_of_before(tmp_path: Path) -> None:
    """What an older start of the job has left is another run, and is not chosen."""
    put(tmp_path, 0, run="cd" * 16)
    for rank in (1, 2):
        aged(put(tmp_path, rank), NOW)
    seen = snapshot([tmp_path], run="last")
    assert [process.rank for process in seen.processes] == [0]


def test_the_newer_of_two_looks_counts(tmp_path: Path) -> None:
    """A snapshot of before knows less than the file of now, and more than one that is older."""
    path = put(tmp_path, 0, step=3)
    saved = tmp_path / "seen.json"
    saved.write_text(dftrace("top", "--json", tmp_path).out)
    put(tmp_path, 0, step=4)
    assert [process.step for process in snapshot([tmp_path, saved]).processes] == [4]
    aged(path, NOW)
    assert [process.step for process in snapshot([tmp_path, saved]).processes] == [3]


def test_a_file_without_a_marker_is_nobodys(tmp_path: Path) -> None:
    """As it lies in a copy, or after the marker was removed."""
    put(tmp_path, 0)
    put(tmp_path, 1)
    with suppress(FileNotFoundError):
        (tmp_path / "t-node7-2.spool-at").unlink()
    assert [process.rank for process in snapshot([tmp_path]).processes] == [0]


def test_without_a_path_nothing_below_the_folders_of_runs_is_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where somebody stands may be anything: who names a folder means all of it."""
    below = tmp_path / "run" / "1/2/3/4/5/6/7"
    below.mkdir(parents=True)
    put(tmp_path / "run", 0)
    put(below, 1)
    monkeypatch.chdir(tmp_path)
    for words, ranks in (((), {0}), (("run",), {0, 1})):
        seen = json.loads(invoke("top", "--json", *words).out)
        assert {one["rank"] for one in seen["processes"]} == ranks
        verdict = json.loads(invoke("stuck", "--json", "--idle", 10, *words).out)
        assert verdict["jobs"][0]["processes"] == len(ranks)


def test_beside_dumps_nothing_below_them_is_searched_without_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write(planted(4).dumps, tmp_path / "run")
    below = run / "1/2/3/4/5/6/7"
    below.mkdir(parents=True)
    put(run, 0)
    put(below, 1)
    monkeypatch.chdir(tmp_path)
    for words, count in (((), 1), (("run",), 2)):
        report = json.loads(invoke("stuck", "--json", "--idle", 10, *words).out)
        assert report["live"]["jobs"][0]["processes"] == count


def test_a_folder_of_data_hides_no_run_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, run = tmp_path / "data", tmp_path / "project" / "run"
    for folder in (data, run):
        folder.mkdir(parents=True)
    put(run, 0)
    for number in range(301):
        (data / f"{number}.jpg").touch()
    monkeypatch.setattr(search, "MOST_ENTRIES", 300)
    monkeypatch.chdir(tmp_path)
    done = invoke("top", "--json")
    assert [one["rank"] for one in json.loads(done.out)["processes"]] == [0]
    assert "not all of data was looked at: no more than 300 files and folders" in done.err


def test_a_search_that_ends_before_it_has_looked_at_everything_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        for number in range(5):
            (tmp_path / folder / f"{number}.jpg").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(search, "MOST_ENTRIES", 2)
    done = invoke("top", "--once")
    assert done.status == 2
    assert "not all of . and of 1 folder more was looked at: no more than 2 files" in done.err
    assert "there are no traces below the current directory" in done.err
    monkeypatch.setattr(search, "MOST_ENTRIES", 40)
    assert "not all" not in invoke("top", "--once").err


def test_many_hosts_are_told_in_few_lines(tmp_path: Path) -> None:
    """Those that told longest ago each by its own, the others together."""
    for process in range(40):
        boot = f"{process:08d}-0000-0000-0000-000000000000"
        path = put(tmp_path, process, boot=boot, host=f"node{process}", world_size=40)
        if process in {7, 31}:
            grown_older(path, 20 + process)
    told = dftrace("stuck", tmp_path, "--idle", 10).out.splitlines()
    lines = [line for line in told if line.startswith("by files beside the traces: ")]
    assert len(lines) == 9
    assert {"on host node7", "on host node31"} <= {
        line.split(": ")[-1].split(",")[0] for line in lines
    }
    assert lines[-1].startswith("by files beside the traces: 32 processes of ranks ")
    assert "on 32 more hosts, " in lines[-1]
    # Of those that are too old it is said what may be.
    (old,) = (line for line in lines if "on host node31," in line)
    assert old.endswith("has died, or its disk is full, read-only or away")
    (fresh,) = told_lines([ToldHost("node1", 2, (0, 1), 0.5, 4.0)])
    assert fresh.endswith(" ago")


def test_a_file_system_that_keeps_no_times_makes_nobody_silent(tmp_path: Path) -> None:
    """A file of 1970, or before, is as old as its host says."""
    for process in range(3):
        path = put(tmp_path, process, wall_ns=time.time_ns(), world_size=3)
        os.utime(path, ns=(0, -(10**18) if process else 0))
    verdict = find_stuck(snapshot([tmp_path]), 30)
    assert [one.what for one in verdict.jobs[0].findings] == ["stuck"] * 3
    assert all(host.oldest_s < 60 for host in verdict.told)
