"""Writes trace files line by line as the recorder does, so that tests can put faults in."""

from __future__ import annotations

import gzip
import json
import random
import re
from pathlib import Path
from typing import Any

import zstandard

HOST_HASH = "2a702c695247d487"
TIME_BASE_US = 1_762_560_000_000_000
COUNTS = {
    "X": "spans",
    "B": "unfinished",
    "i": "instants",
    "C": "counters",
    "s": "flows",
    "f": "flows",
}


def micros(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


class TraceLines:
    """The lines of one file. Methods add a line and return its number in the file."""

    def __init__(
        self,
        pid: int = 100,
        *,
        host: str = "host",
        host_hash: str = HOST_HASH,
        time_base_us: int = TIME_BASE_US,
        timestamps: str = "relative",
        **header: Any,
    ) -> None:
        self.pid = pid
        self.host_hash = host_hash
        self.epoch = timestamps == "epoch_us"
        self.last_id = 0
        self.lines = ["["]
        self.meta("process_name", {"name": f"python · {host}"})
        self.meta("thread_name", {"name": "MainThread"})
        self.meta(
            "dftrace",
            {
                "version": "0.1.0",
                "format": 1,
                "hhash": host_hash,
                "host": host,
                "pid": pid,
                "ppid": 1,
                "run": "00ff",
                "time_base_us": 0 if self.epoch else time_base_us,
                "timestamps": timestamps,
                "clock": "monotonic",
                **header,
            },
        )

    def add(self, line: str) -> int:
        self.lines.append(line)
        return len(self.lines)

    def meta(
        self, name: str, args: dict[str, Any], cat: str = "dftrace", tid: int | None = None
    ) -> int:
        return self.add(
            f'{{"name":"{name}","cat":"{cat}","pid":{self.pid},"tid":{tid or self.pid},"ph":"M",'
            f'"args":{dump(args)}}}'
        )

    def event(
        self,
        ph: str,
        name: str,
        cat: str,
        start_ns: int,
        dur_ns: int | None = None,
        *,
        tid: int | None = None,
        more: str = "",
        **args: Any,
    ) -> int:
        self.last_id += 1
        head = (
            f'{{"id":{self.last_id},"name":{dump(name)},"cat":"{cat}","pid":{self.pid},'
            f'"tid":{tid or self.pid},'
        )
        if self.epoch:
            time = f'"ts":{start_ns // 1000},'
            if dur_ns is not None:
                time += f'"dur":{(start_ns + dur_ns) // 1000 - start_ns // 1000},'
        else:
            time = f'"ts":{micros(start_ns)},'
            if dur_ns is not None:
                time += f'"dur":{micros(dur_ns)},'
        tail = f',"args":{dump(args)}' if args else ""
        return self.add(f'{head}{time}"ph":"{ph}"{more}{tail}}}')

    def span(
        self, name: str, cat: str, start_ns: int, dur_ns: int, tid: int | None = None, **args: Any
    ) -> int:
        args = {"hhash": self.host_hash, "p_idx": 0, "level": 1, **args}
        return self.event("X", name, cat, start_ns, dur_ns, tid=tid, **args)

    def instant(self, name: str, start_ns: int, **args: Any) -> int:
        args = {"hhash": self.host_hash, "p_idx": 0, "level": 1, **args}
        return self.event("i", name, "instant", start_ns, more=',"s":"t"', **args)

    def counter(self, name: str, start_ns: int, **values: float) -> int:
        return self.event("C", name, "counter", start_ns, **values)

    def unfinished(self, name: str, cat: str, start_ns: int, tid: int | None = None) -> int:
        return self.event(
            "B",
            name,
            cat,
            start_ns,
            tid=tid,
            hhash=self.host_hash,
            p_idx=0,
            level=1,
            unfinished=True,
        )

    def flow(self, start_ns: int, end_ns: int) -> int:
        for ph, at, more in (("s", start_ns, ""), ("f", end_ns, ',"bp":"e"')):
            self.add(
                f'{{"id":77,"name":"flow","cat":"flow","pid":{self.pid},"tid":{self.pid},'
                f'"ts":{micros(at)},"ph":"{ph}"{more}}}'
            )
        return len(self.lines)

    def custom(self, key: str, value: str) -> int:
        self.last_id += 1
        args = {"hhash": self.host_hash, "name": key, "value": value}
        return self.add(
            f'{{"id":{self.last_id},"name":"CM","cat":"dftracer","pid":{self.pid},'
            f'"tid":{self.pid},"ph":"M","args":{dump(args)}}}'
        )

    def footer(self, **changes: Any) -> int:
        counts = dict.fromkeys([*COUNTS.values(), "metadata"], 0)
        # Faulty lines count as what they were meant to be, as the recorder would count them.
        for line in self.lines[1:]:
            found = re.search(r'"ph":"(\w)"', line)
            kind = COUNTS.get(found[1]) if found else None
            if '"name":"CM"' in line:
                kind = "metadata"
            if kind:
                counts[kind] += 1
        plain = sum(len(line.encode()) + 1 for line in self.lines)
        args = {
            "hhash": self.host_hash,
            "events": sum(counts.values()),
            **counts,
            "dropped": 0,
            "waits": 0,
            "unmatched_stops": 0,
            "args_sanitised": 0,
            "bytes": plain,
            "file_bytes": plain,
            "drain_cpu_us": 5,
            "ended": "finalize",
        }
        return self.meta("end", {**args, **changes})

    @property
    def text(self) -> bytes:
        return ("\n".join(self.lines) + "\n").encode()

    def write(self, path: Path, lines_a_block: int = 5) -> Path:
        """Write in the codec that the name says, in blocks of whole lines."""
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = self.text.splitlines(keepends=True)
        blocks = [
            b"".join(lines[at : at + lines_a_block]) for at in range(0, len(lines), lines_a_block)
        ]
        if path.name.endswith(".gz"):
            blocks = [gzip.compress(block) for block in blocks]
        elif path.name.endswith(".zst"):
            blocks = [zstandard.compress(block) for block in blocks]
        path.write_bytes(b"".join(blocks))
        return path


def dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def small_trace(pid: int = 100, **options: Any) -> TraceLines:
    """A correct trace with an event of every kind and a footer."""
    trace = TraceLines(pid, **options)
    trace.meta("HH", {"hhash": HOST_HASH, "name": "host", "value": HOST_HASH}, cat="dftracer")
    start = TIME_BASE_US * 1000 if trace.epoch else 1_123_213_646_764_123
    trace.span("forward", "compute", start + 100, 800, epoch=1, step=2, loss=0.5, tags=["a", "b"])
    trace.span("fetch.iter", "dataloader", start + 900, 50, count=1)
    trace.span("train", "pipeline", start, 2000, error="ValueError", note='say "hi"\n')
    trace.span("item", "data", start + 10, 5, tid=0x40000001)
    trace.instant("best", start + 1500, accuracy=0.9)
    trace.counter("loss", start + 1600, loss=0.25, steps=3)
    if not trace.epoch:
        trace.flow(start + 200, start + 910)
    trace.custom("epoch.start", "1762560000000001")
    trace.unfinished("epoch.block", "pipeline", start + 3000)
    trace.footer()
    return trace


OWN = {"hhash": HOST_HASH, "p_idx": 0, "level": 1}


def training(rank: int, steps: int = 40) -> TraceLines:
    """A rank that trains, with counters and statistics of tensors."""
    noise = random.Random(rank)
    trace = TraceLines(100 + rank, rank=rank, world_size=2)
    at = 10_000_000
    for step in range(steps):
        trace.span("fetch.iter", "dataloader", at, 1000, count=step + 1)
        begin = at = at + 1000
        for name in ("forward", "backward", "optimizer.step"):
            took = noise.randrange(20_000, 90_000)
            trace.span(name, "compute", at, took, step=step, epoch=step // 10)
            at += took + 100
        trace.counter("loss", at, train=1 / (step + 1))
        trace.event(
            "i",
            "block.0:weight:grad",
            "tensor_stats",
            at,
            more=',"s":"t"',
            **OWN,
            iteration=step,
            rank=rank,
            feature="stats",
            l2=0.5 * step,
            amax=None,
            amax_str="inf",
            n=64,
        )
        at += 500
        trace.span("fetch.block", "dataloader", begin, at - begin, count=step + 1)
    trace.footer(dropped=rank)
    return trace
