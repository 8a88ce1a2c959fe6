"""What `dftrace run` adds to the processor time of a whole program: to its steps, and once."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

from bench.processes import Homes, environment
from bench.series import Bench, Series, Target
from bench.steps.twin import make_batons

OURS, AGAIN = "dftrace run", "nobody"
TITLES = {
    "convolutions": "a small network of convolutions, 32 pictures, no worker",
    "workers": "the same, two workers",
    "trainer": "a small transformer as trainers do it: 2 microbatches, clipping, schedule, evaluation",
}
STEPS = 70  # in turn; one process differs from another by more than its steps do, so there are many pairs
MOST_PERCENT = 1.0
# That whoever is left by its parent becomes ours (prctl.h of Linux).
PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Ran:
    """What a program took, in processor seconds.

    Attributes:
        steps: each of the steps that it does in turn with another program, in the thread that trains.
        others: a step of those at a stretch of a second, in all other threads and in workers.
        apart: all else, from its start to its end and that of whom it has left behind.
    """

    steps: list[float]
    others: float
    apart: float


def measure(homes: Homes, rounds: int) -> list[Bench]:
    """Run each training below `dftrace run` and by Python alone, pair by pair.

    A round is two pairs, in which the one that is traced has either place: what one place is slower than
    the other is in both. Nobody has a pair in every other round.
    """
    apart = Bench(
        "run_apart",
        "`dftrace run`: processor time of beginning and ending, with what it says at its end",
        "s",
        notes=["Over that of the same program by Python alone."],
    )
    benches = []
    for training, title in TITLES.items():
        bench = Bench(
            f"run_{training}",
            f"a step below `dftrace run`, {title}: processor time that it adds",
            "%",
            series=[Series(OURS), Series(AGAIN)],
            targets=[Target(OURS, MOST_PERCENT)],
            notes=[
                "All threads and workers; two programs take turns, a step each.",
                "Other threads and workers: of the steps that each does in a second at a stretch then.",
                "Where others keep the machine busy, what is paid by the second counts more often.",
            ],
        )
        begun, steps_s = Series(training), []
        for at in range(3 * rounds // 2):
            traced, taken = at % 3 < 2, []
            series, places = (bench.series[0], (0, 1)) if traced else (bench.series[1], (at % 2,))
            print(f"  run: {training}, {series.contestant}", file=sys.stderr)
            for place in places:
                found, series.missing = _pair(homes.main, training, traced, place)
                if found is None:
                    break
                taken.append(percent(*found))
                steps_s.append(step_s(found[1]))
                if traced:
                    begun.samples.append(found[0].apart - found[1].apart)
            if series.missing:
                break
            series.samples.append(mean(taken))
        if steps_s:
            bench.notes.append(f"A step by Python alone: {1e3 * median(steps_s):.1f} ms.")
        apart.series.append(begun)
        benches.append(bench)
    return [*benches, apart]


def step_s(ran: Ran) -> float:
    """Return the processor seconds of a step in all threads and workers."""
    return median(ran.steps) + ran.others


def percent(traced: Ran, bare: Ran) -> float:
    """Return what a step takes more, in percent: of the thread by each with the one behind it."""
    own = median(a - b for a, b in zip(traced.steps, bare.steps, strict=True))
    return 100 * (own + traced.others - bare.others) / step_s(bare)


def _pair(
    python: str, training: str, traced: bool, place: int
) -> tuple[tuple[Ran, Ran] | None, str]:
    """Run two programs, the one at `place` traced if either is; return that one first, or why not."""
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as made:
        folder = Path(made)
        make_batons(folder)
        running = []
        for number in range(2):
            program = [str(Path(__file__).with_name("program.py")), training]
            command = [python, *program, str(STEPS), made, str(number)]
            if traced and number == place:
                command[1:1] = ["-m", "dftrace_ai", "run", "-o", str(folder / "traces")]
            with (folder / f"said-{number}").open("wb") as said:
                one = subprocess.Popen(
                    command, stdout=said, stderr=said, cwd=folder, env=environment({})
                )
            running.append(one)
        used_s, left_s = _ended(running)
        results = [folder / f"{number}.json" for number in range(2)]
        if not all(result.exists() for result in results):
            lines = (folder / f"said-{place}").read_text(errors="replace").strip().splitlines()
            return None, lines[-1] if lines else "ended without a word"
        ran = []
        for number, result in enumerate(results):
            steps, others, loop_s = json.loads(result.read_text())
            behind_s = left_s if number == place else 0.0
            ran.append(Ran(steps, others, used_s[number] + behind_s - loop_s))
        return (ran[place], ran[1 - place]), ""


def _ended(running: list[subprocess.Popen[bytes]]) -> tuple[list[float], float]:
    """Wait for all; return the processor seconds of each, and of processes that they have left.

    One that fails takes the others along, which wait for it.
    """
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    used_s = {one.pid: 0.0 for one in running}
    left_s, waiting = 0.0, True
    while waiting:
        try:
            pid, status, usage = os.wait4(-1, 0)
        except ChildProcessError:
            waiting = False
            continue
        if pid in used_s:
            used_s[pid] = usage.ru_utime + usage.ru_stime
            for one in running if status else ():
                one.kill()
        else:
            left_s += usage.ru_utime + usage.ru_stime
    prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    return [used_s[one.pid] for one in running], left_s
