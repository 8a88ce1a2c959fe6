"""Instructions per span, counted by valgrind: exact where a shared machine's clock is not."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from bench.figures import Bench, Series
from bench.processes import Homes, environment

from .lineup import WORKERS
from .looking import looking_into

FEW, MANY = 2_000, 22_000


@dataclass(frozen=True)
class Counted:
    """A subject to count.

    Args:
        label: in the table.
        worker: who runs it.
        subject: its name there.
        looked_at: whether a reader looks at it meanwhile.
        few: iterations of the shorter of two loops.
        many: iterations of the longer one.
    """

    label: str
    worker: str
    subject: str
    looked_at: bool = False
    few: int = FEW
    many: int = MANY


WITH = [
    Counted("empty class", "plain", "empty_class"),
    Counted("nullcontext", "plain", "nullcontext"),
    Counted("dftrace_ai", "ours", "with"),
    Counted("dftrace_ai, looked at without a pause", "ours", "with", looked_at=True),
    Counted("dftrace_ai, ai.disable()", "ours-off", "with"),
    Counted("dftrace_ai, not initialised", "ours-inert", "with"),
    Counted("pydftracer", "pydftracer", "with"),
]
CALL = [
    Counted("pass-through wrapper", "plain", "wrapper"),
    Counted("dftrace_ai", "ours", "call"),
    Counted("dftrace_ai, ai.disable()", "ours-off", "call"),
    Counted("dftrace_ai, not initialised", "ours-inert", "call"),
    Counted("pydftracer", "pydftracer", "call"),
]
DRAIN = [
    Counted("formatted to plain lines", "ours-inert", "drain_none"),
    Counted("formatted and gzip", "ours-inert", "drain_gzip"),
]
LOG = [
    Counted("local", "loggers-local", "log_iter"),
    Counted("local, trace and one in a process of its own", "loggers-several", "log_iter"),
]
STEP = [
    Counted("dftrace_ai", "ours", "training_step"),
    Counted("pydftracer", "pydftracer", "training_step"),
]
STEP_WITH = [
    Counted("empty class", "plain", "empty_class"),
    Counted("dftrace_ai", "ours", "step_with"),
    Counted("pydftracer", "pydftracer", "step_with"),
]
UPDATE = [
    Counted("dftrace_ai", "ours", "update"),
    Counted("dftrace_ai, the arguments of each node rebuilt", "ours-apart", "update"),
    Counted("pydftracer", "pydftracer", "update"),
]
# Long enough for many units of the spool, which a loop of a few spans does not fill.
BURST = [
    Counted("empty class", "plain", "empty_class", few=20_000, many=220_000),
    Counted("dftrace_ai", "ours", "with", few=20_000, many=220_000),
]
ITER = [Counted("dftrace_ai", "ours", "iter"), Counted("pydftracer", "pydftracer", "iter")]


def instructions(homes: Homes, counted: Counted, part: str, n: int) -> int:
    """Run one loop under callgrind.

    Returns:
        Instructions of the main thread: what runs behind it is another core's work.

    Raises:
        RuntimeError: the process failed; the message holds its last line.
    """
    kind = WORKERS[counted.worker]
    python = homes.python(kind.home)
    if python is None:
        raise RuntimeError("no interpreter with the peers")
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        env = environment(kind.env)
        command = [
            python,
            "-m",
            "bench.spans.counted",
            kind.module,
            kind.mode,
            counted.subject,
            part,
        ]
        # Once without valgrind: compiling modules to bytecode must not be counted.
        subprocess.run([*command, "16", scratch], capture_output=True, env=env, check=False)
        watched = counted.looked_at and part == "loop"
        with looking_into(Path(scratch)) if watched else nullcontext([]) as seen:
            done = subprocess.run(
                [
                    "valgrind",
                    "--tool=callgrind",
                    "--separate-threads=yes",
                    f"--callgrind-out-file={scratch}/out",
                    *command,
                    str(n),
                    scratch,
                ],
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
    """Return the main thread's instructions per iteration, baseline taken off.

    The difference of two loop lengths cancels start-up.
    """
    few, many = counted.few, counted.many
    loop_few = instructions(homes, counted, "loop", few)
    loop_many = instructions(homes, counted, "loop", many)
    base_few = instructions(homes, counted, "baseline", few)
    base_many = instructions(homes, counted, "baseline", many)
    return (loop_many - loop_few - base_many + base_few) / (many - few)


def measure(homes: Homes) -> list[Bench]:
    """Count the instructions of a span in each form."""
    benches: list[Bench] = []
    titles = {
        "callgrind_with": ("`with node: pass`: instructions", WITH),
        "callgrind_call": ("decorated call: instructions over the bare call", CALL),
        "callgrind_iter": ("an item through `.iter`: instructions", ITER),
        "callgrind_step": ("a step: ai.update, then five spans: instructions", STEP),
        "callgrind_step_with": ("`with node(step=i): pass`: instructions", STEP_WITH),
        "callgrind_update": ("`ai.update(epoch=, step=)` on the whole tree: instructions", UPDATE),
        "callgrind_burst": ("200,000 spans back to back, each: instructions", BURST),
        "callgrind_log_iter": ("`log_iter` of twenty numbers: instructions", LOG),
        "callgrind_drain": ("drain, per event: instructions", DRAIN),
    }
    for name, (title, lineup) in titles.items():
        print(f"  {name}", file=sys.stderr)
        labels = [item.label for item in lineup]
        reference = "dftrace_ai" if "dftrace_ai" in labels else labels[0]
        bench = Bench(name, title, "instructions", reference=reference)
        if shutil.which("valgrind") is None:
            bench.series = [Series(item.label, missing="no valgrind") for item in lineup]
            benches.append(bench)
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
        benches.append(bench)
    return benches
