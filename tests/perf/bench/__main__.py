"""Runs the benches: `python -m bench [--quick] [--only ID ...] [--peers PYTHON] [--out DIR]`."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from . import imports, machine, report
from .files import analysts, drain, long_runs, many_files, reading, recovery, sizes
from .loggers import calls
from .processes import Homes
from .series import Bench
from .spans import bursts, callgrind, rounds, thread_check
from .spans.lineup import span_benches
from .steps import measure as steps
from .steps import sampled, whole
from .tensors import inspection, statistics
from .trainings import training

# How often, or of how much: in a full run, and in a quick one.
FULL = {
    "generations": 3,
    "span_rounds": 12,
    "check_spans": 20_000,
    "drain_events": 2_000_000,
    "drain_rounds": 5,
    "recovery_events": 3_000_000,
    "recovery_rounds": 5,
    "reading_events": 3_000_000,
    "reading_rounds": 1,
    "long_steps": 1_000_000,
    "long_rounds": 1,
    "judged_events": 100_000,
    "size_rounds": 2,
    "training_epochs": 20,
    "training_rounds": 15,
    "step_rounds": 12,
    "run_rounds": 8,
    "lines_rounds": 60,
    "import_rounds": 15,
    "tensor_rounds": 15,
    "logger_rounds": 15,
    "idle_s": 60,
    "burst_rounds": 9,
}
QUICK = dict(
    zip(
        FULL,
        (
            1,
            7,
            5_000,
            500_000,
            2,
            500_000,
            2,
            500_000,
            1,
            320_000,
            1,
            50_000,
            1,
            3,
            6,
            5,
            3,
            12,
            5,
            5,
            5,
            60,
            5,
        ),
    )
)

# The benches that are not about the cost of a span, with how much each does.
OTHERS: dict[str, list[tuple[Callable[..., list[Bench]], tuple[str, ...]]]] = {
    "threads_check": [(thread_check.measure, ("check_spans",))],
    "bursts": [(bursts.measure, ("burst_rounds",))],
    "drain": [(drain.measure, ("drain_events", "drain_rounds"))],
    "recovery": [(recovery.measure, ("recovery_events", "recovery_rounds"))],
    "size": [(sizes.measure, ("size_rounds",))],
    "reading": [
        (reading.measure, ("reading_events", "reading_rounds")),
        (many_files.measure, ("reading_rounds",)),
    ],
    "long": [(long_runs.measure, ("long_steps", "long_rounds"))],
    "judging": [(analysts.measure, ("judged_events",))],
    "training": [(training.measure, ("training_epochs", "training_rounds"))],
    "steps": [(steps.measure, ("step_rounds",))],
    "run": [(whole.measure, ("run_rounds",))],
    "lines": [(sampled.measure, ("lines_rounds",))],
    "import": [(imports.measure, ("import_rounds",))],
    "tensors": [(statistics.measure, ("tensor_rounds",))],
    "inspection": [(inspection.measure, ("tensor_rounds",))],
    "loggers": [(calls.measure, ("logger_rounds", "idle_s"))],
}


def parser() -> argparse.ArgumentParser:
    names = [item.bench.id for item in span_benches()] + list(OTHERS)
    made = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    made.add_argument("--quick", action="store_true", help="some minutes less; less sure")
    made.add_argument("--only", nargs="+", metavar="ID", choices=names, help=", ".join(names))
    made.add_argument("--callgrind", action="store_true", help="count instructions too (minutes)")
    made.add_argument(
        "--main", default=sys.executable, help="interpreter with dftrace_ai and torch"
    )
    made.add_argument("--peers", help="interpreter with the peers; without it they show as -")
    made.add_argument("--out", type=Path, default=Path("bench-results"), help="for the results")
    made.add_argument("--strict", action="store_true", help="exit 1 where a target is missed")
    return made


def absolute(python: str | None) -> str | None:
    """Return an interpreter's absolute path without following its link out of its venv."""
    if python is None:
        return None
    found = shutil.which(python)
    return str(Path(found).absolute()) if found else None


def command_of(chosen: argparse.Namespace) -> str:
    """Return the command as a reader would type it, without this machine's paths."""
    flags = [f"--{name}" for name in ("quick", "callgrind") if getattr(chosen, name)]
    only = ["--only", *chosen.only] if chosen.only else []
    return " ".join(["python -m bench", *flags, *only])


def main() -> int:
    chosen = parser().parse_args()
    begun = time.monotonic()
    effort = QUICK if chosen.quick else FULL
    homes = Homes(absolute(chosen.main) or sys.executable, absolute(chosen.peers))
    if homes.peers is None:
        print("no interpreter with the peers: they will be shown as -", file=sys.stderr)
    described = machine.describe()
    spans = span_benches()
    wanted = set(chosen.only or [item.bench.id for item in spans] + list(OTHERS))
    spans = [item for item in spans if item.bench.id in wanted]
    ledger = rounds.run(spans, homes, effort["generations"], effort["span_rounds"])
    benches = [item.bench for item in spans]
    for name, parts in OTHERS.items():
        for measure, amounts in parts if name in wanted else ():
            benches += measure(homes, *(effort[amount] for amount in amounts))
    if chosen.callgrind:
        benches += callgrind.measure(homes)
    series = [series for bench in benches for series in bench.series]
    missing = {one.contestant: one.missing or "not run" for one in series if not one.there}
    run = {"command": command_of(chosen), "seconds": f"{time.monotonic() - begun:.0f}"}
    report.write(chosen.out, benches, run | described | ledger.versions, missing)
    print((chosen.out / "results.txt").read_text())
    dropped = sum(counts.get("dropped", 0) for counts in ledger.counts)
    if dropped:
        print(f"warning: {dropped} records were dropped while spans were timed", file=sys.stderr)
    missed = any(judged.verdict == "missed" for bench in benches for judged in bench.judged())
    return 1 if chosen.strict and missed else 0


if __name__ == "__main__":
    sys.exit(main())
