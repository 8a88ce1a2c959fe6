"""The forms that traces are converted to: a file for Perfetto, Parquet, dftracer's own, OTLP.

Loaded late, by a conversion: who lists the forms needs none of what they are written with.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import orjson

from dftrace_ai.analysis.converting.placing import (
    ConvertedFile,
    cannot_be_written,
    gzip_member,
    new_file,
)
from dftrace_ai.analysis.merging import check_name, written
from dftrace_ai.analysis.merging.gathering import Asked, gathered
from dftrace_ai.analysis.reading.identity import recordings_of
from dftrace_ai.analysis.reading.reader import FRAMING, event_of
from dftrace_ai.analysis.reading.stack_lines import is_of_stacks
from dftrace_ai.analysis.reading.trace_file import tear_told
from dftrace_ai.database import duckdb_module, said
from dftrace_ai.trace_format.file_names import without_suffix
from dftrace_ai.trace_format.header_and_footer import FOOTER, HEADER, is_own
from dftrace_ai.trace_format.names_and_phases import lettered_phase

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import BinaryIO

    from dftrace_ai.analysis.reading import TraceSet
    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.trace_format.json_types import EventLine

BLOCK_BYTES: Final = 1024 * 1024
MOST_NAMED: Final = 100_000

# As the recorder writes them: nanoseconds as three decimals, the duration behind the start.
TIMES: Final = re.compile(rb'"ts":(\d{1,16})(?:\.(\d{3}))?,(?:"dur":(\d{1,16})(?:\.(\d{3}))?,)?')
NUMBERS: Final = frozenset({"id", "pid", "tid", "ts", "dur"})
NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,9})?", re.ASCII)
BASE: Final = re.compile(rb'"time_base_us":\d+')
TIMESTAMPS: Final = re.compile(rb'"timestamps":"\w+"')
PLAIN_BYTES: Final = re.compile(rb'"bytes":\d+')
FILE_BYTES: Final = re.compile(rb'"file_bytes":\d+')


def write_for_perfetto(
    traces: TraceSet, path: Path, name: str, changed: list[str]
) -> tuple[list[ConvertedFile], list[str]]:
    """Write all of the traces as `dftrace merge` does, to a path that will have this name.

    Returns the file, and what could not be read; what was changed is added to `changed`.
    """
    check_name(Path(name))
    shown = gathered(traces.files, Asked(everything=True))
    changed += shown.told
    notes: list[str] = []
    merged = shown.merged(packed=name.endswith(".gz"))
    return [written(merged, path, name, notes, changed)], notes


def write_as_parquet(
    traces: TraceSet, folder: Path, out: Path
) -> tuple[list[ConvertedFile], list[str]]:
    """Write the events of each trace as a file in the directory of its rank, and the processes.

    Returns the files, and what could not be read; `out` is what the folder will be called.
    """
    from dftrace_ai.analysis.sql import TraceTables  # needs NumPy, as no other form does

    files: list[ConvertedFile] = []
    # Ranks of two runs are no ranks of one.
    known = traces.owners.known_runs
    run_of = {
        file.path: quote(run.id, safe="", errors="surrogateescape")
        for run in (known if len(known) > 1 else ())
        for file in run.files
    }

    def placed(name: str) -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        new_file(path)
        return path

    def note(name: str, rank: int | None, lines: int) -> None:
        files.append(ConvertedFile(name, rank, lines, (folder / name).stat().st_size))

    with TraceTables(traces) as tables:
        try:
            for number in range(len(traces)):
                rank = tables.rank_of(number)
                # Not `rank=0`: of such a name every reader makes another column, or none.
                of_rank = f"{'no-rank' if rank is None else f'rank-{rank}'}/{number:05}.parquet"
                run = run_of.get(traces.files[number].path)
                of_run = f"{'no-run' if run is None else f'run-{run}'}/" if run_of else ""
                name = f"events/{of_run}{of_rank}"
                note(name, rank, tables.copy_events(number, placed(name)))
            name = "processes.parquet"
            tables.copy_processes(placed(name))
            note(name, None, 0)
        except duckdb_module().Error as error:
            raise cannot_be_written(out, said(error)) from error
        return files, list(tables.notes)


def write_for_dftracer(
    traces: Iterable[Trace], folder: Path
) -> tuple[list[ConvertedFile], list[str]]:
    """Write each trace as a file of its own; returns the files, and what was left out."""
    files: list[ConvertedFile] = []
    notes: list[str] = []
    names: set[str] = set()
    for trace in traces:
        name = _free(without_suffix(trace.path.name), names)
        path = folder / name
        new_file(path)
        with path.open("wb") as file:
            lines = _write(trace, _Members(file), notes)
        rank = trace.header.rank if trace.header else None
        files.append(ConvertedFile(name, rank, lines, path.stat().st_size))
    return files, notes


def _free(stem: str, names: set[str]) -> str:
    """Return a name of a file that none has yet: traces may come of several directories."""
    name, number = f"{stem}.pfw.gz", 1
    while name in names:
        number += 1
        name = f"{stem}-{number}.pfw.gz"
    names.add(name)
    return name


class _Members:
    """Lines written as members of gzip."""

    def __init__(self, file: BinaryIO) -> None:
        self.plain_bytes = 0
        self.file_bytes = 0
        self._file = file
        self._held = bytearray()

    def add(self, line: bytes) -> None:
        self._held += line + b"\n"
        self.plain_bytes += len(line) + 1
        if len(self._held) >= BLOCK_BYTES:
            self.end()

    def end(self) -> None:
        """Begin a new member with the next line."""
        if self._held:
            member = gzip_member(self._held)
            self._file.write(member)
            self.file_bytes += len(member)
            self._held.clear()


def _write(trace: Trace, out: _Members, notes: list[str]) -> int:
    """Write the lines of a trace; returns how many events there are."""
    base_ns = ((trace.header and trace.header.time_base_us) or 0) * 1000
    reader = trace.reader()
    named: set[str] = set()
    lines = broken = 0
    out.add(b"[")
    for _, line in reader.lines():
        text = line.strip().removesuffix(b",")
        if text in FRAMING:
            continue
        event = event_of(line)
        if event is None:
            broken += 1
            continue
        if is_of_stacks(event):
            continue  # its readers would take them for events
        lines += 1
        if is_own(event, FOOTER):
            # Its block has nothing else, as the recorder has it.
            out.end()
            text = PLAIN_BYTES.sub(b'"bytes":%d' % out.plain_bytes, text, count=1)
            text = FILE_BYTES.sub(b'"file_bytes":%d' % out.file_bytes, text, count=1)
        elif is_own(event, HEADER):
            text = BASE.sub(b'"time_base_us":0', text, count=1)
            text = TIMESTAMPS.sub(b'"timestamps":"epoch_us"', text, count=1)
        else:
            text = _in_whole_micros(text, event, base_ns)
            name = _name_of_file(event, named)
            if name is not None:
                lines += 1
                out.add(name)
        out.add(text)
    out.end()
    if broken:
        notes.append(f"{trace}: lines without an event left out: {broken}")
    if reader.tear:
        notes.append(f"{trace}: {tear_told(reader.tear, 'converted')}")
    notes += trace.file.notes
    return lines


def _name_of_file(event: EventLine, named: set[str]) -> bytes | None:
    """Return the line by which dftracer's readers know a file, where an event first tells of it."""
    args = event.get("args")
    if not isinstance(args, dict):
        return None
    path, number = args.get("path"), args.get("fhash")
    if not isinstance(path, str) or not isinstance(number, str) or number in named:
        return None
    if len(named) >= MOST_NAMED:
        named.clear()  # to name a file again does no harm
    named.add(number)
    facts = {key: value for key, value in event.items() if key in {"pid", "tid"}}
    known = {"hhash": args.get("hhash", ""), "name": path, "value": number}
    return orjson.dumps({"name": "FH", "cat": "dftracer", **facts, "ph": "M", "args": known})


