"""Runs the benches: `python -m bench [--quick] [--only ID ...] [--peers PYTHON] [--out DIR]`."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import imports, machine, report
from .figures import Bench
from .files import analysts, drain, many_files, reading, recovery, sizes
from .loggers import calls
from .processes import Homes
from .spans import bursts, callgrind, rounds, thread_check
from .spans.lineup import span_benches
from .steps import measure as steps
from .tensors import inspection, statistics
from .trainings import training

OTHERS = (
    "threads_check",
    "bursts",
    "drain",
    "recovery",
    "size",
    "reading",
    "judging",
    "training",
    "steps",
    "import",
    "tensors",
    "inspection",
    "loggers",
)


@dataclass(frozen=True)
class Effort:
    """How much of everything a run does."""

    generations: int
    span_rounds: int
    check_spans: int
    drain_events: int
    drain_rounds: int
    recovery_events: int
    recovery_rounds: int
    reading_events: int
    reading_rounds: int
    judged_events: int
    size_rounds: int
    training_epochs: int
    training_rounds: int
    step_rounds: int
    import_rounds: int
    tensor_rounds: int
    logger_rounds: int
    idle_s: int
    burst_rounds: int


FULL = Effort(
    *(
        3,
        12,
        20_000,
        2_000_000,
        5,
        3_000_000,
        5,
        3_000_000,
        1,
        100_000,
        2,
        20,
        15,
        25,
        15,
        15,
        15,
        60,
        9,
    )
)
QUICK = Effort(1, 7, 5_000, 500_000, 2, 500_000, 2, 500_000, 1, 50_000, 1, 3, 6, 9, 5, 5, 5, 60, 5)


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
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


def others(homes: Homes, effort: Effort, wanted: set[str]) -> list[Bench]:
    """Run the benches that are not about the cost of a span."""
    benches: list[Bench] = []
    if "threads_check" in wanted:
        benches += thread_check.measure(homes, effort.check_spans, 1)
    if "bursts" in wanted:
        benches += bursts.measure(homes, effort.burst_rounds)
    if "drain" in wanted:
        benches += drain.measure(homes, effort.drain_events, effort.drain_rounds)
    if "recovery" in wanted:
        benches += recovery.measure(homes, effort.recovery_events, effort.recovery_rounds)
    if "size" in wanted:
        benches += sizes.measure(homes, effort.size_rounds)
    if "reading" in wanted:
        benches += reading.measure(homes, effort.reading_events, effort.reading_rounds)
        benches += many_files.measure(homes, 3 * effort.reading_rounds)
    if "judging" in wanted:
        benches += analysts.measure(homes, effort.judged_events)
    if "training" in wanted:
        benches += training.measure(homes, effort.training_epochs, effort.training_rounds)
    if "steps" in wanted:
        benches += steps.measure(homes, effort.step_rounds)
    if "import" in wanted:
        benches += imports.measure(homes, effort.import_rounds)
    if "tensors" in wanted:
        benches += statistics.measure(homes, effort.tensor_rounds)
    if "inspection" in wanted:
        benches += inspection.measure(homes, effort.tensor_rounds)
    if "loggers" in wanted:
        benches += calls.measure(homes, effort.logger_rounds, effort.idle_s)
    return benches


def absolute(python: str | None) -> str | None:
    """Return an interpreter's absolute path without following its link out of its venv."""
    if python is None:
        return None
    found = shutil.which(python)
    return str(Path(found).absolute()) if found else None


def missing_of(benches: list[Bench]) -> dict[str, str]:
    """Return who was not measured, and why, each once."""
    return {
        series.contestant: series.missing or "not run"
        for bench in benches
        for series in bench.series
        if not series.there
    }


def command_of(chosen: argparse.Namespace) -> str:
    """Return the command as a reader would type it, without this machine's paths."""
    flags = [f"--{name}" for name in ("quick", "callgrind") if getattr(chosen, name)]
    only = ["--only", *chosen.only] if chosen.only else []
    return " ".join(["python -m bench", *flags, *only])


def main() -> int:
    """Run what was asked for; print the tables and write the results."""
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
    ledger = rounds.run(spans, homes, effort.generations, effort.span_rounds)
    benches = [item.bench for item in spans] + others(homes, effort, wanted)
    if chosen.callgrind:
        benches += callgrind.measure(homes)
    missing = missing_of(benches)
    extra: dict[str, Any] = {
        "command": command_of(chosen),
        "seconds": round(time.monotonic() - begun, 1),
        "missing": missing,
        "trace_counts": ledger.counts,
    }
    report.write(chosen.out, benches, described, ledger.versions, extra)
    print((chosen.out / "results.txt").read_text())
    dropped = sum(counts.get("dropped", 0) for counts in ledger.counts)
    if dropped:
        print(f"warning: {dropped} records were dropped while spans were timed", file=sys.stderr)
    missed = any(judged.verdict == "missed" for bench in benches for judged in bench.judged())
    return 1 if chosen.strict and missed else 0


if __name__ == "__main__":
    sys.exit(main())
