"""What ranks say of some of their steps alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dftrace_ai.analysis.ranks.partials import STEPS_OF_CHUNK, UNTOLD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dftrace_ai.analysis.ranks.job import RanksOfJob
    from dftrace_ai.analysis.ranks.partials import StepsChunk


def of_steps(job: RanksOfJob, steps: range) -> RanksOfJob:
    """Return a job with the steps of these numbers alone."""
    ranks = (replace(one, chunks=_SomeChunks(one.chunks, steps)) for one in job.ranks)
    return replace(job, ranks=tuple(ranks))


@dataclass(frozen=True, repr=False)
class _SomeChunks(Mapping[int, "StepsChunk"]):
    """Chunks as they would be without the other steps; each is made when it is asked for."""

    chunks: Mapping[int, StepsChunk]
    steps: range

    def __getitem__(self, number: int) -> StepsChunk:
        if number * STEPS_OF_CHUNK >= self.steps.stop:
            raise KeyError(number)
        return _some(self.chunks[number], self.steps)

    def __iter__(self) -> Iterator[int]:
        first, last = (at // STEPS_OF_CHUNK for at in (self.steps.start, self.steps.stop - 1))
        return (number for number in self.chunks if first <= number <= last)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _some(chunk: StepsChunk, steps: range) -> StepsChunk:
    of = chunk.steps
    kept = (of.number >= steps.start) & (of.number < steps.stop)
    if kept.all():
        return chunk
    # Where each row is now; the one behind them is of what is in none.
    row = np.append(np.where(kept, np.cumsum(kept) - 1, UNTOLD), UNTOLD)
    spans = chunk.spans._replace(step=row[chunk.spans.step])
    calls = chunk.calls._replace(step=row[chunk.calls.step])
    with_call = calls.step != UNTOLD
    call = np.append(np.where(with_call, np.cumsum(with_call) - 1, UNTOLD), UNTOLD)
    silences = chunk.silences._replace(call=call[chunk.silences.call])
    at = np.searchsorted(of.start_ns, silences.start_ns, "right") - 1
    inside = (at >= 0) & kept[at] & (silences.start_ns < of.end_ns[at])
    return chunk._replace(
        steps=type(of)(*(column[kept] for column in of)),
        spans=type(spans)(*(column[spans.step != UNTOLD] for column in spans)),
        silences=type(silences)(*(column[inside] for column in silences)),
        calls=type(calls)(*(column[with_call] for column in calls)),
    )
