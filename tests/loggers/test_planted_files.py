"""Others may write into the directory of a run: what they put there is not followed or waited for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import clean_environment
from loggers.local_lines import Kept, entry

from dftrace_ai.loggers import BaseLogint, make_loggers
from dftrace_ai.loggers.trackers.file_paths import kept_copy, kept_file, one_at_a_time

# With an interface in a process of its own, whose output has a file, too.
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import nasty
from dftrace_ai.loggers import make_loggers
config = {"log_dir": ".", "run_name": "run", "status_line": False, "system_metrics_s": None}
options = {"phase": "log", "how": "print_a_lot"}
with make_loggers({"nasty": {"config": config | {"options": options}}}) as loggers:
    for step in range(5):
        loggers.log_iter({"loss": float(step)})
"""


def planted(path: Path, kind: str, victim: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "link":
        path.symlink_to(victim)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim"
    path.write_text("mine")
    return path


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_a_file_of_that_name_is_there(tmp_path: Path, victim: Path, kind: str) -> None:
    planted(tmp_path / "a" / "000000007.png", kind, victim)
    path = kept_file(tmp_path, "a", "png", 7, b"mine")
    assert path.name == "000000007-2.png"
    assert path.read_bytes() == b"mine"
    assert kept_file(tmp_path, "a", "png", 7, b"mine") == path
    assert victim.read_text() == "mine"


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_copies_replace_what_is_there(tmp_path: Path, victim: Path, kind: str) -> None:
    source = tmp_path / "source"
    (source / "inner").mkdir(parents=True)
    (source / "inner" / "file").write_text("copied")
    planted(tmp_path / "kept" / "tree" / "inner" / "file", kind, victim)
    (path,) = kept_copy(source, tmp_path / "kept", "tree")
    assert path.read_text() == "copied"
    planted(tmp_path / "kept" / "single", kind, victim)
    (path,) = kept_copy(source / "inner" / "file", tmp_path / "kept", "single")
    assert path.read_text() == "copied"
    assert not path.is_symlink()
    assert victim.read_text() == "mine"
    assert len(list(path.parent.iterdir())) == 2
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="is no file"):
        kept_copy(tmp_path / "pipe", tmp_path / "kept", "pipe")


class Shelf(BaseLogint):
    """Has of artifacts what their files hold."""

    name = "shelf"
    own_process = False

    def log_metrics(self, metrics, step):
        pass

    def log_file(self, name, data, suffix, step):
        (self.run.root / f"{name}-{step}.{suffix}").write_bytes(data)


def test_an_artifact_that_is_a_pipe_is_not_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "weights.pt").write_bytes(b"1")
    with make_loggers({"shelf": entry(tmp_path, limit_s=20.0)}) as loggers:
        loggers.log_artifact(tmp_path / "pipe")
        loggers.log_artifact(tmp_path / "weights.pt")
    assert (tmp_path / "weights-0.pt").read_bytes() == b"1"
    assert "shelf lost 1 of 2 records: OSError: [Errno 22] is no file" in caplog.text


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_lock_is_a_file(tmp_path: Path, victim: Path, kind: str) -> None:
    planted(tmp_path / "lock", kind, victim)
    with pytest.raises(OSError), one_at_a_time(tmp_path / "lock"):  # noqa: PT011
        pass


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_what_a_tracker_prints(tmp_path: Path, victim: Path, kind: str) -> None:
    planted(tmp_path / "default" / "run" / "output.log", kind, victim)
    place = Path(__file__).parent / "delivery"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(place)],
        cwd=tmp_path,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert victim.read_text() == "mine"
    taken = (tmp_path / "default" / "run" / "nasty.txt").read_text().split()
    assert taken == ["0", "1", "2", "3", "4", "finished"]


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_a_log_that_was_taken_away(
    tmp_path: Path, victim: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    with make_loggers({"local": entry(tmp_path)}) as loggers:
        loggers.log_iter({"loss": 0.0})
        loggers.flush()
        (log,) = (tmp_path / "default" / "run").glob("*.jsonl")
        log.unlink()
        planted(log, kind, victim)
        loggers.log_iter({"loss": 1.0})
        loggers.flush()
        log.rmdir() if kind == "folder" else log.unlink()
        loggers.log_iter({"loss": 2.0})
    assert victim.read_text() == "mine"
    assert Kept(tmp_path).metric("loss") == [(2, 2.0)]
    assert "the tracker local lost 1 of 3 records" in caplog.text
