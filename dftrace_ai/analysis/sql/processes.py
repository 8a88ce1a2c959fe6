"""The processes whose files were read, and which rows of which file are whose."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dftrace_ai.analysis.reading.identity import Owners

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from numpy.typing import NDArray

    from dftrace_ai.analysis.reading.identity import Owner
    from dftrace_ai.analysis.reading.trace import Trace

__all__ = ["ProcessRow", "Processes"]

NO_RANK = -1


@dataclass
class ProcessRow:
    """A process.

    Attributes:
        number: its number among those of the traces.
        pid: its number on its host.
        owner: whose the files are.
        files: its files.
    """

    number: int
    pid: int
    owner: Owner
    files: list[Trace] = field(default_factory=list)

    @property
    def rank(self) -> int:
        """Its rank; -1 where none is known."""
        rank = self.owner.header.rank
        return NO_RANK if rank is None or rank >= 2**31 else rank

    def values(self) -> tuple[Any, ...]:
        """Return its row of the view `processes`."""
        said = self.owner.header
        ends = [trace.end for trace in self.files]
        states = {end.state for end in ends}
        state = next((one for one in ("damaged", "cut off") if one in states), "complete")
        footers = [end.footer for end in ends if end.footer]
        return (
            self.number,
            None if self.rank == NO_RANK else self.rank,
            said.world_size,
            said.local_rank,
            said.host,
            self.pid,
            said.ppid,
            said.run,
            self.owner.start,
            said.time_base_us,
            # DuckDB takes UTF-8 alone, and a path may be any bytes.
            [os.fsencode(trace.path).decode("utf-8", "backslashreplace") for trace in self.files],
            state,
            footers[-1].ended if footers else None,
            sum(footer.dropped or 0 for footer in footers) if footers else None,
        )


class Processes:
    """The processes of a set of traces.

    Of a file that does not say whose it is each number of a process is one.

    Args:
        files: the traces; where headers say so, numbers go by rank.
    """

    def __init__(self, files: Sequence[Trace]) -> None:
        self.owners = Owners(files)
        self.rows: list[ProcessRow] = []
        self._found: dict[Hashable, ProcessRow] = {}
        for owner in self.owners.all:
            if any(trace.header is not None for trace in owner.files):
                row = ProcessRow(len(self.rows), owner.header.pid or 0, owner)
                self.rows.append(row)
                self._found.update((str(trace), row) for trace in owner.files)
                row.files = list(owner.files)

    def of(self, trace: Trace, pids: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return number and rank of the process of each row of a file; -1 for no rank.

        Args:
            trace: the file.
            pids: what its rows say.
        """
        known = self._found.get(str(trace))
        if known is not None:
            return (
                np.full(len(pids), known.number, np.int32),
                np.full(len(pids), known.rank, np.int32),
            )
        values, places = np.unique(pids, return_inverse=True)
        rows = [self._row((str(trace), pid), pid, trace) for pid in values.tolist()]
        numbers = np.array([row.number for row in rows], np.int32)
        return numbers[places], np.full(len(pids), NO_RANK, np.int32)

    def rank_of(self, trace: Trace) -> int | None:
        """Return the rank of a file's process, as its rows have it; None where none is known."""
        row = self._found.get(str(trace))
        return None if row is None or row.rank == NO_RANK else row.rank

    def number_of(self, trace: Trace, pid: int) -> int:
        """Return the number of the process of a file; -1 where it has none of this pid."""
        row = self._found.get(str(trace)) or self._found.get((str(trace), pid))
        if row is None:
            row = next((row for row in self.rows if trace in row.files), None)
        return -1 if row is None else row.number

    def _row(self, key: Hashable, pid: int, trace: Trace) -> ProcessRow:
        row = self._found.get(key)
        if row is None:
            row = ProcessRow(len(self.rows), pid, self.owners.of(trace))
            self._found[key] = row
            self.rows.append(row)
        if trace not in row.files:
            row.files.append(trace)
        return row
