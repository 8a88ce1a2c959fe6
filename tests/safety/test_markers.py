"""Markers and spools in a directory that others can write to are believed as little as possible."""

from __future__ import annotations

import fcntl
import os
import platform
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from analysis.trace_lines import small_trace
from conftest import clean_environment
from perfetto.trace_file import read

from dftrace_ai import _native
from dftrace_ai.spools import recovery
from dftrace_ai.spools import search as spool_search
from dftrace_ai.spools.held import HeldDirectory
from dftrace_ai.spools.recovery import adopt_dead, find_spools
from safety.commands import invoke

VICTIM = """
import signal, sys
import dftrace_ai
from dftrace_ai import ai

dftrace_ai.initialize(log_file=sys.argv[1] + "/t", spool_dir=sys.argv[2])
with ai.compute.forward:
    pass
print("ready", flush=True)
signal.pause()
"""


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A directory of traces; markers of this host that lead to nothing are told as lost."""
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def marker(out: Path, content: bytes, name: str = "t") -> Path:
    path = out / f"{name}-{platform.node()}-1.spool-at"
    path.write_bytes(content)
    return path


def killed(out: Path, spools: Path) -> Path:
    """The spool of a process that was killed."""
    spools.mkdir(exist_ok=True)
    with subprocess.Popen(
        [sys.executable, "-c", VICTIM, str(out), str(spools)],
        stdout=subprocess.PIPE,
        text=True,
        env=clean_environment(),
    ) as victim:
        assert victim.stdout is not None
        assert victim.stdout.readline() == "ready\n"
        os.kill(victim.pid, signal.SIGKILL)
    (spool,) = spools.iterdir()
    return spool


@pytest.mark.parametrize(
    "content",
    [
        b"\n",
        b"/etc/passwd\n",
        b"dftrace-relative.spool\n",
        b"../dftrace-up.spool\n",
        b"/tmp/dftrace-a.spool\nmore\n",
        b"/tmp/dftrace-\0.spool\n",
        b"/" + b"x" * 5000 + b"/dftrace-long.spool\n",
        b"\xff\xfe\x00",
        b"/tmp/dftrace-x.spool.txt\n",
    ],
)
def test_a_marker_that_names_no_spool_is_told_and_kept(out: Path, content: bytes) -> None:
    path = marker(out, content)
    found = adopt_dead(out)
    assert found.failed == [f"{path}: names no spool"]
    assert (found.finished, found.alive) == ([], [])
    assert path.read_bytes() == content


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made, pytest.MonkeyPatch.context() as patch:
        # The path of a socket has at most 107 bytes.
        patch.chdir(path.parent)
        made.bind(path.name)


@pytest.mark.parametrize(
    "make",
    [os.mkfifo, os.mkdir, make_socket, lambda path: path.symlink_to("/dev/zero")],
    ids=["pipe", "directory", "socket", "link"],
)
def test_what_is_no_file_is_neither_a_marker_nor_a_spool(
    out: Path, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    odd_marker = out / "odd.spool-at"
    make(odd_marker)
    odd_spool = tmp_path / "dftrace-odd.spool"
    make(odd_spool)
    path = marker(out, os.fsencode(odd_spool) + b"\n")
    before = os.lstat(odd_spool)
    signal.alarm(60)
    try:
        found = adopt_dead(out)
    finally:
        signal.alarm(0)
    reasons = sorted(found.failed)
    assert len(reasons) == 2
    assert reasons[0].startswith(f"{odd_marker}: is ")
    assert reasons[1] == f"{path}: names {odd_spool}, which is no regular file"
    assert os.lstat(odd_spool).st_ino == before.st_ino
    assert path.exists()
    # Nor for a command that looks for the run that it reads.
    done = invoke("summary", out)
    assert done.status == 2
    assert f"not completed: {odd_marker}: is " in done.err
    assert f"not completed: {path}: names {odd_spool}, which is no regular file" in done.err
    assert path.exists()


def test_a_marker_behind_a_link_is_not_read(out: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("/home/me/dftrace-private.spool\n")
    (out / "t.spool-at").symlink_to(secret)
    assert adopt_dead(out).failed == [f"{out}/t.spool-at: is a link"]
    assert secret.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_spool_of_another_user_than_its_marker_is_left_alone(out: Path, tmp_path: Path) -> None:
    spool = killed(out, tmp_path / "spools")
    (path,) = out.glob("*.spool-at")
    os.chown(path, 12345, 12345)
    assert adopt_dead(out).failed == [f"{path}: names {spool}, which belongs to another user"]
    assert spool.exists()
    os.chown(path, os.geteuid(), -1)
    assert len(adopt_dead(out).finished) == 1
    assert not spool.exists()


def test_a_forged_marker_does_not_hide_the_right_one(out: Path, tmp_path: Path) -> None:
    spool = killed(out, tmp_path / "spools")
    (out / "a.spool-at").symlink_to(next(out.glob("t-*.spool-at")))
    forged = marker(out, os.fsencode(spool) + b"\nx", name="z")
    found = adopt_dead(out)
    assert len(found.finished) == 1
    assert len(found.failed) == 2
    assert read(Path(found.finished[0])).named("forward")
    assert forged.exists()


def test_a_marker_that_cannot_be_removed_ends_nothing(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = marker(out, b"/nowhere/dftrace-gone.spool\n")

    def refuse(self: HeldDirectory, name: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(HeldDirectory, "remove", refuse)
    assert adopt_dead(out).failed == [
        "/nowhere/dftrace-gone.spool: is gone; what was not yet in the trace is lost",
        f"{path}: cannot be removed: Permission denied",
    ]


def test_what_a_marker_says_is_shown_escaped(out: Path) -> None:
    marker(out, b"/x\x1b[2J/dftrace-\xff.spool\n")
    small_trace().write(out / "t.pfw")
    done = invoke("summary", out)
    assert (done.status, "\x1b" in done.err) == (0, False)
    assert r"/x\x1b[2J/dftrace-\udcff.spool': is gone" in done.err


@pytest.mark.parametrize("command", ["summary", "validate", "view", "why", "report --json"])
def test_no_recover_leaves_everything_as_it_is(out: Path, tmp_path: Path, command: str) -> None:
    spool = killed(out, tmp_path / "spools")
    bad = marker(out, b"nonsense", name="bad")
    if command == "view":
        (out / "bad.pfw").write_text("no trace")
    else:
        small_trace().write(out / "whole.pfw.gz")
    before = {path: path.stat().st_mtime_ns for path in [*out.iterdir(), out, spool]}
    done = invoke(*command.split(), "--no-recover", out)
    # The directory of `view` holds nothing that could be served.
    assert done.status == (2 if command == "view" else 0)
    assert "completed" not in done.err
    assert {path: path.stat().st_mtime_ns for path in [*out.iterdir(), out, spool]} == before
    if command != "view":
        done = invoke(*command.split(), out)
        assert done.err.count("dftrace: completed ") == 1
        assert f"not completed: {bad}: names no spool" in done.err
        assert not spool.exists()


class TestWithoutMarker:
    """Spools whose marker is missing say themselves where their trace is."""

    @pytest.fixture(autouse=True)
    def _places(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "memory").mkdir()
        monkeypatch.setattr(spool_search, "SPOOL_PLACES", (str(tmp_path / "memory"),))
        monkeypatch.setenv("DFTRACE_SPOOL_DIR", str(tmp_path / "own"))
        (tmp_path / "own").mkdir()
        monkeypatch.setattr(_native, "spool_trace_directory", self.directory_of)

    @staticmethod
    def directory_of(spool: str, /) -> str:
        """Stands for the native core: the text of a spool is its trace's directory."""
        text = Path(spool).read_text()
        if not text:
            raise ValueError("not a spool")
        return text

    def test_they_are_found_where_the_recorder_puts_them(self, out: Path, tmp_path: Path) -> None:
        ours = [
            tmp_path / "memory" / "dftrace-1.spool",
            tmp_path / "own" / "dftrace-2.spool",
            out / "dftrace-3.spool",
        ]
        for path in ours:
            path.write_text(str(out))
        (tmp_path / "memory" / "dftrace-other.spool").write_text(str(tmp_path / "elsewhere"))
        (tmp_path / "memory" / "dftrace-broken.spool").write_text("")
        (tmp_path / "memory" / "other-1.spool").write_text(str(out))
        (tmp_path / "memory" / "dftrace-link.spool").symlink_to(ours[0])
        os.mkfifo(tmp_path / "memory" / "dftrace-pipe.spool")
        found = find_spools(out)
        assert [spool.path for spool in found] == sorted(map(str, ours))
        assert {(spool.marker, spool.fault) for spool in found} == {(None, "")}

    def test_a_marker_and_a_header_name_one_spool(self, out: Path, tmp_path: Path) -> None:
        spool = tmp_path / "memory" / "dftrace-1.spool"
        spool.write_text(str(out))
        path = marker(out, os.fsencode(spool) + b"\n")
        assert find_spools(out) == [recovery.FoundSpool(str(spool), path, owner=os.geteuid())]

    def test_of_one_run_only(self, out: Path, tmp_path: Path) -> None:
        for run in ("a" * 16, "b" * 16):
            (tmp_path / "memory" / f"dftrace-{run}-1.spool").write_text(str(out))
        (found,) = find_spools(out, run="b" * 32)
        assert "b" * 16 in found.path

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
    def test_those_of_others_are_not_looked_into(self, out: Path, tmp_path: Path) -> None:
        spool = tmp_path / "memory" / "dftrace-1.spool"
        spool.write_text(str(out))
        os.chown(spool, 12345, 12345)
        assert find_spools(out) == []

    def test_one_that_says_nothing_is_removed_if_its_process_has_died(
        self, out: Path, tmp_path: Path
    ) -> None:
        memory, run = tmp_path / "memory", "a" * 16
        dead = f"{2**22 + 1}-17"
        start = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]

        def unfinished(name: str, content: bytes = bytes(1 << 16)) -> Path:
            path = memory / f"dftrace-{name}.spool"
            path.write_bytes(content)
            return path

        gone = [unfinished(f"{run}-{dead}-1"), unfinished(f"{run}-{dead}-2", b"")]
        other_run = unfinished(f"{'b' * 16}-{dead}-1")
        kept = [
            unfinished(f"{run}-{os.getpid()}-{start}-1"),
            unfinished(f"{run}-{dead}-3", b"precious"),
            unfinished(f"{run}-nobody"),
        ]
        linked = memory / f"dftrace-{run}-{dead}-4.spool"
        (tmp_path / "empty").touch()
        linked.symlink_to(tmp_path / "empty")
        os.mkfifo(memory / f"dftrace-{run}-{dead}-5.spool")
        held = unfinished(f"{run}-{dead}-6")
        with held.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            found = adopt_dead(out, run="a" * 32)
        assert found == recovery.Recovery.nothing()
        assert not any(path.exists() for path in gone)
        assert all(path.exists() for path in (*kept, other_run, linked, held))
        assert (memory / f"dftrace-{run}-{dead}-5.spool").exists()
        adopt_dead(out)
        assert not other_run.exists()
        assert not held.exists()

    def test_they_are_finished_with_the_others(
        self, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        spool = killed(out, tmp_path / "own")
        for path in out.glob("*.spool-at"):
            path.unlink()
        monkeypatch.setattr(recovery._native, "spool_trace_directory", lambda _: str(out))
        (finished,) = adopt_dead(out).finished
        assert read(Path(finished)).named("forward")
        assert not spool.exists()
