"""The file that tells other hosts what is open costs neither the run nor the trace anything."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from stress.pressure.program import Pressed


def test_a_directory_that_is_slow_to_rename_files(pressed: Pressed, traces: Path) -> None:
    """The trace is written meanwhile, and complete at the end, which waits for the file a moment."""
    done = pressed(
        """
        shim = Shim()
        shim.renames_hang = 1
        with dftrace_ai.tracing(live_file_s=0.01, flush_interval_ms=5) as run:
            spans(1)
            until(lambda: shim.hanging)
            spans(20_000)
            run.flush()
            say(written=run.stats()["written_spans"], hanging=shim.hanging)
        """
    )
    (said,) = done.said
    assert said == {"written": 20_001, "hanging": 1}
    assert done.trace().names == {"forward": 20_001}
    assert not list(traces.glob("*.live"))


def test_a_full_disk(pressed: Pressed, traces: Path) -> None:
    """What does not fit leaves nothing behind, and is there again once there is room."""
    done = pressed(
        """
        shim = Shim()
        out = Path(os.environ["PRESSURE_SHIM_FOLDER"])
        def files():
            return sorted(path.suffix for path in out.rglob("*.live*"))
        with dftrace_ai.tracing(live_file_s=0.01, flush_interval_ms=5) as run:
            spans(1)
            until(lambda: files() == [".live"])
            shim.trace_room = 0
            (live,) = out.rglob("*.live")
            spans(100)
            refused(run)
            refused(run)
            whole = live.read_bytes().endswith(b"}\\n")
            shim.trace_room = -1
            seen = os.stat(live).st_ino
            until(lambda: os.stat(live).st_ino != seen)
            say(whole=whole)
        """
    )
    assert done.said == [{"whole": True}]
    assert done.trace().names == {"forward": 101}
    assert [path.suffix for path in traces.iterdir()] == [".gz"]


def test_a_file_of_somebody_else_stays(pressed: Pressed, traces: Path) -> None:
    """Its name is taken, by a link that leads out: it stays, and leads to what it did."""
    done = pressed(
        """
        out = Path(os.environ["PRESSURE_SHIM_FOLDER"])
        precious = out.parent / "precious"
        precious.write_text("precious")
        from dftrace_ai._native import host_name
        link = out / f"t-{host_name()}-17.live"
        link.symlink_to(precious)
        run = dftrace_ai.initialize(log_file=out / "t", process_id=17, live_file_s=0.01)
        spans(1)
        run.flush()
        run.flush()
        dftrace_ai.finalize()
        say(link=os.path.islink(link), text=precious.read_text())
        """
    )
    assert done.said == [{"link": True, "text": "precious"}]
    assert not [path for path in traces.iterdir() if path.suffix == ".live-new"]


def test_workers_write_none(pressed: Pressed, traces: Path) -> None:
    """Of a rank with its forked children there is one file, and none when it has ended."""
    done = pressed(
        """
        out = Path(os.environ["PRESSURE_SHIM_FOLDER"])
        with dftrace_ai.tracing(live_file_s=0.01, flush_interval_ms=5) as run:
            spans(1)
            until(lambda: list(out.glob("*.live")))
            ready, tell = os.pipe()
            child = os.fork()
            if child == 0:
                spans(5)
                run.flush()
                os.write(tell, b".")
                signal.pause()
            os.read(ready, 1)
            say(markers=len(list(out.glob("*.spool-at"))), files=len(list(out.glob("*.live"))))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        """
    )
    assert done.said == [{"markers": 2, "files": 1}]
    assert {path.suffix for path in traces.iterdir()} == {".gz"}
    assert os.listdir(traces)
