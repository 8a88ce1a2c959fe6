"""Which trace files are added up together: those of a rank, a host or a process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from dftrace_ai.errors import TraceError
from dftrace_ai.trace_format.file_names import trace_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.trace_format.header_and_footer import HeaderFacts

__all__ = ["NOT_SAID", "EventGroup", "FileGroup", "groups_of", "host_of", "processes_of"]

FileGroup = Literal["rank", "host", "process"]
"""What files of one group have in common."""

EventGroup = Literal["thread", "step", "epoch"]
"""What events of one group have in common: the thread, or what their arguments say."""

NOT_SAID = "-"
"""The group of the files that do not say whose they are."""


def groups_of(traces: Sequence[Trace], by: FileGroup) -> dict[str, list[Trace]]:
    """Return the traces of each group, ranks by their number.

    Args:
        traces: the traces; all parts of one process come into one group.
        by: what those of a group have in common. A process is called by host and number, and by
            the name of its file where another one has both or it does not say them.

    Example::

        for rank, traces in groups_of(open_traces(["out/"]).files, "rank").items():
            print(rank, len(traces))
    """
    groups: dict[str, list[Trace]] = {}
    for (folder, base), parts in processes_of(traces).items():
        label = _label(_header(parts), by)
        if by == "process" and (label == NOT_SAID or label in groups):
            label = str(folder / base)
        groups.setdefault(label, []).extend(parts)
    return dict(sorted(groups.items(), key=_in_order))


def processes_of(traces: Iterable[Trace]) -> dict[tuple[Path, str], list[Trace]]:
    """Return the files of each process, its parts in their order, by folder and name."""
    processes: dict[tuple[Path, str], list[tuple[int, Trace]]] = {}
    for trace in traces:
        name = trace_name(trace.path.name)
        base, part = (name.base, name.part) if name else (trace.path.name, 0)
        processes.setdefault((trace.path.parent, base), []).append((part, trace))
    return {
        process: [trace for _, trace in sorted(parts, key=lambda each: each[0])]
        for process, parts in processes.items()
    }


def host_of(parts: Sequence[Trace]) -> str:
    """Return the host of a process; empty where its files do not say it."""
    header = _header(parts)
    return (header and header.host) or ""


def _in_order(group: tuple[str, list[Trace]]) -> tuple[bool, int, str]:
    label = group[0]
    is_number = label.isascii() and label.isdecimal()
    return not is_number, int(label) if is_number else 0, label


def _header(parts: Sequence[Trace]) -> HeaderFacts | None:
    for trace in parts:
        try:
            header = trace.header
        except TraceError:
            continue  # adding it up tells why it cannot be read
        if header is not None:
            return header
    return None


def _label(header: HeaderFacts | None, by: FileGroup) -> str:
    if header is None:
        return NOT_SAID
    if by == "rank":
        return NOT_SAID if header.rank is None else str(header.rank)
    if by == "host" or header.host is None or header.pid is None:
        return (by == "host" and header.host) or NOT_SAID
    return f"{header.host}:{header.pid}"
