"""What a reader of figures has to know beside them: what was lost, and whose they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dftrace_ai.analysis.report.figures.counters import process_name
from dftrace_ai.analysis.report.figures.envelopes import briefly_named
from dftrace_ai.analysis.report.figures.flame import processes_of
from dftrace_ai.analysis.report.model import ProcessFacts
from dftrace_ai.masking import masked_words
from dftrace_ai.wording import counted, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dftrace_ai.analysis.reading import TraceSet
    from dftrace_ai.analysis.steps import Job
    from dftrace_ai.analysis.summary.report import Report

__all__ = ["losses_of", "process_facts"]

MOST_LOSSES: Final = 40
LINE_LETTERS: Final = 2000
MOST_PROCESSES: Final = 100
COMMAND_LETTERS: Final = 300


def losses_of(traces: TraceSet, summary: Report, notes: Sequence[str]) -> list[str]:
    """Return what was lost or cannot be read, a line each.

    Args:
        traces: the files.
        summary: of them.
        notes: what of them could not be read as columns.
    """
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


def process_facts(job: Job) -> tuple[list[ProcessFacts], int]:
    """Return the facts of processes, and of how many there are none."""
    found = []
    processes = list(processes_of(job))
    for _, process in processes[:MOST_PROCESSES]:
        header = process.header
        # The page is made to be sent: also of a trace that holds the command line as it was.
        command = masked_words((header and header.cmdline) or ())
        found.append(
            ProcessFacts(
                process=process_name(process),
                host=briefly_named((header and header.host) or ""),
                pid=process.pid or None,
                run=briefly_named((header and header.run) or ""),
                world_size=header and header.world_size,
                command=shortened(" ".join(command), COMMAND_LETTERS),
                python=briefly_named((header and header.python) or ""),
                torch=briefly_named((header and header.torch) or ""),
                version=briefly_named((header and header.version) or ""),
                system=briefly_named((header and header.system) or ""),
                cpus=header and header.cpus,
                memory_bytes=header and header.memory_bytes,
            )
        )
    return found, len(processes) - len(found)
