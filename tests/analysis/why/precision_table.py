"""Writes into the guide what `dftrace why` says of runs with a known cause: `make why-table`.

Trainings that really run, each planted cause and each clean one; and made ones, with seeds of their
own and each category left out in turn. `made` or `real` as a word asks for one of the two.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from analysis.page_tables import write_table  # noqa: E402
from analysis.why import real_runs  # noqa: E402
from analysis.why.made_runs import CATEGORIES, CLEAN, PLANTED  # noqa: E402
from analysis.why.verdicts import found, training_of, verdict_of, wrong_without  # noqa: E402

# Not those of the tests, by which the rules were watched while they were written.
SEEDS = range(101, 104)
# How often each of the real trainings is run.
TIMES = 2
NOTHING = "nothing"


@dataclass
class Row:
    """Runs, those that were named by what was planted, and other findings in them."""

    runs: int = 0
    named: int = 0
    others: int = 0


class Case(NamedTuple):
    """A run, and what was left out of it."""

    name: str
    seed: int
    without: str = ""


def told(case: Case) -> list[str]:
    """What is found in a run; in one from which something was left out, what is wrong."""
    verdict = verdict_of(training_of(case.name), case.seed, case.without)
    return wrong_without(case.name, verdict) if case.without else found(verdict)


def row_of(label: str) -> str:
    """The name of the row in which runs are counted into which this was planted."""
    kind, _, cause = label.partition("/")
    return f"{kind}: {cause or 'not told'}" if kind == "input-bound" else kind


def counted_in(rows: dict[str, Row], name: str, wanted: list[str], answer: list[str]) -> None:
    """Counts a run."""
    row = rows[name]
    row.runs += 1
    row.named += wanted[0] in answer if wanted else not answer
    row.others += sum(one not in wanted for one in answer)


def of_made_runs() -> dict[str, Row]:
    """The rows of made runs, by what was planted."""
    names = [*PLANTED, *CLEAN]
    cases = [Case(name, seed) for name in names for seed in SEEDS]
    cases += [Case(name, SEEDS[0], without) for name in names for without in CATEGORIES]
    rows: dict[str, Row] = defaultdict(Row)
    with ProcessPoolExecutor() as pool:
        for case, answer in zip(cases, pool.map(told, cases, chunksize=8), strict=True):
            label = PLANTED[case.name][0] if case.name in PLANTED else ""
            name = "any of these, a category left out" if case.without else row_of(label)
            wanted = [label] if label and not case.without else []
            counted_in(rows, name if label or case.without else NOTHING, wanted, answer)
            if answer != wanted:
                sys.stderr.write(f"{case}: {answer}\n")
    return rows


def of_real_runs() -> dict[str, Row]:
    """The rows of trainings that are run for it, by what was planted."""
    rows: dict[str, Row] = defaultdict(Row)
    for turn in range(TIMES):
        with tempfile.TemporaryDirectory() as folder:
            # All of them first: judging takes processor time that they would lack.
            for name in list(finished_in(Path(folder), [])):
                label = real_runs.wanted(name)
                wanted = [label] if label else []
                answer = real_runs.told(Path(folder, name), label)
                counted_in(rows, row_of(label) if label else NOTHING, wanted, answer)
                if answer != wanted:
                    sys.stderr.write(f"{name}, turn {turn + 1}: {answer}\n")
    return dict(sorted(rows.items(), key=lambda row: row[0] == NOTHING))


def finished_in(folder: Path, names: Iterable[str]) -> Iterable[str]:
    """Runs the trainings of some names, of all without any, and yields each that has ended."""
    program = [sys.executable, real_runs.__file__, str(folder), *names]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        for line in running.stdout:
            yield line.rstrip("\n")
    assert running.returncode == 0, running.returncode


def as_text(rows: dict[str, Row]) -> str:
    """The table in Markdown, and the two figures below it."""
    lines = ["| planted | runs | named | wrong findings |", "|---|---:|---:|---:|"]
    for name, row in rows.items():
        named = "" if "left out" in name else f"{row.named:,}"
        lines.append(f"| {name} | {row.runs:,} | {named} | {row.others:,} |")
    planted = [row for name, row in rows.items() if name != NOTHING and "left out" not in name]
    right, runs = sum(row.named for row in planted), sum(row.runs for row in planted)
    others = sum(row.others for row in planted) + rows[NOTHING].others
    recall, precision = right / runs, right / (right + others)
    lines += ["", f"Recall {right} of {runs}, {recall:.1%}; precision {right} of "]
    lines[-1] += f"{right + others}, {precision:.1%}."
    return "\n".join(lines) + "\n"


TABLES: dict[str, tuple[str, Callable[[], dict[str, Row]]]] = {
    "real": ("verdicts of real runs", of_real_runs),
    "made": ("verdicts", of_made_runs),
}


if __name__ == "__main__":
    for name in sys.argv[1:] or TABLES:
        mark, rows = TABLES[name]
        write_table("why-is-my-step-slow.md", mark, as_text(rows()))
