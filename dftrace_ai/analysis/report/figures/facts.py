"""The processes of a job in order, their facts, what was lost; many values as few to be drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from dftrace_ai.analysis.report.model import Envelope, ProcessFacts
from dftrace_ai.analysis.steps import Rank
from dftrace_ai.masking import masked_words
from dftrace_ai.wording import counted, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from dftrace_ai.analysis.reading import TraceSet
    from dftrace_ai.analysis.reading.event_columns import EventColumns, Integers
    from dftrace_ai.analysis.steps import Process
    from dftrace_ai.analysis.steps.job import Order
    from dftrace_ai.analysis.summary.report import Report

MOST_GROUPS: Final = 600
DIGITS: Final = 9
NAME_LETTERS: Final = 200


def rounded(value: float, digits: int = DIGITS) -> float:
    """Return a number with so many digits, which a drawing has no use for more of."""
    return float(f"{value:.{digits}g}")


def briefly_named(name: str) -> str:
    """Return a name of so many letters at most: whoever chose it could fill a disk with it."""
    return shortened(name, NAME_LETTERS)


def envelope(
    at: NDArray[Any], values: NDArray[Any], *, by_place: bool = False, most: int = MOST_GROUPS
) -> Envelope:
    """Put values together, as many as follow each other."""
    count = len(values)
    if not count:
        return Envelope([], [], [], [], [], [])
    starts = _starts(at, count, most, by_place=by_place)
    values = values.astype(float)
    finite = np.isfinite(values)
    some = np.add.reduceat(finite, starts, dtype=np.int64)
    sizes = np.diff(np.append(starts, count))
    low = np.minimum.reduceat(np.where(finite, values, np.inf), starts)
    high = np.maximum.reduceat(np.where(finite, values, -np.inf), starts)
    pieces = (
        values[begin : begin + size][finite[begin : begin + size]]
        for begin, size in zip(starts.tolist(), sizes.tolist(), strict=True)
    )
    # Half of each, since two that are finite may have a sum that is not.
    middle = [float(np.median(piece / 2) * 2) if len(piece) else None for piece in pieces]
    has = some > 0
    return Envelope(
        first=at[starts].tolist(),
        last=at[starts + sizes - 1].tolist(),
        low=[rounded(v) if ok else None for v, ok in zip(low.tolist(), has, strict=True)],
        middle=[None if v is None else rounded(v) for v in middle],
        high=[rounded(v) if ok else None for v, ok in zip(high.tolist(), has, strict=True)],
        non_finite=(sizes - some).tolist(),
    )


def _starts(at: NDArray[Any], count: int, most: int, *, by_place: bool) -> NDArray[Any]:
    if count <= most:
        return np.arange(count)
    if not by_place:
        return np.linspace(0, count, most + 1).astype(np.int64)[:-1]
    width = max(float(at[-1]) - float(at[0]), 1e-300)
    group = np.minimum(((at - at[0]) / width * most).astype(np.int64), most - 1)
    return np.flatnonzero(np.concatenate([[True], group[1:] != group[:-1]]))


MOST_LOSSES: Final = 40
LINE_LETTERS: Final = 2000
MOST_PROCESSES: Final = 100
COMMAND_LETTERS: Final = 300

KINDS: Final = ("ranks", "loader workers", "other processes")


class Turn(NamedTuple):
    """In which order processes are told of: ranks, then their workers, then others."""

    kind: int  # number among `KINDS`
    rank: Order  # of its rank
    place: tuple[int, int]  # of the process among others of its kind and rank


def turns_of(member: Rank | Process) -> Iterator[tuple[Turn, Process]]:
    """Yield the processes of a member of a job, each with its turn."""
    if isinstance(member, Rank):
        yield Turn(0, member.order, member.process.place), member.process
        for worker in member.workers:
            yield Turn(1, member.order, worker.place), worker
    else:
        yield Turn(2, (0, 0, 0), member.place), member


def rows_of(process: Process) -> Iterator[tuple[EventColumns, Integers]]:
    """Yield the files of a process, each with a mask of the rows that are its own."""
    for columns in process.events:
        # Our own files and Kineto's are of one process; in others several may be.
        whole = process.header.run is not None or process.source == "kineto"
        mask = np.ones(len(columns), bool) if whole else columns.pid == process.pid
        yield columns, mask


def process_name(process: Process) -> str:
    """Return what a process is called beside others."""
    rank = process.header.rank
    return f"pid {process.pid}" if rank is None else f"rank {rank}"


def losses_of(traces: TraceSet, summary: Report, notes: Sequence[str]) -> list[str]:
    """Return what was lost or cannot be read, a line each."""
    unfinished = sum(file.losses.get("unfinished", 0) for file in summary.files)
    lines = list(summary.warnings)
    told = {line.partition(": torn: ")[0] for line in lines if ": torn: " in line}
    told |= set(lines)  # of clocks both say the same
    lines += [note for note in notes if note.partition(": torn: ")[0] not in told]
    lines += _gone(traces)
    if unfinished:
        lines.append(f"{counted(unfinished, 'span')} without an end, in no figure of this page")
    if len(lines) > MOST_LOSSES:
        more = len(lines) - MOST_LOSSES
        lines = [*lines[:MOST_LOSSES], f"{counted(more, 'line')} more; 'dftrace summary' has all"]
    return [shortened(line, LINE_LETTERS) for line in lines]


def _gone(traces: TraceSet) -> Iterator[str]:
    """What is in no file any more: let go by a flight recorder, or damaged."""
    for trace in traces:
        footer = trace.end.footer
        if footer is not None and footer.overwritten:
            events = counted(footer.overwritten, "event")
            yield f"{trace}: {events} let go by the flight recorder before they were asked for"
        if footer is not None and footer.damaged:
            yield f"{trace}: its spool was damaged in {counted(footer.damaged, 'way')}"


class FirstProcesses:
    """The facts of the processes whose turn is first, and how many there are."""

    def __init__(self) -> None:
        self._first: list[tuple[Turn, ProcessFacts]] = []
        self._count = 0

    def add(self, turn: Turn, process: Process) -> None:
        """Take in a process."""
        self._take([(turn, _facts(process))], 1)

    def merge(self, other: FirstProcesses) -> None:
        """Take in those of another."""
        self._take(other._first, other._count)

    def _take(self, more: Sequence[tuple[Turn, ProcessFacts]], count: int) -> None:
        first = sorted([*self._first, *more], key=lambda each: each[0])
        self._first, self._count = first[:MOST_PROCESSES], self._count + count

    @property
    def facts(self) -> tuple[list[ProcessFacts], int]:
        """The facts, and of how many processes there are none."""
        return [facts for _, facts in self._first], self._count - len(self._first)


def _facts(process: Process) -> ProcessFacts:
    header = process.header
    # The page is made to be sent: also of a trace that holds the command line as it was.
    command = masked_words(header.cmdline or ())
    return ProcessFacts(
        process=process_name(process),
        host=briefly_named(header.host or ""),
        pid=process.pid or None,
        run=briefly_named(header.run or ""),
        world_size=header.world_size,
        command=shortened(" ".join(command), COMMAND_LETTERS),
        python=briefly_named(header.python or ""),
        torch=briefly_named(header.torch or ""),
        version=briefly_named(header.version or ""),
        system=briefly_named(header.system or ""),
        cpus=header.cpus,
        memory_bytes=header.memory_bytes,
    )
