"""Runs that begin and end by the thousand: nothing is left behind in the process."""

from __future__ import annotations

from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import RunScript

RUNS = 100  # between two looks


def test_runs_leave_nothing_behind(run_script: RunScript) -> None:
    """However many there were, the next runs need no more files, threads or memory."""
    done = run_script(
        f"""
        import ctypes, gc, json, sys
        from pathlib import Path
        import psutil
        import dftrace_ai
        from dftrace_ai import ai

        class Heap(ctypes.Structure):
            _fields_ = [(name, ctypes.c_size_t) for name in (
                "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
                "fordblks", "keepcost")]

        mallinfo2 = ctypes.CDLL(None).mallinfo2
        mallinfo2.restype = Heap

        def one_run():
            run = dftrace_ai.initialize()
            ai.update(step=1)
            with ai.compute.forward:
                pass
            dftrace_ai.finalize()
            assert run.stats()["events"] == 1
            Path(run.path).unlink()

        def look():
            gc.collect()
            process, heap = psutil.Process(), mallinfo2()
            return {{
                "files": process.num_fds(),
                "threads": process.num_threads(),
                "mappings": Path("/proc/self/maps").read_text().count("\\n"),
                "heap": heap.uordblks + heap.hblkhd,
                "objects": sys.getallocatedblocks(),
            }}

        looks = []
        for _ in range(12):
            for _ in range({RUNS}):
                one_run()
            looks.append(look())
        print(json.dumps(looks))
        """,
        env={"MALLOC_ARENA_MAX": "1"},  # one heap for all threads: what is told of it is everything
    )
    looks = done.said[0]
    assert len({look["files"] for look in looks}) == 1
    assert len({look["threads"] for look in looks}) == 1
    # The heap may get a part more, or one less.
    assert max(look["mappings"] for look in looks[4:]) <= looks[3]["mappings"] + 4
    # A table that gets larger does so once in a while, what leaks does so in every run. The C library
    # keeps some 160 bytes for each value that the variable DFTRACE_RUN ever had.
    assert typical_growth(looks, "heap") < 256
    assert typical_growth(looks, "objects") < 1


def typical_growth(looks: list[dict[str, int]], what: str) -> float:
    """The median, from look to look, for each run, once the interpreter's own stores are full.

    In its first five hundred runs or so these take up to two and a half objects for each.
    """
    return median((b[what] - a[what]) / RUNS for a, b in pairwise(looks[6:]))
