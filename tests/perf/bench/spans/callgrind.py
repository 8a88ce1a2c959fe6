"""Instructions per span, counted by valgrind: exact where a shared machine's clock is not."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from bench.processes import Homes, environment
from bench.series import Bench, Series
from dftrace_ai import _native

from .lineup import APART, DFTRACER, EMPTY, INERT, NULL, OFF, OURS, WORKERS, WRAPPER

WINDOW_S = 5.0


@dataclass(frozen=True)
class Counted:
    """A subject to count: the difference of two lengths of its loop cancels start-up."""

    label: str  # in the table
    worker: str  # who runs it
    subject: str  # its name there
    looked_at: bool = False  # whether a reader looks at it meanwhile
    few: int = 2_000
    many: int = 22_000


WITH = [
    Counted(EMPTY, "plain", "empty_class"),
    Counted(NULL, "plain", "nullcontext"),
    Counted(OURS, "ours", "with"),
    Counted("dftrace_ai, looked at without a pause", "ours", "with", looked_at=True),
    Counted(OFF, "ours-off", "with"),
    Counted(INERT, "ours-inert", "with"),
    Counted(DFTRACER, "pydftracer", "with"),
]
CALL = [
    Counted(WRAPPER, "plain", "wrapper"),
    Counted(OURS, "ours", "call"),
    Counted(OFF, "ours-off", "call"),
    Counted(INERT, "ours-inert", "call"),
    Counted(DFTRACER, "pydftracer", "call"),
]
DRAIN = [
    Counted("formatted to plain lines", "ours-inert", "drain_none"),
    Counted("formatted and gzip", "ours-inert", "drain_gzip"),
]
LOG = [
    Counted("local", "loggers-local", "log_iter"),
    Counted("local, trace and one in a process of its own", "loggers-several", "log_iter"),
]
# Long enough for many units of the spool, which a loop of a few spans does not fill.
BURST = [
    Counted(EMPTY, "plain", "empty_class", few=20_000, many=220_000),
    Counted(OURS, "ours", "with", few=20_000, many=220_000),
]


def _both(subject: str) -> list[Counted]:
    return [Counted(OURS, "ours", subject), Counted(DFTRACER, "pydftracer", subject)]


COUNTS = {
    "callgrind_with": ("`with node: pass`: instructions", WITH),
    "callgrind_call": ("decorated call: instructions over the bare call", CALL),
    "callgrind_iter": ("an item through `.iter`: instructions", _both("iter")),
    "callgrind_step": (
        "a step: ai.update, then five spans: instructions",
        _both("training_step"),
    ),
    "callgrind_step_with": (
        "`with node(step=i): pass`: instructions",
        [Counted(EMPTY, "plain", "empty_class"), *_both("step_with")],
    ),
    "callgrind_update": (
        "`ai.update(epoch=, step=)` on the whole tree: instructions",
        [*_both("update"), Counted(APART, "ours-apart", "update")],
    ),
    "callgrind_burst": ("200,000 spans back to back, each: instructions", BURST),
    "callgrind_log_iter": ("`log_iter` of twenty numbers: instructions", LOG),
    "callgrind_drain": ("drain, per event: instructions", DRAIN),
}


@contextmanager
def looking_into(directory: Path) -> Iterator[list[int]]:
    """Look, as often as one can, into the spools of whatever records into a directory, as `dftrace top` does
    now and then; yields the numbers of records that were seen, a look each."""
    stop = threading.Event()
    seen: list[int] = []

    def look() -> None:
        while not stop.is_set():
            for marker in directory.glob("*.spool-at"):
                try:
                    told = _native.look_into(marker.read_text().splitlines()[0], WINDOW_S)
                except (OSError, IndexError):
                    continue  # it is only being written, or the process has ended
                seen.append(sum(thread["records"] for thread in told["threads"]))

    reader = threading.Thread(target=look)
    reader.start()
    try:
        yield seen
    finally:
        stop.set()
        reader.join()


def instructions(homes: Homes, counted: Counted, part: str, n: int) -> int:
    """Run one loop under callgrind; return instructions of the main thread: what runs behind it is another
    core's work. A process that fails is a RuntimeError with its last line."""
    kind = WORKERS[counted.worker]
    python = homes.python(kind.home)
    if python is None:
        raise RuntimeError("no interpreter with the peers")
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        env = environment(kind.env)
        command = [python, "-m", "bench.spans.worker", kind.contestant, kind.mode, scratch]
        command += [counted.subject, part]
        # Once without valgrind: compiling modules to bytecode must not be counted.
        subprocess.run([*command, "16"], capture_output=True, env=env, check=False)
        watched = counted.looked_at and part == "loop"
        valgrind = ["valgrind", "--tool=callgrind", "--separate-threads=yes"]
        valgrind.append(f"--callgrind-out-file={scratch}/out")
        with looking_into(Path(scratch)) if watched else nullcontext([]) as seen:
            done = subprocess.run(
                [*valgrind, *command, str(n)],
                capture_output=True,
                text=True,
                cwd=scratch,
                env=env,
                check=False,
            )
        if done.returncode != 0:
            lines = [line for line in done.stderr.splitlines() if not line.startswith("==")]
            raise RuntimeError(lines[-1] if lines else f"ended with {done.returncode}")
        if watched and n == counted.many and not any(seen):
            raise RuntimeError("nothing was seen of it")
        totals = {
            path.name: int(found[1])
            for path in Path(scratch).glob("out*")
            if (found := re.search(r"^(?:totals|summary): (\d+)", path.read_text(), re.MULTILINE))
        }
    return sum(total for name, total in totals.items() if name.endswith("-01"))


def per_iteration(homes: Homes, counted: Counted) -> float:
    """Return the main thread's instructions per iteration, baseline taken off."""
    few, many = counted.few, counted.many
    loop_few = instructions(homes, counted, "loop", few)
    loop_many = instructions(homes, counted, "loop", many)
    base_few = instructions(homes, counted, "baseline", few)
    base_many = instructions(homes, counted, "baseline", many)
    return (loop_many - loop_few - base_many + base_few) / (many - few)


def measure(homes: Homes) -> list[Bench]:
    """Count the instructions of a span in each form."""
    benches: list[Bench] = []
    for name, (title, lineup) in COUNTS.items():
        print(f"  {name}", file=sys.stderr)
        labels = [item.label for item in lineup]
        reference = OURS if OURS in labels else labels[0]
        bench = Bench(name, title, "instructions", reference=reference)
        benches.append(bench)
        if shutil.which("valgrind") is None:
            bench.fill({}, labels, "no valgrind")
            continue
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            futures = [(item, pool.submit(per_iteration, homes, item)) for item in lineup]
        for item, future in futures:
            series = Series(item.label)
            try:
                series.samples.append(future.result())
            except RuntimeError as error:
                series.missing = str(error)
            bench.series.append(series)
    return benches
