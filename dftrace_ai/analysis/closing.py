"""What a run says of itself when it ends: its verdict and where its time went, or its report."""

from __future__ import annotations

import glob
import os
import sys
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dftrace_ai.analysis.reading import TraceSet, open_traces
from dftrace_ai.analysis.reading.identity import Owners
from dftrace_ai.analysis.summary.report import reported
from dftrace_ai.analysis.why.words import percent, time_text
from dftrace_ai.errors import DftraceError, TraceError
from dftrace_ai.trace_format.file_names import trace_name
from dftrace_ai.wording import counted, escaped, quoted, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dftrace_ai.analysis.reading import Trace
    from dftrace_ai.analysis.summary.report import Report
    from dftrace_ai.analysis.summary.rows import Row

# What a program is kept from its end for: about a million events, which take three seconds and half
# a gigabyte of memory. Without compression the same events are ten times as large.
MOST_BYTES: Final = 12 * 1000 * 1000
PACKED: Final = 10
# Of a run of more processes, those of rank 0 are enough.
MOST_FILES: Final = 256

# What is looked at beside a training that runs.
NICE: Final = 10

MOST_SPANS: Final = 5
NAME_LETTERS: Final = 60
LEAST_SHARE: Final = 0.01


def print_lines(words: Sequence[str]) -> int:
    """Print the lines on a run that has just ended; for an interpreter of its own."""
    try:
        lines = list(closing_lines(Path(words[0]), int(words[1])))
    except DftraceError as error:
        return _failed(error)
    _print(lines)
    return 0


def print_verdict(words: Sequence[str]) -> int:
    """Print in three lines what is known of a run that goes on; nothing where it is too little."""
    os.nice(NICE)
    try:
        paths = [part for word in words for part in _own_parts(Path(word))]
        if len(paths) > MOST_FILES or _size(paths) > MOST_BYTES:
            return 0
        lines = list(_in_short(list(_readable(paths))))
    except OSError as error:
        return _failed(DftraceError(f"{error.filename}: {error.strerror}"))
    except DftraceError as error:
        return _failed(error)
    _print(lines)
    return 0


def _in_short(traces: list[Trace]) -> Iterator[str]:
    from dftrace_ai.analysis.why import verdict_lines
    from dftrace_ai.analysis.why.verdict import judge_traces

    if not traces:
        return
    verdict = judge_traces(TraceSet(tuple(traces)))
    if verdict.verdict == "abstained" and verdict.nonfinite is None:
        return
    lines = verdict_lines(verdict)
    yield " ".join(line for line in takewhile(lambda line: line[:2] != "  ", lines) if line)
    yield from (line for line in lines if line.startswith(("  step ", "  do next ")))


def _readable(paths: Iterable[Path]) -> Iterator[Trace]:
    for path in paths:
        try:
            (trace,) = open_traces([path])
        except TraceError:
            continue  # its process is writing the first line, or has gone
        yield trace


# Of a run whose end is told in a second of a processor.
MOST_BYTES_AT_END: Final = 6 * 1000 * 1000
MOST_LINES_AT_END: Final = 8
ROWS_AT_END: Final = ("step", "because", "do next", "at best", "also", "silent")


def print_end(words: Sequence[str]) -> int:
    """Print in eight lines what is known of a run that has ended; nothing where it is too large."""
    prefix, began_ns = Path(words[0]), int(words[1])
    paths = [
        path
        for path in prefix.parent.glob(f"{glob.escape(prefix.name)}-*")
        if trace_name(path.name) and path.stat().st_mtime_ns >= began_ns
    ]
    if len(paths) > MOST_FILES or _size(paths) > MOST_BYTES_AT_END:
        return 0
    traces = list(_readable(sorted(paths)))
    if traces:
        _print(list(_at_end(traces))[:MOST_LINES_AT_END])
    return 0


def _at_end(traces: list[Trace]) -> Iterator[str]:
    from dftrace_ai.analysis.why import verdict_lines
    from dftrace_ai.analysis.why.verdict import judge_traces

    verdict = judge_traces(TraceSet(tuple(traces)))
    lines = verdict_lines(verdict)
    head = ": ".join(lines[:2] if verdict.findings else lines[:1])
    yield f"dftrace: {head}"
    ends = list(_early_ends(Owners(traces)))
    if ends:
        more = f" and {len(ends) - MOST_SPANS:,} more" if len(ends) > MOST_SPANS else ""
        yield f"  {'ended':<10}{', '.join(ends[:MOST_SPANS])}{more}"
    lost = [note for note in verdict.notes if ": LOST " in note]
    yield from (f"  {'lost':<10}{note}" for note in lost[:1])
    yield from (line for line in lines[1:] if line.strip().startswith(ROWS_AT_END))


def _early_ends(owners: Owners) -> Iterator[str]:
    """Yield which processes did not end in order, those left out that others had started."""
    for owner in owners.all:
        footer = owner.files[-1].end.footer
        ended = footer and {"exception": "by an exception", "died": "killed"}.get(
            footer.ended or ""
        )
        if ended and owner.is_last and owners.parent(owner) is None:
            rank = owner.header.rank
            yield f"{'the program' if rank is None else f'rank {rank}'} {ended}"


def write_report(words: Sequence[str]) -> int:
    """Write the page on a run that is about to end; for an interpreter of its own."""
    try:
        from dftrace_ai.analysis.report.run import Run

        own = _own_parts(Path(words[0]))
        chosen, _ = _chosen(Path(words[0]), int(words[1]))
        if not chosen:
            return _failed(DftraceError("the trace is too large for that"))
        Run([trace.path for trace in chosen], still_written=own).report(words[2])
    except DftraceError as error:
        return _failed(error)
    except ImportError as error:
        if error.name != "numpy":
            raise
        return _failed(DftraceError("it needs NumPy; install it with: pip install numpy"))
    return 0


