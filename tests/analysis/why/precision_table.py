"""Writes into the guide what `dftrace why` says of the made runs: `make why-table`.

Every planted setting and every clean one with seeds of its own, and each category left out in turn.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from analysis.page_tables import write_table  # noqa: E402
from analysis.why.made_runs import CATEGORIES, CLEAN, PLANTED  # noqa: E402
from analysis.why.verdicts import found, training_of, verdict_of, wrong_without  # noqa: E402

# Not those of the tests, by which the rules were watched while they were written.
SEEDS = range(101, 104)


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


def row_of(case: Case) -> str:
    """The name of the row in which a run is counted."""
    if case.without:
        return "any of these, a category left out"
    if case.name in CLEAN:
        return "nothing"
    kind, _, cause = PLANTED[case.name][0].partition("/")
    return f"{kind}: {cause or 'not told'}" if kind == "input-bound" else kind


def measured(seeds: range) -> dict[str, Row]:
    """The rows of the table, by what was planted."""
    names = [*PLANTED, *CLEAN]
    cases = [Case(name, seed) for name in names for seed in seeds]
    cases += [Case(name, seeds[0], without) for name in names for without in CATEGORIES]
    rows: dict[str, Row] = defaultdict(Row)
    with ProcessPoolExecutor() as pool:
        for case, answer in zip(cases, pool.map(told, cases, chunksize=8), strict=True):
            planted = case.name in PLANTED and not case.without
            wanted = [PLANTED[case.name][0]] if planted else []
            row = rows[row_of(case)]
            row.runs += 1
            row.named += wanted[0] in answer if wanted else not answer
            row.others += sum(one not in wanted for one in answer)
            if answer != wanted:
                sys.stderr.write(f"{case}: {answer}\n")
    return rows


def as_text(rows: dict[str, Row]) -> str:
    """The table in Markdown, and the two figures below it."""
    lines = ["| planted | runs | named | wrong findings |", "|---|---:|---:|---:|"]
    for name, row in rows.items():
        named = "" if "left out" in name else f"{row.named:,}"
        lines.append(f"| {name} | {row.runs:,} | {named} | {row.others:,} |")
    planted = [row for name, row in rows.items() if name != "nothing" and "left out" not in name]
    right, runs = sum(row.named for row in planted), sum(row.runs for row in planted)
    others = sum(row.others for row in planted) + rows["nothing"].others
    recall, precision = right / runs, right / (right + others)
    lines += ["", f"Recall {right} of {runs}, {recall:.1%}; precision {right} of "]
    lines[-1] += f"{right + others}, {precision:.1%}."
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    write_table("why-is-my-step-slow.md", "verdicts", as_text(measured(SEEDS)))
