"""Another user of a shared directory ends no training, and gets nothing made or removed elsewhere."""

from __future__ import annotations

import os
import platform
import stat
from pathlib import Path
from typing import Any

import pytest
from conftest import RunScript, Traced, trace_files
from perfetto.trace_file import read

from dftrace_ai import _native
from dftrace_ai.spools import recovery
from dftrace_ai.spools.completing import complete_directories
from dftrace_ai.spools.recovery import adopt_dead
from safety.commands import dftrace, invoke

NEIGHBOUR = 12345
# Above all numbers that Linux gives to processes.
NOBODY = (1 << 22) + 1

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as two users")

# A child is killed; what it leaves becomes the neighbour's, as if planted under the run's name.
PLANTED = """
import json, os, pathlib, signal, sys
import dftrace_ai
from dftrace_ai import ai

out = pathlib.Path(os.environ["DFTRACE_LOG_FILE"]).parent
spools = pathlib.Path(sys.argv[1])
run = dftrace_ai.initialize(spool_dir=spools, flush_interval_ms=60_000)
with ai.compute.forward:
    pass
own = set(spools.iterdir()) | set(out.iterdir())
child = os.fork()
if child == 0:
    with ai.data.item:
        pass
    dftrace_ai.ai.comm.all_reduce.start()
    os.kill(os.getpid(), signal.SIGKILL)
os.waitpid(child, 0)
spool, = set(spools.iterdir()) - own
marker, = (path for path in set(out.iterdir()) - own if path.suffix == ".spool-at")
if {gives}:
    for path in (spool, marker):
        os.chown(path, {user}, {user})
        os.chmod(path, 0o666)
content = spool.read_bytes()
# The file that it names for its trace, and its directory, as bytes that are no text.
prefix = bytes(out)
assert content.count(prefix) > 0
{change}
dftrace_ai.finalize()
print(json.dumps([str(spool), str(marker), spool.exists(), marker.exists()]))
"""

NO_TEXT = r"""
spool.write_bytes(content.replace(prefix, prefix[:-3] + b"\xff\xfe\xfd"))
"""


@pytest.fixture
def spools(tmp_path: Path) -> Path:
    """A directory for spools, as /tmp is."""
    (tmp_path / "spools").mkdir()
    (tmp_path / "spools").chmod(0o1777)
    return tmp_path / "spools"


def planted(run_script: RunScript, spools: Path, *, gives: bool, change: str) -> Any:
    source = PLANTED.replace("{gives}", str(gives)).replace("{user}", str(NEIGHBOUR))
    return run_script(source.replace("{change}", change), args=[str(spools)])


@as_root
def test_finalize_leaves_what_is_another_users(run_script: RunScript, spools: Path) -> None:
    done = planted(run_script, spools, gives=True, change=NO_TEXT)
    ((spool, marker, spool_stays, marker_stays),) = done.said
    assert (spool_stays, marker_stays, done.stderr) == (True, True, "")
    assert [read(path).names for path in trace_files(done.folder)] == [{"forward": 1}]
    # The commands may be asked to: what they make of it belongs to whom it came from.
    found = adopt_dead(done.folder)
    assert (found.failed, len(found.finished)) == ([], 1)
    completed = Path(found.finished[0])
    assert completed.parent == done.folder
    assert completed.stat().st_uid == NEIGHBOUR
    assert read(completed).names["item"] == 1
    assert not Path(spool).exists()
    assert not Path(marker).exists()


