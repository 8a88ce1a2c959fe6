"""What trace files say of themselves, for those who read the figures of a summary."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dftrace_ai.analysis.reading.trace_file import tear_told
from dftrace_ai.errors import TraceError
from dftrace_ai.trace_format.header_and_footer import LOSSES
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from dftrace_ai.analysis.reading.identity import Owners
    from dftrace_ai.analysis.reading.trace import Trace

__all__ = ["NOT_CLOSED", "FileFacts", "copies_of", "file_facts"]

NOT_CLOSED: Final = "no closing line: the process still runs, or died and its spool was not adopted"


@dataclass(frozen=True)
class FileFacts:
    """What a file says of itself.

    Attributes:
        path: the file.
        tear: where and why reading stopped, None when the file is whole.
        closed: the file has its closing line.
        events: events by that line, None without one.
        ended: what ended the recording, an `Ending` of the format where the recorder wrote
            it; None without a closing line.
        losses: the counts of that line that are above zero, by name.
        copy_of: a file before it that bears the same name and is of the same process.
        rank: the rank that it says.
        layout: rank in each dimension of a parallel training, such as ``dp=0,pp=1``.
    """

    path: str
    tear: str | None
    closed: bool
    events: int | None
    ended: str | None
    losses: dict[str, int]
    copy_of: str | None = None
    rank: int | None = None
    layout: str | None = None

    def warnings(self) -> list[str]:
        """Return a line for each loss, and for an end that is not as it should be."""
        warnings = [
            loss.text.format(counted(self.losses[loss.member], loss.noun))
            for loss in LOSSES
            if loss.text and loss.member in self.losses
        ]
        if self.copy_of:
            warnings.append(
                f"of the same process as {self.copy_of}; what both hold is counted twice"
            )
        if self.tear:
            warnings.append(tear_told(self.tear, "counted"))
        elif not self.closed:
            warnings.append(NOT_CLOSED)
        return warnings


def copies_of(traces: Sequence[Trace], owners: Owners) -> dict[Path, str]:
    """Return, for files of the same name and process as one before them, that one."""
    names = Counter(trace.path.name for trace in traces)
    copies: dict[Path, str] = {}
    first: dict[tuple[object, ...], str] = {}
    for trace in traces:
        if names[trace.path.name] == 1:
            continue
        owner = owners.of(trace)
        if owner.header.run is not None:
            process = (trace.path.name, owner.number)
            before = first.setdefault(process, str(trace))
            if before != str(trace):
                copies[trace.path] = before
    return copies


def file_facts(trace: Trace, tear: str | None, copies: Mapping[Path, str]) -> FileFacts:
    """Return what a file says of itself; `tear`: where and why reading stopped."""
    footer = trace.end.footer
    try:
        header = trace.header
    except TraceError:
        header = None  # it was counted as far as it can be read
    return FileFacts(
        path=str(trace),
        tear=tear,
        closed=trace.end.closed,
        events=footer.events if footer else None,
        ended=footer.ended if footer else None,
        losses=footer.losses if footer else {},
        copy_of=copies.get(trace.path),
        rank=header and header.rank,
        layout=(footer and footer.layout) or (header and header.layout),
    )
