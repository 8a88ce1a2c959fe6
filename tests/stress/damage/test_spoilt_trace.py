"""A trace is removed, cut, or moved with its directory while its process writes it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from conftest import RunScript
from perfetto.trace_file import read, read_unfinished
from safety.commands import invoke

from dftrace_ai.spools import search
from dftrace_ai.spools.recovery import adopt_dead, adopt_orphans
from dftrace_ai.trace_format.file_names import trace_name
from stress.conftest import FaultRow
from stress.damage import TRAINED
from stress.judge import judge_counts

WRITING = """
def flushed():
    try:
        run.flush()
    except OSError as error:
        return error.strerror

out = Path(os.environ["DFTRACE_LOG_FILE"]).parent
run = dftrace_ai.initialize(spool_dir="spools", flush_interval_ms=60_000{settings})
trained(1000)
run.flush()
(trace,) = out.glob("*.pfw*")
{change}
trained(2000)
said = [flushed()]
trained(3000)
{end}
print(json.dumps([*said, {{key: run.stats().get(key) for key in ("error", "events", "lost_lines")}}]))
"""
END = "dftrace_ai.finalize()"
KILLED = 'flushed(); print("null", flush=True); os.kill(os.getpid(), signal.SIGKILL)'
REMOVED = "a file of it was removed or cut while it was written"


def writing(change: str, *, end: str = END, settings: str = "") -> str:
    return TRAINED + WRITING.format(change=change, end=end, settings=settings)


@pytest.mark.parametrize("settings", ["", ", compression='none', max_file_bytes=1 << 20"])
@pytest.mark.parametrize("change", ["trace.unlink()", "os.truncate(trace, 10)"])
def test_what_is_written_then_goes_into_another_file(
    run_script: RunScript, change: str, settings: str, fault_row: FaultRow
) -> None:
    """What the file held is gone, which is told and counted; nothing else is."""
    done = run_script(writing(change, settings=settings))
    assert done.said == [[None, {"error": REMOVED, "events": 5000, "lost_lines": 1000}]]
    assert done.stderr.count("the 1000 events in it are gone, and the trace goes on") == 1
    assert done.stderr.count("1000 events in a file that was removed or cut are lost") == 1
    traces = [read(path) for path in done.files if ".part" in path.name]
    assert sum(trace.names["forward"] for trace in traces) == 5000
    assert traces[-1].footer["ended"] == "finalize"
    assert len(traces) == 1 or settings
    assert invoke("validate", *[trace.path for trace in traces]).status == 0
    done_to_it = "removed" if "unlink" in change else "cut"
    kind = "plain, in parts" if settings else "compressed"
    with fault_row(f"the trace is {done_to_it} while it is written, {kind}") as row:
        row.add(judge_counts(traces, {"forward": 5000}))


def test_its_process_is_killed_afterwards(run_script: RunScript) -> None:
    done = run_script(writing("trace.unlink()", end=KILLED), status=-9)
    found = adopt_dead(done.folder)
    assert (found.failed, found.damaged, len(found.finished)) == ([], [], 1)
    assert read(done.files[0]).names == {"forward": 5000}


def test_it_is_removed_with_its_directory(run_script: RunScript) -> None:
    """As any trace whose directory is gone: what is recorded from then on is kept."""
    done = run_script(writing("shutil.rmtree(out)"))
    missing = "No such file or directory"
    assert done.said == [[missing, {"error": missing, "events": 0, "lost_lines": 6000}]]
    assert "1000 events in a file that was removed or cut are lost; 5000 events are kept" in (
        done.stderr
    )
    found_in = done.folder.parent / "found"
    found_in.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "SPOOL_PLACES", ())  # where others have orphans, too
        patch.setenv("DFTRACE_SPOOL_DIR", str(done.folder.parent / "spools"))
        found = adopt_orphans(found_in)
    assert found.failed == []
    (path,) = found_in.glob("*.pfw*")
    assert read(path).names == {"forward": 5000}


@pytest.mark.parametrize("more", ["", "; out.mkdir()", "; os.symlink('spools', out)"])
def test_its_directory_is_renamed(run_script: RunScript, more: str) -> None:
    """The trace goes on where it is, and no marker is left that tells of a loss."""
    done = run_script(writing("moved = out.with_name('moved'); out.rename(moved)" + more))
    assert done.said == [[None, {"error": "", "events": 6000, "lost_lines": 0}]]
    assert done.stderr == ""
    moved = done.folder.parent / "moved"
    (path,) = moved.iterdir()
    assert read(path).names == {"forward": 6000}
    assert list((done.folder.parent / "spools").iterdir()) == []
    assert invoke("summary", moved).err == ""


DEAD = """
for case in range({cases}):
    if os.fork() == 0:
        settings = {{"compression": "none", "max_file_bytes": 100_000}} if case % 2 else {{}}
        run = dftrace_ai.initialize(
            log_file=f"out{{case}}/trace", spool_dir="spools", flush_interval_ms=60_000, **settings
        )
        for _ in range(2):
            trained(1000)
            run.flush()
        trained(300)  # so few that the drain thread, which may not be in a write now, does not wake
        os.kill(os.getpid(), signal.SIGKILL)
    os.wait()
"""


def test_what_the_spool_of_a_dead_process_holds_is_written_on_request(
    run_script: RunScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its trace is removed or cut before it is recovered: by itself nothing is added to another."""
    changes = [Path.unlink, Path.unlink, cut, cut]
    folder = run_script(TRAINED + DEAD.format(cases=len(changes))).folder.parent
    monkeypatch.setattr(search, "SPOOL_PLACES", ())  # where others have orphans
    for case, change in enumerate(changes):
        out = folder / f"out{case}"
        spools = len(list((folder / "spools").iterdir()))
        last = max(out.glob("*.pfw*"), key=part)
        whole = set(out.glob("*.pfw*")) - {last}
        assert bool(whole) == bool(case % 2)
        written = sum(read_unfinished(path).names["forward"] for path in [*whole, last])
        change(last)
        left = sorted(out.iterdir())
        refused = invoke("recover", out)
        assert refused.status == 1
        assert f"{last}: cannot be continued" in refused.err
        assert "dftrace recover DIR --orphans writes what the spool holds" in refused.err
        assert sorted(out.iterdir()) == left
        asked = invoke("recover", out, "--orphans")
        assert (asked.status, asked.out.count("1 trace recovered")) == (1, 1)
        assert "what was written before: the trace is gone, or was cut" in asked.err
        assert list(out.glob("*.spool-at")) == []
        assert len(list((folder / "spools").iterdir())) == spools - 1
        made = set(out.glob("*.pfw*")) - whole - {last}
        assert sum(read(path).names["forward"] for path in made) == 2300 - written == 300
        assert invoke("validate", *made, *whole).status == 0
        assert invoke("recover", out, "--orphans").out == "nothing to recover\n"


def part(path: Path) -> int:
    name = trace_name(path.name)
    assert name is not None
    return name.part


def cut(path: Path) -> None:
    os.truncate(path, 10)
