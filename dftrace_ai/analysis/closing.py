"""What a run says of itself when it ends: its verdict and where its time went, or its report."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from itertools import groupby, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from dftrace_ai.analysis.endings import early_ends
from dftrace_ai.analysis.reading import Trace, TraceSet, open_traces
from dftrace_ai.analysis.reading.identity import Owners, recordings_of
from dftrace_ai.analysis.reading.search import folders_of_runs
from dftrace_ai.analysis.summary.report import reported
from dftrace_ai.analysis.texts import percent, time_text
from dftrace_ai.config.project_file import options_of
from dftrace_ai.errors import ConfigError, DftraceError, TraceError
from dftrace_ai.trace_format.file_names import (
    MARKER_SUFFIX,
    is_recorded,
    marker_base,
    trace_name,
)
from dftrace_ai.wording import counted, escaped, quoted, shell_word, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dftrace_ai.analysis.summary.report import Report
    from dftrace_ai.analysis.summary.rows import Row
    from dftrace_ai.analysis.thresholds import Limits

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
    verdict = judge_traces(TraceSet(tuple(traces)), limits_of_project("why").limits)
    if verdict.verdict == "abstained" and verdict.nonfinite is None:
        return
    lines = verdict_lines(verdict)
    yield " ".join(line for line in takewhile(lambda line: line[:2] != "  ", lines) if line)
    yield from (line for line in lines if line.startswith(("  step ", "  do next ")))


class OfProject(NamedTuple):
    """From where on something is a finding by the project's file, and what is told of that."""

    limits: Limits | None = None
    told: str = ""


def limits_of_project(command: str, start: Path | None = None) -> OfProject:
    """Return what the file says in this directory or above; a file with a fault changes nothing."""
    from dftrace_ai.analysis.why.model import limits_of

    try:
        option = options_of(command, start).get("threshold")
        if option is None:
            return OfProject()
        return OfProject(limits_of(option.words), f"{option.origin}: {', '.join(option.words)}")
    except ConfigError as error:
        return OfProject(None, f"as by default: {error}".replace("\n", "; "))


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


MOST_HEADERS_AT_END: Final = 1_000
# The times of files may be those of a file server's clock.
CLOCKS_APART_NS: Final = 60 * 10**9


class LaunchEnd(NamedTuple):
    """A launch of `dftrace run` that has ended, by what its processes have left in a folder."""

    folder: Path
    launch: str
    """By this name in their headers its files are told from those of others that lie there."""
    began_ns: int
    home: str
    """In which directory it was called; empty for one that is gone."""

    def files(self) -> list[Trace]:
        """Return the traces in the folder that may be of the launch, with those beside them."""
        traces = [
            (changed_ns, self.folder / name)
            for name, changed_ns in self._changed(self.began_ns - CLOCKS_APART_NS)
            if is_recorded(name)
        ]
        newest = sorted(traces, reverse=True)[:MOST_HEADERS_AT_END]
        readable = _readable(sorted(path for _, path in newest))
        # Of so many none stays open.
        return [Trace(replace(trace.file, kept=None)) for trace in readable]

    def has_newer_beside(self, run: Iterable[Trace]) -> bool:
        """Return whether another run in the folder may have been begun after this one."""
        bases = {base for _, base in recordings_of(run)}
        named = ((name, trace_name(name)) for name, _ in self._changed(self.began_ns))
        return any((of.base if of else marker_base(name)) not in bases for name, of in named)

    def _changed(self, since_ns: int) -> Iterator[tuple[str, int]]:
        """Yield the names of traces and markers that were changed since, and when."""
        with os.scandir(self.folder) as entries:
            for entry in entries:
                if is_recorded(entry.name) or entry.name.endswith(MARKER_SUFFIX):
                    changed_ns = entry.stat(follow_symlinks=False).st_mtime_ns
                    if changed_ns >= since_ns:
                        yield entry.name, changed_ns

    def is_of(self, trace: Trace) -> bool:
        """Return whether a trace is of a process of the launch."""
        return trace.header is not None and trace.header.launch == self.launch

    @property
    def shown(self) -> str:
        """The folder as one names it where the launch was called."""
        below = os.path.relpath(self.folder, self.home) if self.home else ".."
        return str(self.folder) if below.split("/")[0] == ".." else below

    def place_line(self, *, run: str = "", more: str = "", newest: bool = False) -> str:
        """Return the line on where the trace is and what may be typed next."""
        # `run`: which of several; `more`: what of them; `newest`: commands without a path find it.
        next_word = f"dftrace why {shell_word(self.shown)}" + (f" --run {run}" if run else "")
        if newest:
            next_word = "dftrace why, view, ui"
        return f"dftrace: trace in {quoted(self.shown)}{more}; next: {next_word}"


