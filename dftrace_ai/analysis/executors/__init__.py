"""Who reads the files of a job: this process, others on this machine, or workers of Dask elsewhere.

The work comes as pieces that know nothing of each other: a rank with its loaders, or the parts of
a trace. Whoever asked puts the answers together in the order of the pieces, not of their arrival,
so figures are the same wherever they were made.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from dftrace_ai.analysis.executors.lots import Failed, Lot, Piece, Refused, lots_of, made_or_refused
from dftrace_ai.analysis.executors.processes import Processes
from dftrace_ai.errors import TraceError
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

__all__ = ["Executor", "Failed", "Lot", "Piece", "Processes", "Spread"]

Given = TypeVar("Given")
Made = TypeVar("Made")


def _as_it_is(made: Made) -> Made:
    return made


class Executor(Protocol):
    """Where lots are done: a room in which some workers are.

    Another room needs these two members.
    """

    @property
    def workers(self) -> int:
        """How many lots are done at the same time."""

    def as_completed(
        self, lots: Sequence[Lot]
    ) -> Generator[tuple[int, list[object] | Failed], None, None]:
        """Yield what became of each lot, by its index, as they come.

        A lot whose worker dies is given to another one. Closed before its end, it gives up what
        has not been done.

        Raises:
            DftraceError: there are no workers, or none of use.
        """


@dataclass
class Spread:
    """Pieces of work in the hands of an executor, and what is to be said of what failed.

    Args:
        executor: who does them.
        partial: where nobody could do a piece, say so and go on with the others; else that is a
            TraceError.

    Attributes:
        size: bytes of the files that have been read.
        left_out: what was not done, one line each; empty where all was.

    Example::

        with Processes(2) as executor:
            print(why(["out/"], spread=Spread(executor)).verdict)
    """

    executor: Executor
    partial: bool = False
    size: int = 0
    left_out: list[str] = field(default_factory=list)

    def each(
        self,
        call: Callable[[Given], Made],
        pieces: Sequence[Piece[Given]],
        keep: Callable[[Made], Made] = _as_it_is,
    ) -> list[Made | None]:
        """Return what a function makes of each piece, in their order; None where nobody could.

        Args:
            call: a function of this package; what it is given and returns goes by pickle.
            pieces: what it is called with, one after the other.
            keep: what is held here of an answer when it comes, while others are still worked on.

        Raises:
            TraceError: what the function says in place of an answer, of the first such piece; or a
                piece was done by nobody, and `partial` is not set.
            DftraceError: there are no workers of use.
        """
        made: list[Any] = [None] * len(pieces)
        travelling = [at for at, piece in enumerate(pieces) if piece.travels]
        found = [*lots_of(call, [pieces[at] for at in travelling], self.executor.workers)]
        lots, missing = [lot for lot, _ in found], 0
        with closing(self.executor.as_completed(lots)) as coming:
            for number, outcome in coming:
                lot, chosen = found[number]
                self.size += lot.size
                if isinstance(outcome, Failed):
                    missing += sum(pieces[travelling[at]].processes for at in chosen)
                    self._tell(f"not done: {outcome.reason}: {lot}")
                    continue
                for at, one in zip(chosen, outcome, strict=True):
                    is_made = not isinstance(one, Refused)
                    made[travelling[at]] = keep(cast("Made", one)) if is_made else one
        for at, piece in enumerate(pieces):
            # What lies in a copy, for this process alone, is done by it.
            if not piece.travels:
                made[at] = made_or_refused(call, piece.given)
            if isinstance(made[at], Refused):
                raise TraceError(made[at].message)
        if missing:
            self._tell_missing(missing, sum(piece.processes for piece in pieces))
        return made

    def _tell_missing(self, missing: int, of: int) -> None:
        if not self.partial:
            raise TraceError(
                f"{counted(missing, 'process')} of {of:,} could not be read "
                f"({'; '.join(self.left_out)}); --partial tells what the others say"
            )
        self._tell(f"{of - missing:,} of {of:,} processes are in these figures")

    def _tell(self, line: str) -> None:
        # A command may read the same files twice, each time for other figures.
        if line not in self.left_out:
            self.left_out.append(line)
