"""Ranks with more memory than comparable ones, which is told for information."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from dftrace_ai.analysis.ranks.findings import Late
from dftrace_ai.analysis.ranks.model import Evidence
from dftrace_ai.analysis.ranks.own_work import low_median, lower_scale
from dftrace_ai.analysis.ranks.partials import UNTOLD
from dftrace_ai.analysis.robust_statistics import Share

if TYPE_CHECKING:
    from dftrace_ai.analysis.ranks.own_work import OwnWork

# Who stands out has so many scales more, and so much of what is usual.
SCALES: Final = 6
MORE: Final = 1.2
# No scale is less than this part of what is usual.
LEAST_SCALE: Final = 0.02
# Of comparable ranks so many tell what is usual, and one of so many may stand out.
FEWEST: Final = 3


def memory_of(work: OwnWork) -> tuple[Late, ...]:
    """Return ranks with more memory than comparable ones."""
    found: list[Late] = []
    ranks = work.job.ranks
    peaks = np.array([rank.peak_bytes for rank in ranks], np.int64)
    # Of stages of one rank each has its own memory.
    labels = work.peers if work.stages is None else work.stages
    for label in np.unique(labels).tolist():
        known = np.flatnonzero((labels == label) & (peaks != UNTOLD))
        if len(known) < FEWEST:
            continue
        bytes_of = peaks[known]
        usual = low_median(bytes_of)
        scale = max(lower_scale(bytes_of), LEAST_SCALE * usual)
        more = bytes_of > max(usual + SCALES * scale, MORE * usual)
        if more.any() and more.sum() <= len(known) // FEWEST:
            figures = Evidence(peak_bytes=int(bytes_of[more].max()), usual_bytes=usual)
            numbers = tuple(ranks[at].place.rank for at in known[more].tolist())
            nothing = Share(0.0, 0.0, 0.0)
            found.append(
                Late.of("memory", "persistent", "info", nothing, 0, figures, ranks=numbers)
            )
    return tuple(found)
