"""What is said of processes that still record: what they have not written is in no figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

# More of them are told of together.
MOST_LINES: Final = 8


@dataclass(frozen=True)
class RunningProcess:
    """A process that runs while its trace is read.

    Attributes:
        rank: its rank; None where unknown.
        host: name of its host.
        pid: its id there.
        unwritten: events that are in its spool and not yet in its trace, when it was looked at.
            Spans count when they have ended.
    """

    rank: int | None
    host: str
    pid: int
    unwritten: int

    @property
    def text(self) -> str:
        """What people are told."""
        who = f"rank {self.rank} (pid {self.pid} on {self.host})"
        if self.rank is None:
            who = f"pid {self.pid} on {self.host}"
        verb = "is" if self.unwritten == 1 else "are"
        events = counted(self.unwritten, "event")
        return f"{who} still runs: {events} in its spool {verb} not in these figures"


def told_of(running: Sequence[RunningProcess]) -> list[str]:
    """Return what people are told of processes that still run, a line each, or one for many."""
    if len(running) <= MOST_LINES:
        return [one.text for one in running]
    events = counted(sum(one.unwritten for one in running), "event")
    return [f"{len(running)} processes still run: {events} in spools are not in these figures"]
