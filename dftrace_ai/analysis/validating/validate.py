"""Holding trace files against the format: each line, the framing, the nesting and the counts."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from heapq import nsmallest
from typing import TYPE_CHECKING, Any

from dftrace_ai.analysis.reading.reader import LongLine
from dftrace_ai.analysis.reading.trace_file import SkippedFile
from dftrace_ai.analysis.reading.trace_set import open_traces
from dftrace_ai.analysis.validating.line_model import LineFaultError, LineModel
from dftrace_ai.analysis.validating.nesting import Nesting
from dftrace_ai.errors import TraceError
from dftrace_ai.trace_format.header_and_footer import (
    COUNT_OF,
    COUNTS,
    CUSTOM_METADATA,
    FOOTER,
    HEADER,
)
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.trace_format.lines import FooterArgs

__all__ = ["Fault", "FileCheck", "Validation", "validate_file", "validate_traces"]

# The first `"ts":` outside of a string is the event's own: it stands before args.
NANOSECOND_TIME = re.compile(rb'"ts":(\d{1,20})\.(\d{3}),(?:"dur":(\d{1,20})\.(\d{3}),)?"ph":')
MICROSECOND_TIME = re.compile(rb'"ts":(\d{1,20}),(?:"dur":(\d{1,20}),)?"ph":')

PHASE = re.compile(rb'"ph":"([A-Za-z])"')

# An escaped backslash right before the closing quote makes Perfetto lose the rest of the file.
FINAL_BACKSLASH = re.compile(rb'(?<!\\)(?:\\\\)+"')

NO_FOOTER = "no closing line: the process still runs, or died and its spool was not adopted"


@dataclass(frozen=True, order=True)
class Fault:
    """A place where a file departs from the format; as text ``file:line: message``."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


@dataclass(frozen=True)
class FileCheck:
    """What was found in one file.

    Attributes:
        path: the file.
        lines: lines read, the framing included.
        events: events among them, counted as the closing line does.
        fault_count: faults in all.
        faults: the first of them, by line.
        closed: the file has its closing line.
        notes: what was not checked, one line each.
    """

    path: str
    lines: int
    events: int
    fault_count: int
    faults: tuple[Fault, ...]
    closed: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Validation:
    """What was found in all files."""

    files: tuple[FileCheck, ...]

    @property
    def fault_count(self) -> int:
        """Faults in all files."""
        return sum(file.fault_count for file in self.files)

    def first_faults(self, limit: int) -> list[Fault]:
        """Return the first faults, file by file."""
        return [fault for file in self.files for fault in file.faults][:limit]


def validate_traces(
    paths: Iterable[str | os.PathLike[str]], *, limit: int = 10, unfinished_ok: bool = False
) -> Validation:
    """Check trace files against the format.

    Args:
        paths: files and directories, as for `open_traces`.
        limit: faults to keep of each file; all are counted.
        unfinished_ok: accept a file without closing line or with a torn end, as it
            is while its process runs.

    Returns:
        The check of each file. A file of a directory that cannot be read as a trace
        is one with a fault.

    Raises:
        TraceError: a path that was given is missing or is no trace, or nothing in the
            directories can be read.

    Example::

        result = validate_traces(["out/"])
        for fault in result.first_faults(10):
            print(fault)
    """
    found = open_traces(paths)
    checks = [_unreadable(file) for file in found.skipped]
    checks += [_check_or_fault(file, limit, unfinished_ok) for file in found.files]
    return Validation(tuple(sorted(checks, key=lambda check: check.path)))


def _check_or_fault(file: Trace, limit: int, unfinished_ok: bool) -> FileCheck:
    try:
        return validate_file(file, limit=limit, unfinished_ok=unfinished_ok)
    except TraceError as error:
        if file.file.asked_for:
            raise
        return _unreadable(SkippedFile.because_of(error, file.path))


def _unreadable(file: SkippedFile) -> FileCheck:
    fault = Fault(file.path, 1, file.reason)
    return FileCheck(file.path, lines=0, events=0, fault_count=1, faults=(fault,), closed=False)


def validate_file(file: Trace, *, limit: int = 10, unfinished_ok: bool = False) -> FileCheck:
    """Check one trace file; arguments as for `validate_traces`."""
    if file.file.copy and file.file.copy.profile:
        raise TraceError(
            f"{file}: a trace of torch.profiler; its format is not what is checked here"
        )
    check = _Check(file, limit, unfinished_ok)
    check.run()
    return check.result()


