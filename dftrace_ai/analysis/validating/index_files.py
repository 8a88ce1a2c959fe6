"""Index files held against the lines of the traces that they tell of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dftrace_ai.analysis.reading.identity import recordings_of
from dftrace_ai.analysis.reading.indexed.clocks import NEVER
from dftrace_ai.analysis.reading.indexed.index_file import IndexFileError, index_path, read_index
from dftrace_ai.analysis.validating.index_check import figure_faults
from dftrace_ai.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dftrace_ai.analysis.reading.indexed.index_file import ProcessFigures
    from dftrace_ai.analysis.reading.trace import Trace

__all__ = ["index_file_faults"]


def index_file_faults(traces: Iterable[Trace]) -> Iterator[tuple[str, list[str], str | None]]:
    """Yield what is found of each index file beside traces.

    Args:
        traces: the traces, all parts of a process among them.

    Yields:
        Its path, in which way it does not say what the lines add up to, and why it was not held
        against them; None where it was.

    Example::

        for path, faults, note in index_file_faults(open_traces(["out/"]).files):
            print(path, *faults, note or "")
    """
    for parts in recordings_of(traces).values():
        path = str(index_path(parts))
        try:
            said = read_index(parts)
            if said is None:
                continue
            import dftrace_ai._reader  # noqa: F401
            from dftrace_ai.analysis.summary.indexing import figures_of

            yield path, list(_differences(said, figures_of(parts))), None
        except ImportError:
            yield path, [], "not held against the lines: the native reader was not built"
        except IndexFileError as error:
            yield path, [], f"not used, and not held against the lines: {error}"
        except (OSError, TraceError) as error:
            yield path, [], f"not held against the lines: {error}"


def _differences(said: ProcessFigures, found: ProcessFigures) -> Iterator[str]:
    for what in ("lines", "without_duration", "unreadable", "long_lines"):
        told, there = getattr(said, what), getattr(found, what)
        if told != there:
            yield f"the index says {what} {told}, there are {there}"
    yield from figure_faults(said.spans, said.others, found.spans, found.others)
    for number, (told, there) in enumerate(zip(said.files, found.files, strict=True), 1):
        if (told.tear, told.end) != (there.tear, there.end):
            yield f"the index does not say how trace {number} of the process ends"
        times_differ = told.reach is not None and told.reach != there.reach
        if times_differ or told.clock not in {NEVER, there.clock}:
            yield f"the index says other times of trace {number} of the process than its events"