def print_end(end: LaunchEnd, left: Iterable[tuple[str, int, int]] = ()) -> int:
    """Print what is known of a launch, in eight lines, and where it is; of what is large that."""
    # `left`: what is in no trace, by the beginning of its run: events dropped, and those that wait
    # in a spool. Of several runs that is told which did not end in order, else the longest.
    files = end.files()
    runs = _runs_of(files, end)
    if not runs:
        if lost := _losses(end, [], left):
            _print([f"dftrace: LOST {lost}", end.place_line()])
        return 0
    told, more = runs[0], ""
    if len(runs) > 1:
        early = [run for run in runs if early_ends(Owners(run))]
        told = max(early or runs, key=_length_ns)
        which = "one that did not end in order" if early else "the longest"
        more = f", and {counted(len(runs) - 1, 'more run')} in it (this is {which})"
    lost = _losses(end, told, left)
    lines = [f"dftrace: LOST {lost}"] if lost else []
    if len(told) <= MOST_FILES and _size(file.path for file in told) <= MOST_BYTES_AT_END:
        lines = list(_at_end(told, lost, end.home))[:MOST_LINES_AT_END]
    header = told[0].header
    is_last = not more and not end.has_newer_beside(told)
    run = "" if is_last or header is None or header.run is None else header.run[:RUN_DIGITS]
    newest = is_last and _is_newest_below(end)
    _print([*lines, end.place_line(run=run, more=more, newest=newest)])
    return 0


RUN_DIGITS: Final = 8


def _runs_of(files: list[Trace], end: LaunchEnd) -> list[list[Trace]]:
    """Return the files of each run of a launch: with ranks that know of no launch in common."""
    if not any(map(end.is_of, files)):
        return []
    if len({file.header and file.header.run for file in files}) == 1:
        return [files]  # of which no end has to be looked for
    runs = TraceSet(tuple(files)).owners.known_runs
    return [list(run.files) for run in runs if any(map(end.is_of, run.files))]


def _length_ns(run: list[Trace]) -> int:
    reaches = [owner.reach for owner in Owners(run).all]
    return max(one.last_ns for one in reaches) - min(one.first_ns for one in reaches)


def _is_newest_below(end: LaunchEnd) -> bool:
    """Return whether a command without a path finds the folder, and nothing else is as new."""
    home = Path(end.home)
    if not end.home or not end.folder.is_relative_to(home):
        return False
    below = folders_of_runs(home).folders
    ours = [one for one in below if one.path == end.folder]
    return bool(ours) and all(one in ours or one.changed_ns < end.began_ns for one in below)


def _at_end(traces: list[Trace], lost: str, home: str) -> Iterator[str]:
    from dftrace_ai.analysis.why import verdict_lines
    from dftrace_ai.analysis.why.verdict import judge_traces

    # The program may have gone to another directory.
    project = limits_of_project("why", Path(home)) if home else OfProject()
    lines = verdict_lines(judge_traces(TraceSet(tuple(traces)), project.limits))
    # What is not finite, and what was found: of each a heading and a sentence, and then nothing.
    head = takewhile(lambda line: not line.startswith("  "), lines)
    yield from (f"dftrace: {': '.join(told)}" for is_told, told in groupby(head, bool) if is_told)
    ends = early_ends(Owners(traces))
    if ends:
        more = f" and {len(ends) - MOST_SPANS:,} more" if len(ends) > MOST_SPANS else ""
        yield f"  {'ended':<10}{'; '.join(ends[:MOST_SPANS])}{more}"
    if lost:
        yield f"  {'lost':<10}{lost}"
    if project.told:
        yield f"  {'limits':<10}{project.told}"
    yield from (
        line for line in lines if line.startswith("  ") and line.strip().startswith(ROWS_AT_END)
    )


def _losses(end: LaunchEnd, traces: list[Trace], left: Iterable[tuple[str, int, int]]) -> str:
    """Return what has been lost of a run, or is not in its traces yet; empty for nothing."""
    runs = {trace.header.run for trace in traces if trace.header and trace.header.run}
    of_run = [one for one in left if not runs or any(run.startswith(one[0]) for run in runs)]
    footers = filter(None, (trace.end.footer for trace in traces))
    dropped = sum(one[1] for one in of_run) + sum(footer.dropped or 0 for footer in footers)
    waiting = sum(one[2] for one in of_run)
    counts = {
        f"{counted(dropped, 'event')}: the spool was full, or had no room to grow": dropped,
        f"{counted(waiting, 'event')} not yet in the trace, which cannot be written; "
        f"dftrace recover {shell_word(end.shown)} adds them": waiting,
    }
    return "; ".join(text for text, count in counts.items() if count)


def write_report(words: Sequence[str]) -> int:
    """Write the page on a run that is about to end; for an interpreter of its own."""
    try:
        from dftrace_ai.analysis.report.run import Run

        own = _own_parts(Path(words[0]))
        chosen, _ = _chosen(Path(words[0]), int(words[1]))
        if not chosen:
            return _failed(DftraceError("the trace is too large for that"))
        paths, limits = [trace.path for trace in chosen], limits_of_project("report").limits
        Run(paths, limits=limits, still_written=own, run="all").report(words[2], plug_ins=False)
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
    directory = shell_word(str(path.parent))
    chosen, left_out = _chosen(path, begun_ns)
    if not chosen:
        size = sum(part.stat().st_size for part in _own_parts(path)) / 1e6
        yield f"dftrace: the trace of {size:,.0f} MB is too large to be judged at once; see:"
    else:
        yield from _told(chosen)
        if left_out:
            others = counted(left_out, "more trace")
            yield f"  {'note':<10}this is of rank 0 and its workers; {others} of the run lie beside"
    yield f"  {'more':<10}dftrace why {directory}; report, summary and view take the same"


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
    project = limits_of_project("why")
    yield from verdict_lines(judge_traces(TraceSet(tuple(chosen)), project.limits))
    if project.told:
        yield f"  {'limits':<10}{project.told}"


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
