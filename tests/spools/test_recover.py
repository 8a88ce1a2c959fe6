"""`dftrace recover`, and what it says of what it cannot do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import SCRIPT_LIMIT_S, RunScript, clean_environment
from perfetto.trace_file import read
from printed_json import checked
from safety.commands import invoke

from dftrace_ai import _native
from dftrace_ai.errors import TraceError
from dftrace_ai.live import observer
from dftrace_ai.spools import recovery, search
from dftrace_ai.spools.completing import complete_directories

UNIT = 64 * 1024

KILLED = """
    import os, signal, sys
    import dftrace_ai
    from dftrace_ai import ai
    sys.orig_argv = ["python", "\\1\N{SNOWMAN}" * 3000, *[""] * 9000]  # the header has 32 KiB
    dftrace_ai.initialize(flush_interval_ms=60_000, spool_dir=os.environ.get("SPOOLS") or None)
    for step in range(5000):
        with ai.compute.forward(step=step):
            pass
    ai.comm.all_reduce.start()
    os.kill(os.getpid(), signal.SIGKILL)
    """


def recover(*arguments: object, env: dict[str, str] | None = None) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "dftrace_ai.cli", "recover", *map(str, arguments)],
        env={**clean_environment(), **(env or {})},
        capture_output=True,
        text=True,
        timeout=SCRIPT_LIMIT_S,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def dead(run_script: RunScript, tmp_path: Path) -> tuple[Path, Path]:
    """The folder and the spool of a killed process, which is not in shared memory."""
    spools = tmp_path / "spools"
    spools.mkdir()
    done = run_script(KILLED, status=-9, env={"SPOOLS": str(spools)})
    (spool,) = spools.iterdir()
    return done.folder, spool


def test_who_may_not_complete_a_run_of_spools_alone_is_told_what_does(
    dead: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, spool = dead
    nothing = "no trace files (.pfw, .pfw.gz, .pfw.zst) in this directory"
    there = f"1 process died there, with all events in spools: dftrace recover {folder}"
    for words in ("why", "info", "summary --run last", "diff"):
        command, *others = words.split()
        done = invoke(command, folder, *others, "--no-recover")
        assert done.status == 2
        assert done.err.startswith(f"dftrace: {folder}: {nothing}")
        assert done.err.endswith(f"; {there}\n")
    monkeypatch.chdir(folder)
    assert "in spools: dftrace recover .\n" in invoke("sql", "select 1", "--no-recover").err
    assert spool.exists()


def test_a_killed_run_is_recovered_once(dead: tuple[Path, Path]) -> None:
    folder, spool = dead
    status, said, _ = recover("--json", folder)
    assert status == 0
    (path,) = checked(said, "recover")["finished"]
    trace = read(Path(path))
    assert [event.user["step"] for event in trace.named("forward")] == list(range(5000))
    assert trace.one("all_reduce").args["unfinished"] is True
    assert trace.footer["ended"] == "died"
    (command,) = trace.header["cmdline"]
    assert command.startswith("python \1\N{SNOWMAN}")
    assert 1000 < len(command) < 2000
    assert not spool.exists()
    before = Path(path).read_bytes()
    assert recover(folder) == (0, "nothing to recover\n", "")
    assert Path(path).read_bytes() == before


def test_a_pattern_that_matches_the_marker_alone_finds_the_trace(dead: tuple[Path, Path]) -> None:
    folder, _ = dead
    (marker,) = folder.iterdir()
    refused = invoke("summary", folder / "*", "--no-recover")
    assert (refused.status, refused.out) == (2, "")
    assert refused.err == f"dftrace: {marker}: not a trace file, but one that lies beside a trace\n"
    report = json.loads(invoke("summary", folder / "*", "--json").out)
    assert (len(report["files"]), report["events"]) == (1, 5001)


def test_a_cut_spool_gives_what_is_left_of_it(dead: tuple[Path, Path]) -> None:
    folder, spool = dead
    os.truncate(spool, 4 * UNIT + 100)
    status, said, complaint = recover(folder)
    assert status == 1
    assert "recovered" in said
    assert "cut off at the end" in complaint
    (path,) = [p for p in folder.iterdir() if p.suffix == ".gz"]
    trace = read(path)
    steps = [event.user["step"] for event in trace.named("forward") if event.user]
    assert steps == list(range(len(steps)))
    assert len(steps) > 500
    assert trace.footer["damaged"] >= 1
    assert recover(folder)[0] == 0


def test_a_spool_that_is_found_by_a_link_and_without_is_one(dead: tuple[Path, Path]) -> None:
    """The setting, and so the marker, names it through a link; it is also found where it lies."""
    folder, spool = dead
    real = spool.parent.rename(spool.parent.with_name("a-disk"))
    spool.parent.symlink_to(real)
    env = {"DFTRACE_SPOOL_DIR": str(spool.parent)}
    status, said, complaint = recover("--json", folder, env=env)
    assert (status, complaint) == (0, "")
    assert len(json.loads(said)["finished"]) == 1
    assert recover(folder, env=env) == (0, "nothing to recover\n", "")


def test_another_job_on_a_file_system_that_does_not_answer_keeps_nobody(
    dead: tuple[Path, Path], run_script: RunScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is away: whoever asks for a directory on it waits until it is back."""
    folder, spool = dead
    away = run_script(KILLED, status=-9, env={"SPOOLS": str(spool.parent)}).folder
    is_back = threading.Event()
    waited: list[object] = []
    stat = os.stat

    def slow_stat(path: Any, **more: Any) -> os.stat_result:
        if path == str(away):
            is_back.wait(60)
            waited.append(path)
        return stat(path, **more)

    monkeypatch.setattr(search, "PATIENCE_S", 0.5)
    monkeypatch.setattr(os, "stat", slow_stat)
    try:
        found = recovery.adopt_dead(folder, spool_dir=spool.parent)
        assert (len(found.finished), found.failed, waited) == (1, [], [])
    finally:
        is_back.set()
    assert len(recovery.adopt_dead(away, spool_dir=spool.parent).finished) == 1


