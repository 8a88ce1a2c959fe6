"""Which trace files are added up together: those of a rank, a host or a process."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Literal

from dftrace_ai.analysis.reading.identity import Owners

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.trace_format.header_and_footer import HeaderFacts

__all__ = ["NOT_SAID", "EventGroup", "FileGroup", "groups_of"]

FileGroup = Literal["rank", "host", "process"]
"""What files of one group have in common."""

EventGroup = Literal["thread", "step", "epoch"]
"""What events of one group have in common: the thread, or what their arguments say."""

NOT_SAID = "-"
"""The group of the files that do not say whose they are."""


def groups_of(traces: Sequence[Trace], by: FileGroup | None) -> dict[str | None, Sequence[Trace]]:
    """Return the traces of each group, ranks by their number; without `by` all are of None.

    All parts of one process come into one group. A process is called by host and number; where
    another one has both, by its rank, too, or by the name of its file.
    """
    if by is None:
        return {None: traces}
    groups: defaultdict[str, list[Trace]] = defaultdict(list)
    owners = Owners(traces)
    for owner in owners.all:
        label = owners.labels[owner.number] if by == "process" else _label(owner.header, by)
        groups[label] += owner.files
    return {label: groups[label] for label in sorted(groups, key=_in_order)}


def _in_order(label: str) -> tuple[bool, int, str]:
    is_number = label.isascii() and label.isdecimal()
    return not is_number, int(label) if is_number else 0, label


def _label(header: HeaderFacts, by: FileGroup) -> str:
    if by == "host":
        return header.host or NOT_SAID
    return NOT_SAID if header.rank is None else str(header.rank)
