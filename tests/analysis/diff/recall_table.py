"""Writes into the guide what `dftrace diff` says of the made pairs: `make diff-table`.

Every planted pair, both ways round, and every two alike runs with seeds of their own.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from analysis.diff.made_pairs import ALIKE, PLANTED, Told, compared, told  # noqa: E402
from analysis.page_tables import write_table  # noqa: E402

# Not those of the tests, by which the rules were watched while they were written.
SEEDS, SEEDS_ALIKE = range(101, 104), range(101, 116)


@dataclass
class Row:
    """Changes that were planted, those that were named, and other changes that were told."""

    pairs: int = 0
    planted: int = 0
    named: int = 0
    others: int = 0


class Case(NamedTuple):
    """A pair of runs."""

    name: str
    seed: int


def answers(case: Case) -> list[tuple[set[Told], set[Told]]]:
    """What was planted and what was told, the pair as it is and the other way round."""
    if case.name in ALIKE:
        return [(set(), set(told(compared(*case))))]
    factors = PLANTED[case.name].factors
    wanted = {Told("slower" if factor else "new", name) for name, factor in factors.items()}
    back = {Told("faster" if factor else "gone", name) for name, factor in factors.items()}
    return [
        (wanted, set(told(compared(*case)))),
        (back, set(told(compared(*case, backwards=True)))),
    ]


def measured() -> dict[str, Row]:
    """The rows of the table, by what was planted."""
    cases = [Case(name, seed) for name in PLANTED for seed in SEEDS]
    cases += [Case(name, seed) for name in ALIKE for seed in SEEDS_ALIKE]
    rows: dict[str, Row] = defaultdict(Row)
    with ProcessPoolExecutor() as pool:
        for case, pairs in zip(cases, pool.map(answers, cases, chunksize=3), strict=True):
            row = rows["nothing" if case.name in ALIKE else case.name]
            for wanted, said in pairs:
                row.pairs += 1
                row.planted += len(wanted)
                row.named += len(wanted & said)
                row.others += len(said - wanted)
                if wanted != said:
                    sys.stderr.write(f"{case}: {sorted(said)}\n")
    return rows


def as_text(rows: dict[str, Row]) -> str:
    """The table in Markdown, and the two figures below it."""
    lines = ["| planted | pairs | changes | named | others told |", "|---|---:|---:|---:|---:|"]
    for name, row in rows.items():
        lines.append(f"| {name} | {row.pairs} | {row.planted} | {row.named} | {row.others} |")
    planted, named, others = (
        sum(getattr(row, what) for row in rows.values()) for what in ("planted", "named", "others")
    )
    lines += ["", f"Of {planted} changes {named} are named, {named / planted:.1%}; others told: "]
    lines[-1] += f"{others}."
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    write_table("compare-two-runs.md", "pairs", as_text(measured()))