def _print(lines: Iterable[str]) -> None:
    text = "".join(f"{escaped(line)}\n" for line in lines)
    sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
    sys.stdout.flush()


def _failed(error: DftraceError) -> int:
    print(str(error), file=sys.stderr)  # noqa: T201 - it is read by who has started this
    return 1


def closing_lines(path: Path, begun_ns: int) -> Iterator[str]:
    """Return what is said of a run."""
    directory = quoted(str(path.parent))
    chosen, left_out = _chosen(path, begun_ns)
    if not chosen:
        size = sum(part.stat().st_size for part in _own_parts(path)) / 1e6
        yield f"dftrace: the trace of {size:,.0f} MB is too large to be judged at once; see:"
    else:
        yield from _told(chosen)
        if left_out:
            others = counted(left_out, "more trace")
            yield f"  {'note':<10}this is of rank 0 and its workers; {others} of the run lie beside"
    yield f"  {'more':<10}dftrace why {directory}; also report, summary, view"


def _told(chosen: Sequence[Trace]) -> Iterator[str]:
    paths = [trace.path for trace in chosen]
    report = reported(paths)
    processes = len(Owners(chosen).all)
    many = "process" if processes == 1 else "processes"
    yield f"dftrace: {counted(report.events, 'event')} of {processes:,} {many} in {_place(paths)}"
    yield from _verdict(chosen)
    own = _own_time(report)
    if own:
        yield f"  {'own time':<10}{own}"
    lost = [line for line in report.warnings if ": LOST " in line]
    yield from (f"  {'lost':<10}{line}" for line in lost[:MOST_SPANS])


def _place(paths: Sequence[Path]) -> str:
    return quoted(str(paths[0] if len(paths) == 1 else paths[0].parent))


def _verdict(chosen: Sequence[Trace]) -> Iterator[str]:
    try:
        from dftrace_ai.analysis.why import verdict_lines
        from dftrace_ai.analysis.why.verdict import judge_traces
    except ImportError as error:
        if error.name != "numpy":
            raise
        yield "no verdict: it needs NumPy; install it with: pip install numpy"
        return
    yield from verdict_lines(judge_traces(TraceSet(tuple(chosen))))


def _own_time(report: Report) -> str:
    """Return which spans have most of the time, that of what lies in them left out."""
    # Shares of the time of their processes: those of the main thread add up to all of it.
    rows = [row for row in report.spans if row.loop != "body"]
    shares = [(row.share or 0.0, row.self_us or 0.0, _called(row)) for row in rows]
    outside = report.not_annotated
    if outside is not None:
        shares.append((outside.share or 0.0, outside.us, "not annotated"))
    shares.sort(key=lambda one: -one[0])
    return ", ".join(
        f"{label} {time_text(1000 * self_us)} ({percent(share)})"
        for share, self_us, label in shares[:MOST_SPANS]
        if share >= LEAST_SHARE
    )


def _called(row: Row) -> str:
    name = row.name or row.cat
    label = name if name.startswith(f"{row.cat}.") else f"{row.cat}.{name}"
    return shortened(label, NAME_LETTERS)


def _chosen(path: Path, begun_ns: int) -> tuple[list[Trace], int]:
    """Return the traces that are judged, and how many of the run are not; none if too large."""
    own = open_traces(_own_parts(path)).files
    header = own[0].header
    if header is None or header.run is None:
        return list(own), 0
    of_run = [*own, *_others(path, begun_ns, header.run, f"-{header.host}-{header.pid}")]
    if len(of_run) <= MOST_FILES and _size(t.path for t in of_run) <= MOST_BYTES:
        return of_run, 0
    family = [*own]
    for trace in of_run[len(own) :]:
        other = trace.header
        started = other and (other.hhash, other.rank, other.ppid)
        if started == (header.hhash, header.rank, header.pid):
            family.append(trace)
    if len(family) > MOST_FILES or _size(t.path for t in family) > MOST_BYTES:
        return [], len(of_run)
    return family, len(of_run) - len(family)


def _own_parts(path: Path) -> list[Path]:
    named = trace_name(path.name)
    if named is None:
        return [path]
    parts = {}
    for name in os.listdir(path.parent):  # noqa: PTH208 - a directory may hold thousands
        other = trace_name(name)
        if other is not None and other.base == named.base and other.suffix == named.suffix:
            parts[other.part] = path.with_name(name)
    return [parts[number] for number in sorted(parts)] or [path]


def _others(path: Path, begun_ns: int, run: str, end: str) -> Iterator[Trace]:
    """Yield the traces of other processes of a run, of which the latest files alone can be."""
    named = trace_name(path.name)
    stem, found, _ = named.base.rpartition(end) if named else ("", "", "")
    if named is None or not found:
        return
    with os.scandir(path.parent) as entries:
        for entry in entries:
            other = trace_name(entry.name)
            if other is None or other.base == named.base or not entry.name.startswith(f"{stem}-"):
                continue
            if not entry.is_file(follow_symlinks=False) or entry.stat().st_mtime_ns < begun_ns:
                continue
            try:
                (trace,) = open_traces([entry.path])
                header = trace.header
            except TraceError:
                continue  # another process is writing its first line
            if header is not None and header.run == run:
                yield trace


def _size(paths: Iterable[Path]) -> int:
    size = 0
    for path in paths:
        packed = path.name.endswith((".gz", ".zst"))
        size += path.stat().st_size // (1 if packed else PACKED)
    return size
