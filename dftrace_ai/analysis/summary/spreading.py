"""Summaries that look at each event, by other processes: added up here to the same bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from dftrace_ai.analysis.executors.lots import Piece
from dftrace_ai.analysis.reading.identity import recordings_of
from dftrace_ai.errors import TraceError

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Sequence

    from dftrace_ai.analysis.executors import Spread
    from dftrace_ai.analysis.reading.event_columns import Label
    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.analysis.summary.adding import ReadFiles
    from dftrace_ai.analysis.summary.table import EventGroup, FileGroup

# So many for each worker: steps are the same in most processes, so few pieces are little to send.
PIECES_A_WORKER: Final = 4


class Some(NamedTuple):
    """Processes of a job, and what of them is added up."""

    processes: tuple[tuple[str | None, tuple[Trace, ...]], ...]  # by what their group is called
    by: FileGroup | EventGroup | None
    where: str | None
    categories: bool = False
    is_tree: bool = False


class Added(NamedTuple):
    """What some processes come to."""

    files: ReadFiles
    others: Counter[tuple[str, str, str]]
    chosen_events: int
    packed: bytes  # of `Sums`
    names: tuple[tuple[str, str | bool], ...] = ()
    groups: tuple[str | None, ...] = ()
    places: tuple[tuple[int, Label, int], ...] = ()  # of a tree: around it, its name, its number


def added_elsewhere(call: Callable[[Some], Added], some: Some, spread: Spread) -> list[Added]:
    """Return, in order, what workers made of some processes each; `spread` tells who could not."""
    count = max(spread.executor.workers, 1) * PIECES_A_WORKER
    size = -(-len(some.processes) // count)
    pieces = []
    for at in range(0, len(some.processes), size):
        of_piece = some.processes[at : at + size]
        traces = [trace for _, parts in of_piece for trace in parts]
        pieces.append(Piece(some._replace(processes=of_piece), traces, len(of_piece)))
    found = [one for one in spread.each(call, pieces) if one is not None]
    if not found:
        raise TraceError("; ".join(spread.left_out))
    return found


def processes_in(
    groups: dict[str | None, Sequence[Trace]],
) -> tuple[tuple[str | None, tuple[Trace, ...]], ...]:
    """Return the processes of groups, in their order."""
    return tuple(
        (group, tuple(parts))
        for group, traces in groups.items()
        for parts in recordings_of(traces).values()
    )
