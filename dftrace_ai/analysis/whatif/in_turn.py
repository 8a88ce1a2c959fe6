"""Where several are late in every step: how fast a run would be without one after the other."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from dftrace_ai.analysis.ranks.lateness import lateness_of
from dftrace_ai.analysis.whatif.causes import without
from dftrace_ai.analysis.whatif.model import Cause, WhatIf, Without

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dftrace_ai.analysis.ranks.findings import Late
    from dftrace_ai.analysis.ranks.job import RanksOfJob
    from dftrace_ai.analysis.whatif.model import CauseKind
    from dftrace_ai.analysis.whatif.runs import Run
    from dftrace_ai.analysis.whatif.work import Work

OF_SEVERAL: Final[frozenset[CauseKind]] = frozenset(
    {"worker", "node", "stage", "stage or worker", "split", "several"}
)
"""The causes beside which others may be late in every step, too."""
ALWAYS: Final = frozenset({"persistent", "since"})
ONE_BY_ONE: Final = 4
"""So many ranks that are late alike are told one by one."""


def with_each(result: WhatIf, job: RanksOfJob, run: Run, work: Work) -> WhatIf:
    """Return a result with each of several that are late in every step, as `ranks` finds them."""
    if result.cause.kind not in OF_SEVERAL or result.cause.in_bursts:
        return result
    found = [
        late
        for late in lateness_of(job, scores=False).found
        if late.ranks and late.turn in ALWAYS and late.kind != "memory"
    ]
    # What is so once another is mended comes behind that.
    found.sort(key=lambda late: -late.late_ns)
    parts = [part for late in found for part in _parts(late)]
    numbers = [place.rank for place in run.gathered.places]
    in_turn: list[Without] = []
    out = np.zeros(len(numbers), bool)
    for asked, ranks in parts:
        out |= np.isin(numbers, ranks)
        times = None if out.all() else without(work, out, asked[0])
        if times is None:
            return result
        time = run.time_ns(times)
        saved = (run.replay_ns - time) // run.counted
        in_turn.append(Without((asked,), ranks, run.replay_ns / max(time, 1), saved))
    if len(in_turn) < 2:
        return result
    result = replace(result, in_turn=tuple(in_turn))
    if len(found) < 2 or result.shares is None:
        return result
    ranks = tuple(sorted({rank for one in in_turn for rank in one.ranks}))
    cause = Cause("several", result.shares.rank, ranks=ranks, without=in_turn[-1].ratio)
    return replace(result, cause=cause)


def _parts(late: Late) -> Iterable[tuple[tuple[str, str], tuple[int, ...]]]:
    """Yield who is late by one cause, by what they are called, with their ranks."""
    if late.hosts and len(late.hosts) == 1:
        yield ("host", late.hosts[0]), late.ranks
    elif late.stages and len(late.stages) == 1:
        yield ("stage", str(late.stages[0])), late.ranks
    elif len(late.ranks) <= ONE_BY_ONE:
        yield from ((("rank", str(rank)), (rank,)) for rank in late.ranks)
    else:
        yield ("ranks", ", ".join(map(str, late.ranks))), late.ranks
