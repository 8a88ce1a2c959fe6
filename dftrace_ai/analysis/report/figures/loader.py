"""The wait for data beside what the workers of the loader do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from dftrace_ai.analysis.report.figures.envelopes import rounded
from dftrace_ai.analysis.report.model import LoaderFigures
from dftrace_ai.analysis.steps.roles import DATA_WORK
from dftrace_ai.analysis.steps.spans import union
from dftrace_ai.analysis.steps.timeline import covered_within

if TYPE_CHECKING:
    from dftrace_ai.analysis.report.figures.steps import MeasuredRank

__all__ = ["loader_figures"]

STRETCHES: Final = 240


def loader_figures(measured: MeasuredRank, first_ns: int) -> LoaderFigures | None:
    """Return wait and work over the time of a rank's training; None where no wait is annotated.

    Args:
        measured: the rank.
        first_ns: from where seconds count.
    """
    steps = measured.steps
    wait = steps.timeline.of("wait")
    if not len(wait[0]):
        return None
    begin, end = int(steps.start_ns[0]), int(steps.end_ns[-1])
    edges = np.unique(np.linspace(begin, end, STRETCHES + 1).astype(np.int64))
    low, high = edges[:-1], edges[1:]
    waited = covered_within(*wait, low, high)
    whole = max(1, end - begin)
    busy = np.zeros(len(low), np.int64)
    workers = 0
    for worker in measured.rank.workers:
        work = worker.spans.of(*DATA_WORK)
        busy += covered_within(*union(work.start_ns, work.end_ns), low, high)
        workers += 1
    return LoaderFigures(
        rank=measured.number,
        workers=workers,
        edges_s=[rounded((edge - first_ns) / 1e9, 9) for edge in edges.tolist()],
        wait=[rounded(share, 4) for share in (waited / (high - low)).tolist()],
        busy=[rounded(share, 4) for share in (busy / (high - low) / workers).tolist()]
        if workers
        else [],
        wait_share=rounded(int(waited.sum()) / whole),
        busy_share=rounded(int(busy.sum()) / whole / workers) if workers else None,
    )