class _Check:
    """The state of checking one file."""

    def __init__(self, file: Trace, limit: int, unfinished_ok: bool) -> None:
        self.path = str(file.path)
        self.reader = file.reader()
        self.limit = limit
        self.unfinished_ok = unfinished_ok
        self.faults: list[Fault] = []
        self.fault_count = 0
        self.notes: list[str] = []
        self.nesting = Nesting()
        self.counts: Counter[str] = Counter()
        self.lines = 0
        self.header_line = 0
        self.header_missed = False
        self.footer_line = 0
        self.time = NANOSECOND_TIME
        self.model = LineModel()

    def fault(self, line: int, message: str) -> None:
        self.fault_count += 1
        if len(self.faults) < self.limit:
            self.faults.append(Fault(self.path, line, message))

    def run(self) -> None:
        plain_bytes = 0
        number = 0
        for number, line in self.reader.lines():
            if number == 1 and line == b"[":
                pass
            elif self.framing(number, line):
                self.event(number, line, plain_bytes)
            plain_bytes += (line.size if isinstance(line, LongLine) else len(line)) + 1
        self.lines = number
        self.ending()
        overlaps = (Fault(self.path, *overlap) for overlap in self.nesting.overlaps())
        self.faults = nsmallest(
            self.limit, [*self.faults, *nsmallest(self.limit, self.counted(overlaps))]
        )
        if self.nesting.left_out:
            self.notes.append(
                f"whether spans nest was checked for the first {len(self.nesting):,} of them only; "
                f"{counted(self.nesting.left_out, 'span')} more"
            )

    def counted(self, faults: Iterable[Fault]) -> Iterator[Fault]:
        for fault in faults:
            self.fault_count += 1
            yield fault

    def framing(self, number: int, line: bytes) -> bool:
        """Check what surrounds an object; False when the line holds none."""
        if number == 1:
            self.fault(1, "the first line must be '[' alone")
        if self.footer_line:
            self.fault(number, f"stands behind the closing line {self.footer_line}")
        if not line.strip():
            self.fault(number, "the line is empty")
            return False
        if line in {b"[", b"]"}:
            self.fault(
                number, f"{line.decode()!r} where an event is due; only the first line is '['"
            )
            return False
        if line.endswith(b","):
            self.fault(number, "a comma behind the object; lines are not separated by commas")
            return False
        if number == 2 and b'"name":"process_name"' not in line:
            self.fault(number, "the first event must be process_name, so that the file is shown")
        return True

    def event(self, number: int, line: bytes, plain_bytes: int) -> None:
        try:
            event = self.model.event(line)
        except LineFaultError as error:
            self.fault(number, str(error))
            self.count_anyway(line)
            return
        if b'\\\\"' in line and FINAL_BACKSLASH.search(line):
            self.fault(
                number,
                r"a text ends in a backslash not written as \u005c; Perfetto loses what follows",
            )
        if b"\\ud" in line or b"\\uD" in line:
            self.fault(number, "a surrogate escape (\\ud800 to \\udfff); write UTF-8 itself")
        ph = event.ph
        if ph == "M":
            self.metadata(number, event, plain_bytes)
            return
        self.counts[COUNT_OF[ph]] += 1
        if not self.header_line and not self.header_missed:
            self.fault(number, "an event before the header line (name 'dftrace')")
            self.header_missed = True
        time = self.time.search(line)
        if time is None:
            self.fault(number, self.time_rule())
        elif ph == "X":
            start, end = self.span_ns(time)
            self.nesting.add(event.pid, event.tid, start, end, number)
        elif ph == "B":
            start, _ = self.span_ns(time)
            self.nesting.add(event.pid, event.tid, start, None, number)

    def span_ns(self, time: re.Match[bytes]) -> tuple[int, int]:
        parts = [int(part or 0) for part in time.groups()]
        if self.time is MICROSECOND_TIME:
            start, duration = parts[0] * 1000, parts[1] * 1000
        else:
            start, duration = parts[0] * 1000 + parts[1], parts[2] * 1000 + parts[3]
        return start, start + duration

    def time_rule(self) -> str:
        if self.time is MICROSECOND_TIME:
            return "ts and dur must be whole microseconds (the header says epoch_us)"
        return "ts and dur must be microseconds with exactly three decimals, ts first"

    def metadata(self, number: int, event: Any, plain_bytes: int) -> None:
        if event.name == CUSTOM_METADATA:
            self.counts["metadata"] += 1
        elif event.name == HEADER:
            if self.header_line:
                self.fault(number, f"a second header line; the first is line {self.header_line}")
            self.header_line = number
            epoch = event.args.timestamps == "epoch_us"
            self.time = MICROSECOND_TIME if epoch else NANOSECOND_TIME
        elif event.name == FOOTER:
            self.footer_line = number
            self.against_footer(number, event.args, plain_bytes)

    def count_anyway(self, line: bytes) -> None:
        """Count a faulty line as what it says it is, so that the counts do not fail as well."""
        ph = PHASE.search(line)
        kind = COUNT_OF.get(ph[1].decode()) if ph else None
        if b'"name":"CM"' in line:
            kind = "metadata"
        if kind:
            self.counts[kind] += 1

    def against_footer(self, number: int, said: FooterArgs, plain_bytes: int) -> None:
        found = {name: self.counts[name] for name in COUNTS}
        found["events"] = sum(found.values())
        found["bytes"] = plain_bytes
        for name, count in found.items():
            if getattr(said, name) != count:
                self.fault(
                    number,
                    f"the closing line says {name} {getattr(said, name)}, the file holds {count}",
                )

    def ending(self) -> None:
        last = max(1, self.lines)
        if self.lines == 0 and self.reader.tear is None:
            self.fault(1, "the file is empty")
        elif self.reader.tear and not self.unfinished_ok:
            self.fault(last + 1, f"torn: {self.reader.tear}")
        elif not self.footer_line and not self.unfinished_ok:
            self.fault(last, NO_FOOTER)

    def result(self) -> FileCheck:
        return FileCheck(
            path=self.path,
            lines=self.lines,
            events=sum(self.counts.values()),
            fault_count=self.fault_count,
            faults=tuple(self.faults),
            closed=bool(self.footer_line),
            notes=tuple(self.notes),
        )