def test_no_byte_of_a_spool_of_its_own_raises_out_of_finalize(
    run_script: RunScript, spools: Path
) -> None:
    done = planted(run_script, spools, gives=False, change=NO_TEXT)
    ((_, _, spool_stays, marker_stays),) = done.said
    assert (spool_stays, marker_stays, done.stderr) == (False, False, "")
    assert sorted(name for path in trace_files(done.folder) for name in read(path).names) == [
        "all_reduce",
        "forward",
        "item",
    ]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("RuntimeError('no directory any more')", "no directory any more"),
        (
            "OSError(24, os.strerror(24), 'out')",
            "OUT: Too many open files in this process; raise the limit (RLIMIT_NOFILE, ulimit -n)",
        ),
    ],
)
def test_what_finding_children_meets_is_said_and_does_not_end_the_program(
    run_script: RunScript, spools: Path, error: str, said: str
) -> None:
    change = f"""
def broken(*_, **__):
    raise {error}
import dftrace_ai.spools.recovery
dftrace_ai.spools.recovery.spools_of = broken
"""
    done = planted(run_script, spools, gives=False, change=change)
    (line,) = done.stderr.splitlines()
    assert "traces of children are not completed: " in line
    assert said.replace("OUT", str(done.folder)) in line
    assert "OSError" not in line


def test_a_directory_whose_name_is_no_text(run_script: RunScript, tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"out-\xff")
    source = """
    import os, signal, sys
    import dftrace_ai
    from dftrace_ai import ai
    run = dftrace_ai.initialize(log_file=sys.argv[1] + "/t", spool_dir=sys.argv[1])
    with ai.compute.forward:
        pass
    run.flush()
    assert os.fsencode(run.stats()["trace_path"]).startswith(os.fsencode(sys.argv[1]))
    if os.fork() == 0:
        with ai.data.item:
            pass
        os.kill(os.getpid(), signal.SIGKILL)
    os.wait()
    if sys.argv[2] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    dftrace_ai.finalize()
    assert os.path.exists(run.path)
    """
    for how in ("finalized", "killed"):
        run_script(source, args=[str(folder / how), how], status=None if how == "killed" else 0)
        done = dftrace("recover", "--json", folder / how)
        assert done.status == 0, done.err
        files = trace_files(folder / how)
        assert sorted(name for path in files for name in read(path).names) == ["forward", "item"]


