"""Own work of a rank alone, in few bytes: of a thousand ranks `dftrace why` holds no more.

Loaded late: most trainings are of one rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from dftrace_ai._reader import pack_columns, unpack_columns
from dftrace_ai.analysis.ranks.partials import (
    CallRows,
    SilenceRows,
    SpanRows,
    StepRows,
    StepsChunk,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dftrace_ai.analysis.ranks.partials import RankPartial
    from dftrace_ai.analysis.reading.event_columns import Integers

# Of all ranks so many steps are unpacked at a time.
STEPS: Final = 32
OF_STEPS: Final = 4  # number, time, blocked and collecting time stand before the own work by name
UNIT_NS: Final = 1000

_NONE: Final = np.zeros(0, np.int64)
_NO_SILENCES: Final = SilenceRows(*(_NONE for _ in SilenceRows._fields))
_NO_CALLS: Final = CallRows(*(_NONE for _ in CallRows._fields))


def own_only(partial: RankPartial) -> RankPartial:
    """Return a rank with the same own work by step and name, to a microsecond, and nothing else."""
    return replace(partial, chunks=_Chunks(partial))


class _Chunks(Mapping[int, StepsChunk]):
    """Chunks of `STEPS` steps, which are unpacked when they are asked for."""

    def __init__(self, partial: RankPartial) -> None:
        names = len(partial.names)
        tables = [_table(chunk, names) for chunk in partial.chunks.values()]
        table = np.concatenate(tables, axis=1) if tables else np.zeros((OF_STEPS + names, 0), int)
        # Names of calls have no work.
        self._rows = np.flatnonzero(table.any(axis=1) | (np.arange(len(table)) < OF_STEPS))
        kinds, firsts = np.unique(table[0] // STEPS, return_index=True)
        rows = table[self._rows]
        content = [
            pack_columns([*rows[:, low:high]])
            for low, high in pairwise([*firsts.tolist(), table.shape[1]])
        ]
        self._content = b"".join(content)
        self._kinds = kinds
        self._steps = np.diff([*firsts.tolist(), table.shape[1]])
        self._edges = np.cumsum([0, *map(len, content)])

    def __getitem__(self, number: int) -> StepsChunk:
        at = int(self._kinds.searchsorted(number))
        if at == len(self._kinds) or self._kinds[at] != number:
            raise KeyError(number)
        count = int(self._steps[at])
        content = self._content[self._edges[at] : self._edges[at + 1]]
        packed = unpack_columns(content, (count,) * len(self._rows))
        table = np.frombuffer(packed, np.int64).reshape(-1, count)
        time, blocked, garbage = table[1:OF_STEPS] * UNIT_NS
        own = table[OF_STEPS:] * UNIT_NS
        name, step = own.nonzero()
        names, nothing = self._rows[OF_STEPS:] - OF_STEPS, np.zeros(len(name), np.int64)
        return StepsChunk(
            StepRows(table[0], np.zeros(count, np.int64), time, time, blocked, garbage),
            SpanRows(step, names[name], nothing, own[name, step], nothing),
            _NO_SILENCES,
            _NO_CALLS,
        )

    def __iter__(self) -> Iterator[int]:
        return iter(self._kinds.tolist())

    def __len__(self) -> int:
        return len(self._kinds)


def _table(chunk: StepsChunk, names: int) -> Integers:
    steps = chunk.steps
    own = chunk.own_ns(names)[:, :names]
    times = np.vstack([steps.time_ns, steps.blocked_ns, steps.gc_ns, own.T]) // UNIT_NS
    table: Integers = np.vstack([steps.number, times])
    return table
