"""A small job of ranks on two hosts, with all that makes it hard to take apart."""

from __future__ import annotations

from pathlib import Path

from analysis.trace_lines import TraceLines

MS = 1_000_000
SLOW = 3


def made(folder: Path, count: int = 6, *, passes_only: tuple[int, ...] = ()) -> Path:
    """Ranks on two hosts, one slow, one with a loader; beside them processes that are no ranks."""
    folder.mkdir()
    for rank in range(count):
        host = f"node{rank // 3}"
        facts = {"rank": rank, "world_size": count, "node": host, "host": host}
        facts["host_hash"] = f"{rank // 3:016x}"
        trace = TraceLines(100 + rank % 3, **facts)
        trace.custom(
            "process_group", '{"name":"0","description":"pg","ranks":%s}' % [*range(count)]
        )
        loader = TraceLines(900, ppid=100 + rank % 3, **facts)
        at = 1000 * MS
        for step in range(40):
            own = 10 * MS + 10_000 * ((7 * rank + 3 * step) % 5) + (20 * MS if rank == SLOW else 0)
            trace.span("backward", "compute", at, own, step=step)
            if rank not in passes_only:
                call = {"group": "0", "seq": step, "bytes": 1 << 20}
                trace.span("all_reduce", "comm", at + own, 33 * MS - own, step=step, **call)
                trace.span("step", "pipeline", at, 33 * MS, step=step)
            loader.span("item", "data", at, 5 * MS, step=step)
            at += 34 * MS
        trace.footer()
        trace.write(folder / f"t-{host}-{100 + rank % 3}.pfw.gz")
        if rank in (1, 4):
            loader.footer()
            loader.write(folder / f"t-{host}-900.pfw.gz")
    launcher = TraceLines(50, host="node0", host_hash=f"{0:016x}")
    launcher.span("item", "data", 1000 * MS, MS)  # nobody knows for whom
    launcher.footer()
    launcher.write(folder / "t-node0-50.pfw.gz")
    return folder