def _in_whole_micros(text: bytes, event: EventLine, base_ns: int) -> bytes:
    """Return a line with its start rounded down, and its duration so that its end is, too."""
    ph = event.get("ph")
    ts, dur = event.get("ts"), event.get("dur")
    if _numbers_of(event):
        return _anew(text, event, base_ns)
    if ts is None and isinstance(ph, str):
        return text
    found = TIMES.search(text)
    args = text.find(b'"args":')
    if (
        found is None
        or (0 <= args < found.start())
        or (dur is None) != (found[3] is None)
        or not isinstance(ph, str)
    ):
        return _anew(text, event, base_ns)
    start_us, dur_us = _whole(
        int(found[1] + (found[2] or b"000")) + base_ns,
        int((found[3] or b"0") + (found[4] or b"000")),
    )
    times = b'"ts":%d,' % start_us + (b'"dur":%d,' % dur_us if found[3] is not None else b"")
    return text[: found.start()] + times + text[found.end() :]


def _anew(text: bytes, event: EventLine, base_ns: int) -> bytes:
    """Write the line of another writer anew; one with times beyond all years stays as it is."""
    changed = {**event, **_numbers_of(event)}
    changed["ph"] = lettered_phase(event.get("ph")) or event.get("ph")
    ts, dur = changed.get("ts"), changed.get("dur")
    if isinstance(ts, int | float) and not isinstance(ts, bool):
        length = dur if isinstance(dur, int | float) and not isinstance(dur, bool) else 0
        # It may be infinite.
        if not max(abs(ts), abs(length)) + base_ns / 1000 < LATEST_US:
            return text
        start_us, dur_us = _whole(round(ts * 1000) + base_ns, round(length * 1000))
        changed["ts"] = start_us
        if length is dur:
            changed["dur"] = dur_us
    return orjson.dumps(changed)


