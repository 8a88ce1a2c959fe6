"""What traces say of themselves by first and last lines and heads of blocks: whose, when, how.

Apart from the command `info`, which prints them: they need no terminal, and have a schema.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from dftrace_ai.analysis.endings import ends_told
from dftrace_ai.analysis.reading.clock_faults import (
    HostClocks,
    believed,
    clock_in_lines,
    clock_notes,
    host_clocks,
)
from dftrace_ai.analysis.reading.identity import Owners, recordings_of
from dftrace_ai.analysis.reading.index_line import recorded
from dftrace_ai.analysis.reading.reach import LITTLE_BYTES, utc_text
from dftrace_ai.analysis.reading.search import deleted_told
from dftrace_ai.analysis.reading.trace_end import EndState  # noqa: TC001 - pydantic needs it
from dftrace_ai.analysis.reading.trace_file import (
    MADE_OF_OTHERS,
    Codec,
    SkippedFile,
)
from dftrace_ai.analysis.reading.trace_set import open_traces
from dftrace_ai.errors import TraceError, readable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dftrace_ai.analysis.reading.clock_faults import FileTimes
    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.analysis.reading.trace_set import TracePaths

FORMAT: Final = 1


@dataclass(frozen=True)
class FileFacts:
    """What a file says of itself; null for what it does not say.

    Attributes:
        path: the file.
        codec: how it is compressed.
        bytes: its size; of a member of an archive that of its copy.
        state: how it ends, without what comes before.
        ended: what ended the recording.
        error: type of the exception that nobody caught.
        signal: that killed the process.
        exit_status: of a process that died by leaving without an end.
        write_error: why the process could not write the rest of the file itself.
        run: hexadecimal digits, the same in all processes of a run.
        rank: the rank.
        world_size: number of ranks.
        layout: rank in each dimension of a parallel training, such as ``dp=0,pp=1``.
        scheduler: who gave the job its name.
        job_id: the job's name.
        node: the scheduler's name of the host.
        restarts: times that the job was started again.
        host: name of the host.
        pid: the process.
        part: number of the file among the parts of a trace.
        began_us: microseconds since 1970 from which its times count, up to twenty days before
            the run.
        began_at: the first moment of its events, as ISO 8601 has it, in UTC; null as well where
            more than its blocks' heads and 8 MiB would have to be read.
        length_us: from then to the last moment of its events or, of a process that died, to when it
            is known to have lived, microseconds: one that hung has recorded nothing for long.
        version: that of dftrace_ai.
        command: words of the command line.
        generated: that nobody recorded it: the seed and the causes by which it was made.
        events: events by its closing line.
        losses: counts of that line that are above zero, by name.
    """

    path: str
    codec: Codec
    bytes: int
    state: EndState
    ended: str | None
    error: str | None
    signal: int | None
    exit_status: int | None
    write_error: str | None
    run: str | None
    rank: int | None
    world_size: int | None
    layout: str | None
    scheduler: str | None
    job_id: str | None
    node: str | None
    restarts: int | None
    host: str | None
    pid: int | None
    part: int | None
    began_us: int | None
    began_at: str | None
    length_us: float | None
    version: str | None
    command: tuple[str, ...] | None
    generated: str | None
    events: int | None
    losses: dict[str, int]


@dataclass(frozen=True)
class TraceFacts:
    """What `dftrace info PATHS --json` prints.

    Attributes:
        format: version of this form.
        files: the facts of each file, by path.
        skipped: files of the directories that were given which cannot be read.
        events: of all files, by their closing lines.
        runs: how many runs they are of.
        missing_ranks: ranks of a run of which there is no file, by run.
        clocks: how well the clocks of their hosts were kept.
        notes: what a reader has to know, one line each.
        kind: ``dftrace info``, by which its JSON is known.
    """

    format: Literal[1]
    files: tuple[FileFacts, ...]
    skipped: tuple[SkippedFile, ...]
    events: int
    runs: int
    missing_ranks: dict[str, tuple[int, ...]]
    clocks: HostClocks
    notes: tuple[str, ...]
    kind: Literal["dftrace info"] = "dftrace info"


def facts_of(paths: TracePaths) -> TraceFacts:
    """Return what traces say of themselves, by first and last lines and the heads of blocks."""
    traces = open_traces(paths)
    files, times, readable, skipped = [], [], [], list(traces.skipped)
    for trace in traces:
        found = _file_or_skipped(trace)
        if isinstance(found, SkippedFile):
            skipped.append(found)
        else:
            files.append(found[0])
            times.append(found[1])
            readable.append(trace)
    if not files:
        raise TraceError(str(min(skipped, key=str)))
    # The first lines of a merged one are of one process, its events of all.
    owners = Owners([trace for trace in readable if not trace.file.merged])
    times = [one for one in times if not one.trace.file.merged]
    return TraceFacts(
        format=FORMAT,
        files=tuple(files),
        skipped=tuple(sorted(skipped, key=str)),
        events=sum(file.events or 0 for file in files),
        runs=owners.runs,
        missing_ranks=owners.missing_ranks,
        clocks=host_clocks(readable),
        notes=(
            *_notes(readable),
            *owners.told(""),
            *ends_told(owners),
            *owners.missing_told(),
            *(note for trace in traces for note in trace.file.notes),
            *(f"{trace}: {MADE_OF_OTHERS}" for trace in readable if trace.file.merged),
            *deleted_told(recordings_of(readable).values()),
            *clock_notes(times, owners),
        ),
    )


def _file_or_skipped(trace: Trace) -> tuple[FileFacts, FileTimes] | SkippedFile:
    try:
        return _file(trace)
    except TraceError as error:
        if trace.file.asked_for:
            raise
        return SkippedFile.because_of(error, trace.path)


def _file(trace: Trace) -> tuple[FileFacts, FileTimes]:
    header, end = trace.header, trace.end
    footer = end.footer
    times = believed(trace, recorded(trace))
    times = times._replace(clock=clock_in_lines(trace, LITTLE_BYTES))
    reach = times.reach
    length_ns = reach and reach.length_ns
    if reach and length_ns is not None and header and footer and footer.alive_us:
        alive_ns = ((header.time_base_us or 0) + footer.alive_us) * 1000
        length_ns = max(length_ns, alive_ns - (reach.began_ns or alive_ns))
    # What is read in place of a profile is a copy, of which its user knows nothing.
    copied = trace.file.copy and trace.file.copy.original
    with readable(trace):
        codec, size = copied or (trace.file.codec, trace.file.content.stat().st_size)
    facts = FileFacts(
        path=str(trace),
        codec=codec,
        bytes=size,
        state=end.state,
        ended=footer and footer.ended,
        error=footer and footer.error,
        signal=footer and footer.signal,
        exit_status=footer and footer.exit_status,
        write_error=footer and footer.write_error,
        run=header and header.run,
        rank=header and header.rank,
        world_size=header and header.world_size,
        layout=(footer and footer.layout) or (header and header.layout),
        scheduler=header and header.scheduler,
        job_id=header and header.job_id,
        node=header and header.node,
        restarts=header and header.restarts,
        host=header and header.host,
        pid=header and header.pid,
        part=header and header.part,
        began_us=header and header.time_base_us,
        began_at=utc_text(reach and reach.began_ns),
        length_us=None if length_ns is None else length_ns / 1000,
        version=header and header.version,
        command=header and header.cmdline,
        generated=header and header.generated and header.generated.told,
        events=footer and footer.events,
        losses=footer.losses if footer else {},
    )
    return facts, times


def _notes(traces: Iterable[Trace]) -> Iterator[str]:
    for trace in traces:
        if told := trace.end.told:
            yield f"{trace}: {told}"
