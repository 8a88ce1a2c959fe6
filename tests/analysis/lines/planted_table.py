"""Which lines `dftrace why` names in trainings that really run, planted or clean: `make lines-table`.

Prints the table: what a machine lets run differs from day to day, so no page has it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from analysis.lines import clean_programs, planted_programs  # noqa: E402

from dftrace_ai.analysis.why import Verdict, why  # noqa: E402


class Program(NamedTuple):
    """A training, of how many ranks, and the function that is to be named."""

    file: str
    name: str
    ranks: int
    planted: str = ""


PROGRAMS = [
    *(
        Program(planted_programs.__file__, name, plan.ranks, plan.named)
        for name, plan in planted_programs.PLANS.items()
    ),
    *(
        Program(clean_programs.__file__, name, clean_programs.RANKS[name])
        for name in clean_programs.TRAININGS
    ),
]


def recorded(program: Program, folder: Path, hz: int, seconds: float) -> Verdict:
    """What is said of a training that ran for so long."""
    words = [program.file]
    if program.ranks > 1:
        launcher = ["--", sys.executable, "-m", "torch.distributed.run", "--nproc-per-node"]
        words = [*launcher, str(program.ranks), "--standalone", program.file]
    at = ["-o", str(folder / "t"), "--set", f"lines_hz={hz}"]
    command = [str(Path(sys.executable).parent / "dftrace"), "run", *at, *words]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    command += [program.name, str(seconds)]
    subprocess.run(command, check=True, env=env, capture_output=True, timeout=600)
    return why([folder])


def lines_of(verdict: Verdict) -> list[tuple[str, str]]:
    """Of each finding its kind and what is said of the line that carries it."""
    return [(one.kind, line.text) for one in verdict.findings for line in one.lines if line.text]


def judged(program: Program, hz: int, seconds: float) -> tuple[str, str]:
    """Whether the planted function was named, and what was said."""
    with tempfile.TemporaryDirectory() as folder:
        verdict = recorded(program, Path(folder), hz, seconds)
    found = lines_of(verdict)
    said = "; ".join(f"{kind}: {text}" for kind, text in found)
    if not program.planted:
        return ("accused" if found else "clean"), said or verdict.verdict
    if any(f"{program.planted} (" in text for _, text in found):
        return "named", said
    silences = [line.silence for one in verdict.findings for line in one.lines]
    return ("wrong", said) if found else ("silent", f"{verdict.verdict}: {silences}")


def main() -> None:
    """Print a row for each training, and the sums."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hz", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("names", nargs="*")
    asked = parser.parse_args()
    counts: dict[str, int] = {}
    for program in PROGRAMS:
        if asked.names and program.name not in asked.names:
            continue
        answer, said = judged(program, asked.hz, asked.seconds)
        counts[answer] = counts.get(answer, 0) + 1
        print(f"| {program.name} | {answer} | {said} |", flush=True)
    print(", ".join(f"{count} {answer}" for answer, count in counts.items()))


if __name__ == "__main__":
    main()
