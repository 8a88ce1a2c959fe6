"""Lots of work: pieces that know nothing of each other, packed so that workers end together."""

from __future__ import annotations

import os
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from dftrace_ai.errors import DftraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dftrace_ai.analysis.reading import Trace

Given = TypeVar("Given")

# So many lots for each worker, so that none waits long for the last.
LOTS_A_WORKER: Final = 32
MOST_LOTS: Final = 10_000
MOST_BYTES: Final = 256 * 1024 * 1024
SHOWN_FILES: Final = 3
# Lines that are not compressed are so much longer.
PLAIN_FACTOR: Final = 8


class UnseenError(Exception):
    """A worker does not see a file; the message says where it runs, and which file."""


class Refused(NamedTuple):
    """An error of ours on its way from a worker."""

    message: str


class Failed(NamedTuple):
    """What became of a lot that nobody could do, and why."""

    reason: str


class Piece(NamedTuple, Generic[Given]):
    """What can be done by itself: what a function is given, and the files that it reads."""

    given: Given
    traces: Sequence[Trace]
    processes: int = 1
    """Of so many it is."""

    @property
    def size(self) -> int:
        """How many bytes it has to read, as if they were compressed."""
        return sum(map(weight_of, self.traces))

    @property
    def travels(self) -> bool:
        """Whether other processes can read its files: they are no copies, nor held open here."""
        return not any(trace.file.copy or trace.file.held for trace in self.traces)


def weight_of(trace: Trace) -> int:
    """Return how many bytes a trace has, or would have if it were compressed."""
    try:
        size = trace.file.content.stat().st_size
    except OSError:
        return 0  # who reads it tells
    return size // (PLAIN_FACTOR if trace.file.codec == "plain" else 1)


@dataclass(frozen=True)
class Lot:
    """Pieces that one worker does one after the other, as they are sent to it."""

    call: Callable[[Any], Any]
    given: tuple[Any, ...]
    paths: tuple[str, ...]  # of the files that it has to see
    size: int = 0

    def __str__(self) -> str:
        more = len(self.paths) - SHOWN_FILES
        return ", ".join(self.paths[:SHOWN_FILES]) + (f" and {more:,} more" if more > 0 else "")

    def done(self) -> list[object]:
        """Return what is made of each piece; `Refused` where the function says why it is not.

        Raises:
            UnseenError: a file is not there for this process.
        """
        for path in self.paths:
            if not os.path.lexists(path):
                raise UnseenError(f"{os.uname().nodename} does not see {path}")
        return self.done_here()

    def done_here(self) -> list[object]:
        """Return the same, whatever files are there."""
        return [made_or_refused(self.call, given) for given in self.given]


def made_or_refused(call: Callable[[Any], Any], given: object) -> object:
    """Return what a function makes of something, or what it says in place of that."""
    try:
        return call(given)
    except DftraceError as error:
        return Refused(str(error))


def lots_of(
    call: Callable[[Given], Any], pieces: Sequence[Piece[Given]], workers: int
) -> Iterator[tuple[Lot, list[int]]]:
    """Yield lots, the heaviest first, each with the indices of its pieces."""
    order = sorted(((piece.size, -at) for at, piece in enumerate(pieces)), reverse=True)
    whole = sum(size for size, _ in order)
    count = max(LOTS_A_WORKER * workers, -(-whole // MOST_BYTES))
    chosen: list[list[int]] = [[] for _ in range(min(count, MOST_LOTS, len(pieces)))]
    loads = [(0, at) for at in range(len(chosen))]
    for size, negative in order:
        # The heaviest goes into the lightest.
        load, at = heappop(loads)
        chosen[at].append(-negative)
        heappush(loads, (load + size, at))
    for load, at in sorted(loads, key=lambda one: (-one[0], one[1])):
        inside = sorted(chosen[at])
        given = tuple(pieces[one].given for one in inside)
        traces = (trace for one in inside for trace in pieces[one].traces)
        paths = tuple(str(trace.path) for trace in traces if not trace.file.is_remote)
        yield Lot(call, given, paths, load), inside
