"""Writes into the guide what is told of jobs with a known cause: `make ranks-table`.

Made jobs, and trainings that are run for it; `made` or `real` as a word asks for one of the two, and
a folder behind `real` keeps their traces, of which those that are there are not run again.
Ends with an error where of made ones fewer causes are told, or more clean ones accused, than is
promised.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from analysis.page_tables import write_table  # noqa: E402
from analysis.ranks.made_jobs import (  # noqa: E402
    PLANTS,
    SHAPES,
    SPREADS,
    Shape,
    clean_job,
    is_told,
    planted_job,
)
from analysis.ranks.real_jobs import all_jobs, is_right, run  # noqa: E402

from dftrace_ai.analysis.ranks.lateness import lateness_of  # noqa: E402

PAGE = "which-rank.md"

# Not those of the tests, by which the rules were watched while they were written.
SEEDS = range(3001, 3007)
CLEAN_SEEDS = {2: 20, 4: 20, 8: 20, 64: 20, 256: 20, 1024: 4}
RANKS = (8, 16, 64, 256, 1024)
LEAST_RECALL = {**dict.fromkeys(RANKS, 0.95), 1024: 0.90}
MOST_ACCUSED = 3 / 900


class Case(NamedTuple):
    """A job: with a plant, or clean in noise of a shape and spread."""

    ranks: int
    seed: int
    name: str = ""
    shape: Shape = "normal"
    spread: float = 0.0


class Told(NamedTuple):
    """What was told of it: the plant; how much else, but not that ranks jitter; that they do."""

    plant: bool
    others: int
    jitter: bool


def told(case: Case) -> Told:
    """What is told of a job."""
    if case.name:
        made, planted = planted_job(case.name, case.ranks, case.seed)
    else:
        made, planted = clean_job(case.ranks, case.shape, case.spread, case.seed), None
    found = lateness_of(made.job(), scores=False).found
    hits = [late for late in found if planted is not None and is_told(late, planted)]
    jitter = [late for late in found if late.kind == "jitter"]
    return Told(bool(hits), len(found) - len(hits) - len(jitter), bool(jitter))


def all_cases() -> Iterable[Case]:
    """Each plant and each kind of noise, by how many ranks there are."""
    for ranks in RANKS:
        for name in PLANTS:
            yield from (Case(ranks, seed, name) for seed in SEEDS)
    for ranks, seeds in CLEAN_SEEDS.items():
        for shape in SHAPES:
            for spread in SPREADS:
                first = SEEDS[0]
                yield from (Case(ranks, first + at, "", shape, spread) for at in range(seeds))


def of_made_jobs() -> int:
    """Judge them and write the tables; 1 where it is worse than promised."""
    runs: Counter[tuple[str, int]] = Counter()
    named: Counter[tuple[str, int]] = Counter()
    others: Counter[tuple[str, int]] = Counter()
    jitter: Counter[tuple[str, int]] = Counter()
    cases = list(all_cases())
    with ProcessPoolExecutor() as pool:
        for case, answer in zip(cases, pool.map(told, cases, chunksize=8), strict=True):
            key = case.name, case.ranks
            runs[key] += 1
            named[key] += answer.plant
            others[key] += bool(answer.others)
            jitter[key] += answer.jitter
            if not case.name and answer.others or case.name and not answer.plant:
                sys.stderr.write(f"{case}: {answer}\n")
    write_table(PAGE, "lateness of made jobs", as_text(runs, named, others, jitter))
    recall = {
        ranks: sum(named[name, ranks] for name in PLANTS)
        / sum(runs[name, ranks] for name in PLANTS)
        for ranks in RANKS
    }
    accused = sum(others["", ranks] for ranks in CLEAN_SEEDS)
    clean = sum(runs["", ranks] for ranks in CLEAN_SEEDS)
    worse = any(recall[ranks] < LEAST_RECALL[ranks] for ranks in RANKS)
    return int(worse or accused > MOST_ACCUSED * clean)


def as_text(
    runs: Counter[tuple[str, int]],
    named: Counter[tuple[str, int]],
    others: Counter[tuple[str, int]],
    jitter: Counter[tuple[str, int]],
) -> str:
    """The tables in Markdown, and the figures below them."""
    head = " | ".join(f"{ranks:,} ranks" for ranks in RANKS)
    lines = [f"| planted | {head} | others told |", "|---|" + "---:|" * (len(RANKS) + 1)]
    for name in PLANTS:
        cells = [f"{named[name, ranks]} of {runs[name, ranks]}" for ranks in RANKS]
        wrong = sum(others[name, ranks] for ranks in RANKS)
        lines.append(f"| {name} | {' | '.join(cells)} | {wrong} |")
    right = sum(named[name, ranks] for name in PLANTS for ranks in RANKS)
    count = sum(runs[name, ranks] for name in PLANTS for ranks in RANKS)
    lines += ["", f"Told {right} of {count}, {right / count:.1%}.", ""]
    lines += [
        "| clean jobs of | jobs | somebody is accused | jitter is told |",
        "|---|---:|---:|---:|",
    ]
    lines += [
        f"| {ranks:,} ranks | {runs['', ranks]} | {others['', ranks]} | {jitter['', ranks]} |"
        for ranks in CLEAN_SEEDS
    ]
    return "\n".join(lines) + "\n"


def of_real_jobs(folder: Path) -> None:
    """Run them, judge them and write their table."""
    runs: Counter[str] = Counter()
    right: Counter[str] = Counter()
    # All of them first: judging takes processor time that they would lack.
    for job, traces in [(job, run(job, folder)) for job in all_jobs()]:
        answer = is_right(job, traces)
        runs[job.row] += 1
        right[job.row] += answer
        if not answer:
            sys.stderr.write(f"{job}\n")
    lines = ["| training, who sleeps in | runs | told rightly |", "|---|---:|---:|"]
    lines += [f"| {row} | {count} | {right[row]} |" for row, count in runs.items()]
    lines += ["", f"Right of {runs.total()}: {right.total()}."]
    write_table(PAGE, "lateness of real jobs", "\n".join(lines) + "\n")


def main(words: list[str]) -> int:
    """Does what is asked for, see above."""
    worse = of_made_jobs() if "real" not in words else 0
    if "made" not in words:
        with tempfile.TemporaryDirectory() as folder:
            of_real_jobs(Path(words[1] if words[1:] else folder))
    return worse


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
