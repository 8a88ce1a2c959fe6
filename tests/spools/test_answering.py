"""File systems that do not answer: a question is given up, a slow answer is waited for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from safety.commands import invoke

from dftrace_ai.analysis.reading import search
from dftrace_ai.spools import answering
from dftrace_ai.spools.answering import Asking, SilentError


@pytest.fixture
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "PATIENCE_S", 0.2)


@pytest.mark.usefixtures("no_patience")
def test_what_is_never_answered_is_given_up_and_asked_again_once_it_is(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "away")
    asking: Asking[bytes] = Asking("out")
    with pytest.raises(SilentError, match="out: the file system has not answered"):
        asking.answer((tmp_path / "away").read_bytes)
    waiting = [one for one in threading.enumerate() if one.name == "asking"]
    # Nobody else is kept by it meanwhile.
    with pytest.raises(SilentError, match="out: the file system does not answer"):
        asking.answer(lambda: b"")
    (tmp_path / "away").write_bytes(b"back")
    for one in waiting:
        one.join()
    assert asking.answer(lambda: b"again") == b"again"


@pytest.mark.usefixtures("no_patience")
def test_many_slow_answers_are_waited_for() -> None:
    def many() -> int:
        for _ in range(60):
            time.sleep(0.01)  # a server that is far away
        return 7

    assert Asking[int]("out").answer(many) == 7


def test_one_answer_comes_right_after_the_other() -> None:
    asking: Asking[int] = Asking("out")
    assert [asking.answer(lambda at=at: at) for at in range(500)] == [*range(500)]


def test_errors_come_to_who_asks() -> None:
    with pytest.raises(FileNotFoundError):
        Asking[bytes]("out").answer(Path("/nowhere/at/all").read_bytes)


@pytest.mark.usefixtures("no_patience")
def test_who_names_no_folder_is_not_kept_by_one_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "away")
    monkeypatch.setattr(search, "folders_of_runs", lambda _: (tmp_path / "away").read_bytes())
    for command in ("stuck", "top", "why"):
        done = invoke(command)
        assert (done.status, done.out) == (2, "")
        assert "the current directory: the file system has not answered for 0.2 s" in done.err
    # Who still waits is let go.
    waiting = [one for one in threading.enumerate() if one.name == "asking"]
    while any(one.is_alive() for one in waiting):
        with suppress(OSError):
            os.close(os.open(tmp_path / "away", os.O_WRONLY | os.O_NONBLOCK))


# Mounts a file system that tells what its directory is, and never what lies in it, and looks there.
SILENT = """
import ctypes, os, signal, struct, sys
from pathlib import Path

folder = sys.argv[1]
device = os.open("/dev/fuse", os.O_RDWR)
libc = ctypes.CDLL(None, use_errno=True)
options = f"fd={device},rootmode=40755,user_id={os.getuid()},group_id={os.getgid()}".encode()
if libc.mount(b"silent", folder.encode(), b"fuse", 0, options):
    sys.exit(f"no mount: {os.strerror(ctypes.get_errno())}")
INIT, GETATTR, OPENDIR, READDIR = 26, 3, 27, 28
root = struct.pack("<QQQQQQIIIIIIIII4x", 1, 0, 0, 0, 0, 0, 0, 0, 0, 0o40755, 2, os.getuid(), os.getgid(), 0, 512)
answers = {
    INIT: struct.pack("<IIIIHHIIHHI28x", 7, 31, 0, 0, 1, 1, 4096, 1, 1, 0, 0),
    GETATTR: struct.pack("<QI4x", 0, 0) + root[:88],
    OPENDIR: struct.pack("<QI4x", 1, 0),
}
server = os.fork()
if not server:
    while True:
        asked = os.read(device, 1 << 20)
        _, opcode, unique = struct.unpack_from("<IIQ", asked)
        if opcode == READDIR:
            continue
        answer = answers.get(opcode)
        error = 0 if answer is not None else -38
        answer = answer or b""
        os.write(device, struct.pack("<IiQ", 16 + len(answer), error, unique) + answer)
os.close(device)
from dftrace_ai.cli import main
from dftrace_ai.spools import answering
answering.PATIENCE_S = 0.3
sys.argv = ["dftrace", "stuck", folder]
try:
    main()
finally:
    os.kill(server, signal.SIGKILL)
"""


def test_stuck_ends_where_the_directory_does_not_answer_any_more(tmp_path: Path) -> None:
    if shutil.which("unshare") is None or not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("no file system can be made here")
    folder = tmp_path / "out"
    folder.mkdir()
    done = subprocess.run(
        ["unshare", "-Urm", sys.executable, "-c", SILENT, folder],
        capture_output=True,
        text=True,
        timeout=300,
    )
    if "unshare: " in done.stderr or "no mount" in done.stderr:
        pytest.skip(done.stderr)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"dftrace: {folder}: the file system has not answered for 0.3 s\n"