def test_a_newer_spool_is_left_for_a_newer_dftrace(dead: tuple[Path, Path]) -> None:
    folder, spool = dead
    with spool.open("r+b") as file:
        file.seek(8)
        file.write((99).to_bytes(4, "little"))
    status, _, complaint = recover(folder)
    assert status == 1
    assert "spool version 99 is not known to this dftrace" in complaint
    assert spool.exists()


@pytest.mark.parametrize("lives", [True, False])
def test_a_process_is_known_by_when_it_began(tmp_path: Path, lives: bool) -> None:
    """Its spool is gone, and its number is that of this process, which may be another one."""
    began = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    spool = f"/dev/shm/dftrace-0123456789abcdef-{os.getpid()}-{began - (not lives)}-0.spool"
    marker = tmp_path / f"t-{_native.host_name()}-{os.getpid()}.spool-at"
    marker.write_text(f"{spool}\n{_native.marker_place()}\n")
    found = recovery.adopt_dead(tmp_path)
    lost = f"{spool}: is gone; what was not yet in the trace is lost"
    assert (found.alive, found.failed) == (([spool], []) if lives else ([], [lost]))
    assert marker.exists() == lives


@pytest.mark.parametrize("kind", ["missing", "file"])
def test_what_is_no_directory_is_refused_in_a_line(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x"
    if kind == "file":
        path.write_text("x", encoding="utf-8")
    status, said, complaint = recover(path)
    assert (status, said) == (2, "")
    assert complaint.count("\n") == 1
    assert str(path) in complaint


def test_spools_are_looked_for_once_and_not_for_each_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        (tmp_path / f"run{number}").mkdir()
        (tmp_path / f"run{number}" / "t-host-1.pfw").touch()
    listed: Counter[str] = Counter()
    own_spools = search._own_spools

    def counted(place: str, prefix: str) -> Iterator[str]:
        listed[place] += 1
        return own_spools(place, prefix)

    monkeypatch.setattr(search, "_own_spools", counted)
    complete_directories([tmp_path])
    assert {listed[place] for place in search.SPOOL_PLACES} == {1}


def test_somebody_else_completes_it_at_the_same_time(
    dead: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks that end together do so for their children: none of them tells of a loss, nor `top`."""
    folder, spool = dead
    (marker,) = folder.glob("*.spool-at")
    find = recovery.spools_of
    below = observer.spools_below(folder, recovery.OwnSpools())

    def found_before(*given: Any, **more: Any) -> list[recovery.FoundSpool]:
        found = find(*given, **more)
        # Who completes the trace does so, and then removes the marker, too.
        with marker.open("a") as file:
            file.write("complete\n")
        spool.unlink()
        return found

    with monkeypatch.context() as patched:
        patched.setattr(recovery, "spools_of", found_before)
        looked = marker.read_bytes()
        assert recovery.adopt_dead(folder) == recovery.Recovery.nothing()
    assert not marker.exists()
    marker.write_bytes(looked + b"complete\n")
    monkeypatch.setattr(observer, "spools_below", lambda *_, **__: below)
    with pytest.raises(TraceError, match="nothing was recorded here"):
        observer.snapshot([folder])


PARTS = """
    import asyncio, os, signal
    from pathlib import Path
    import dftrace_ai
    from dftrace_ai import ai
    from dftrace_ai.run import emitting

    run = dftrace_ai.initialize(
        compression="none", max_file_bytes=65536, max_files=1, flush_interval_ms=60_000
    )

    async def item():
        with ai.data.item:
            await asyncio.sleep(0)

    async def items():
        await asyncio.gather(item(), item())

    def steps(count):
        for step in range(count):
            with ai.compute.forward(step=step):
                pass
        asyncio.run(items())

    emitting.metadata("process_group", '{"name":"pairs","ranks":[2,3]}', in_every_part=True)
    emitting.metadata("told", "once")
    folder = Path(os.environ["DFTRACE_LOG_FILE"]).parent
    size = 0
    while size < 58_000:  # of a part behind the first, which is gone
        steps(40)
        run.flush()
        size = sum(part.stat().st_size for part in folder.glob("*.part*"))
    steps(60)  # more than the part has room for, and too few for the process to write them itself
    os.kill(os.getpid(), signal.SIGKILL)
    """


def test_a_part_that_a_recovery_begins_tells_what_every_part_does(run_script: RunScript) -> None:
    """The parts before it may be gone: who was in a group, and what lanes are called."""
    outcome = run_script(PARTS, status=-9)
    (written,) = outcome.folder.glob("*.pfw")
    assert recover(outcome.folder)[0] == 0
    begun = [read(part) for part in outcome.folder.glob("*.pfw") if part.name != written.name]
    assert begun
    for part in begun:
        facts = [one.args for one in part.of("M") if one.name == "CM"]
        assert [(one["name"], one["value"]) for one in facts] == [
            ("process_group", '{"name":"pairs","ranks":[2,3]}')
        ]
        named = {one.tid: one.args["name"] for one in part.of("M") if one.name == "thread_name"}
        assert {one.tid for one in part.of("X")} <= named.keys()
        assert {"MainThread · task lane 1", "MainThread · task lane 2"} <= {*named.values()}