def _numbers_of(event: EventLine) -> dict[str, int | float]:
    """Return the numbers that stand as texts where DLIO Profiler writes them so."""
    return {
        key: orjson.loads(text)
        for key, text in event.items()
        if key in NUMBERS and isinstance(text, str) and NUMBER.fullmatch(text)
    }


# Nanoseconds of it, also since 1970, fit into 64 bits.
LATEST_US: Final = 2.0**52


def _whole(start_ns: int, dur_ns: int) -> tuple[int, int]:
    start_us = start_ns // 1000
    return start_us, (start_ns + dur_ns) // 1000 - start_us


def write_as_otlp(traces: TraceSet, path: Path, name: str) -> tuple[list[ConvertedFile], list[str]]:
    """Write the spans of all traces to a path that will have this name, a line for each batch.

    https://opentelemetry.io/docs/specs/otel/protocol/file-exporter/ has the form.
    """
    # The other forms do without NumPy.
    from dftrace_ai.analysis.otlp.messages import Batch
    from dftrace_ai.analysis.otlp.placing import PlacedSpans

    notes: list[str] = []
    count = 0
    packed = name.endswith(".gz")
    with path.open("wb") as file:

        def write(batch: Batch) -> Batch:
            nonlocal count
            count += batch.count
            file.write(gzip_member(batch.line()) if packed else batch.line())
            return Batch()

        for files in recordings_of(traces).values():
            placed, batch = PlacedSpans(files[0]), Batch()
            for trace in files:
                for _, spans, _ in placed.read(trace):
                    for span in spans:
                        batch.add(placed.resource, span)
                        if batch.is_full:
                            batch = write(batch)
            for span in placed.end():
                batch.add(placed.resource, span)
                if batch.is_full:
                    batch = write(batch)
            if batch.count:
                write(batch)
            notes += placed.notes
    return [ConvertedFile(name, None, count, path.stat().st_size)], notes