@pytest.fixture
def dead(run_script: RunScript, spools: Path) -> Path:
    """The directory of a killed process, whose trace was begun and whose spool is not beside it."""
    done = run_script(
        """
        import os, signal, sys
        import dftrace_ai
        from dftrace_ai import ai
        run = dftrace_ai.initialize(spool_dir=sys.argv[1], flush_interval_ms=60_000)
        with ai.compute.forward:
            pass
        run.flush()
        with ai.compute.forward:
            pass
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        args=[str(spools)],
        status=-9,
    )
    return done.folder


@pytest.mark.parametrize("begun", [True, False], ids=["continued", "made"])
@pytest.mark.parametrize("moment", ["listed", "adopted"])
def test_a_directory_that_becomes_a_link_is_not_followed(
    dead: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, begun: bool
) -> None:
    """Swapped after it was found, or when its spool is about to be adopted."""
    top = tmp_path / "top"
    top.mkdir()
    inner, away, elsewhere = top / "run", tmp_path / "away", tmp_path / "elsewhere"
    dead.rename(inner)
    elsewhere.mkdir()
    (trace,) = trace_files(inner)
    (elsewhere / trace.name).write_text("precious")
    (marker,) = inner.glob("*.spool-at")
    (elsewhere / marker.name).write_text("precious")
    if not begun:
        trace.unlink()

    def swap() -> None:
        if not away.exists():
            inner.rename(away)
            inner.symlink_to(elsewhere)

    holder: Any = recovery if moment == "listed" else _native
    name = "spools_of" if moment == "listed" else "adopt"
    real = getattr(holder, name)

    def swapped(*words: Any, **named: Any) -> Any:
        if moment == "adopted" or words[0].path == str(inner):
            swap()
        return real(*words, **named)

    monkeypatch.setattr(holder, name, swapped)
    found = complete_directories([top])
    assert away.exists()
    assert sorted(path.name for path in elsewhere.iterdir()) == sorted([trace.name, marker.name])
    assert {path.read_text() for path in elsewhere.iterdir()} == {"precious"}
    if begun:
        assert len(found.finished) == 1
        assert read(away / trace.name).names == {"forward": 2}
        assert not (away / marker.name).exists()
    else:
        (failure,) = found.failed
        assert "cannot be continued" in failure


def test_the_directory_of_a_spool_that_becomes_a_link_is_not_followed(
    dead: Path, spools: Path, tmp_path: Path
) -> None:
    """The marker leads to the spool through a link; what the link leads to is held at the start."""
    (spool,) = spools.iterdir()
    other = tmp_path / "other"
    other.mkdir()
    (other / spool.name).write_text("another's")
    held = spools.rename(tmp_path / "held")
    spools.symlink_to(other)
    found = adopt_dead(dead)
    assert len(found.failed) == 1
    assert (other / spool.name).read_text() == "another's"
    spools.unlink()
    held.rename(spools)
    assert len(adopt_dead(dead).finished) == 1


def test_what_has_another_name_is_left_alone(dead: Path, spools: Path, tmp_path: Path) -> None:
    (spool,) = spools.iterdir()
    (trace,) = trace_files(dead)
    for path in (spool, trace):
        link = tmp_path / "link"
        link.hardlink_to(path)
        before = link.read_bytes() if path == trace else b""
        (failure,) = adopt_dead(dead).failed
        assert "another name" in failure or "Too many links" in failure
        assert path != trace or link.read_bytes() == before
        link.unlink()
    assert len(adopt_dead(dead).finished) == 1
    assert read(trace).names == {"forward": 2}


def test_a_part_that_is_another_file_by_now_is_not_removed(traced: Traced) -> None:
    import dftrace_ai

    precious: Path | None = None
    with traced(perfetto=False, compression="none", max_file_bytes=65536, max_files=2) as rec:
        while len(trace_files(rec.folder)) < 2 or precious is None:
            for _ in range(200):
                with dftrace_ai.ai.compute.forward:
                    pass
            rec.run.flush()
            first = rec.folder / f"trace-{platform.node()}-{os.getpid()}.pfw"
            if precious is None and first.exists():
                precious = first.rename(rec.folder / "kept")
                first.write_text("precious")
        for _ in range(5):
            for _ in range(500):
                with dftrace_ai.ai.compute.forward:
                    pass
            rec.run.flush()
        assert first.read_text() == "precious"
        first.unlink()
        precious.unlink()


@pytest.mark.parametrize("content", [b"", b"/tmp/dftrace-"])
def test_a_marker_that_was_only_begun(tmp_path: Path, content: bytes) -> None:
    """Its process died there: it goes. It still runs, or is another host's: it stays."""
    here = platform.node()
    dead = tmp_path / f"t-{here}-{NOBODY}.spool-at"
    again = tmp_path / f"t-{here}-{NOBODY}-2.spool-at"
    alive = tmp_path / f"t-{here}-{os.getpid()}.spool-at"
    elsewhere = tmp_path / f"t-elsewhere-{NOBODY}.spool-at"
    # Its number is by now that of this process, which began later.
    before = tmp_path / f"t-{here}-{os.getpid()}-2.spool-at"
    for path in (dead, again, alive, elsewhere, before):
        path.write_bytes(content)
    os.utime(before, (1_000_000_000, 1_000_000_000))
    found = adopt_dead(tmp_path)
    assert found._asdict() == {
        **recovery.Recovery.nothing()._asdict(),
        "alive": sorted(map(str, (alive, elsewhere))),
    }
    assert sorted(tmp_path.iterdir()) == sorted((alive, elsewhere))


def test_a_trace_that_its_process_completed_is_not_told_as_left(dead: Path, spools: Path) -> None:
    """Only the spool was left: the process was killed right before it removed it."""
    (spool,) = spools.iterdir()
    (marker,) = dead.glob("*.spool-at")
    said = marker.read_bytes()
    with spool.open("rb") as held:
        first = adopt_dead(dead)
        assert (len(first.finished), first.ended_in_order) == (1, [])
        content = held.read()
    for command in ("summary", "recover"):
        spool.write_bytes(content)
        marker.write_bytes(said)
        done = invoke(command, dead)
        assert (done.status, done.err) == (0, "")
        assert command == "summary" or done.out == f"was complete {first.finished[0]}\n"
        assert not spool.exists()


def test_recovered_files_are_their_owners_alone(dead: Path) -> None:
    (path,) = adopt_dead(dead).finished
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
