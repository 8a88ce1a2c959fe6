"""The registry of what is read as traces: by the beginning of a file, what makes traces of it.

A new format is a module here, a line in `IMPORTERS`, and what it begins with in `forms`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from dftrace_ai.analysis.reading.importing.file_kinds import ARCHIVES, file_kind, other_told
from dftrace_ai.errors import TraceError
from dftrace_ai.trace_format.file_names import is_trace

if TYPE_CHECKING:
    from collections.abc import Callable

    from dftrace_ai.analysis.reading.importing.file_kinds import FileKind
    from dftrace_ai.analysis.reading.source import Source
    from dftrace_ai.analysis.reading.trace_file import TraceFile

WHAT_IS_READ = "traces (.pfw.gz), profiles of torch.profiler and archives of these are read"

Importer: TypeAlias = "Callable[[Source], list[TraceFile]]"
"""Returns the traces of a file: one, or as many as it holds. `skipped` gets what of it is none."""


def traces_of(source: Source) -> list[TraceFile]:
    """Return the traces that a file holds; a TraceError where it cannot be read, or is none.

    An empty file and one that is cut before its first line count as traces without events: that is
    what a process leaves that was killed in its first write.
    """
    plain = source.head.plain
    form = file_kind(plain, whole=source.head.whole, named=is_trace(source.path.name))
    if form == "none":
        what = f"; {WHAT_IS_READ}" if source.asked_for else ""
        raise TraceError(f"{source.path}: not a trace file: {other_told(plain)}{what}")
    if form in ARCHIVES and not source.asked_for:
        raise TraceError(f"{source.path}: not a trace file: an archive; give it by its own name")
    return IMPORTERS[form](source)


def _lines(source: Source) -> list[TraceFile]:
    return [source.file]


# What imports the others is loaded where there are such files.


def _documents(source: Source) -> list[TraceFile]:
    from dftrace_ai.analysis.reading.importing.documents import opened_documents

    return opened_documents(source, listed=True)


def _objects(source: Source) -> list[TraceFile]:
    from dftrace_ai.analysis.reading.importing.documents import opened_documents

    return opened_documents(source, listed=False)


def _archive(source: Source) -> list[TraceFile]:
    from dftrace_ai.analysis.reading.importing.archives import opened_archive

    return opened_archive(source, traces_of)


IMPORTERS: Final[dict[FileKind, Importer]] = {
    # Ours, dftracer's, and arrays of Chrome's with an event on each line: read where they are.
    "lines": _lines,
    # Objects of torch.profiler's and arrays of Chrome's, in any layout.
    "documents": _documents,
    "objects": _objects,
    "tar": _archive,
    "zip": _archive,
}
