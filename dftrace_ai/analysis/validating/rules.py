"""The rules of the format: of a line, of its place in the file, and of the counts of the footer."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from dftrace_ai.analysis.validating.index_check import index_faults
from dftrace_ai.analysis.validating.line_model import LineFaultError, LineModel
from dftrace_ai.trace_format.header_and_footer import (
    COUNT_OF,
    COUNTS,
    CUSTOM_METADATA,
    FOOTER,
    HEADER,
    INDEX,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dftrace_ai.analysis.validating.index_check import FoundFigures
    from dftrace_ai.trace_format.lines import FooterArgs

__all__ = ["NO_STYLE", "Fault", "Rules", "Spans"]

# The first `"ts":` outside of a string is the event's own: it stands before args.
NANOSECOND_TIME = re.compile(rb'"ts":(\d{1,20})\.(\d{3}),(?:"dur":(\d{1,20})\.(\d{3}),)?"ph":')
MICROSECOND_TIME = re.compile(rb'"ts":(\d{1,20}),(?:"dur":(\d{1,20}),)?"ph":')

PHASE = re.compile(rb'"ph":"([A-Za-z])"')

# An escaped backslash right before the closing quote makes Perfetto lose the rest of the file.
FINAL_BACKSLASH = re.compile(rb'(?<!\\)(?:\\\\)+"')

# The backslash of the escape is none that another one escapes.
SURROGATE = re.compile(rb"(?<!\\)(?:\\\\)*\\u[dD][89a-fA-F]")

# The styles of time as the native reader has them.
NO_STYLE: Final = 0
THREE_DECIMALS: Final = 1
WHOLE_MICROS: Final = 2


@dataclass(frozen=True, order=True)
class Fault:
    """A place where a file departs from the format; as text ``file:line: message``."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


class Spans(Protocol):
    """Who looks whether spans nest."""

    def add(self, pid: int, tid: int, start_ns: int, end_ns: int | None, line: int) -> None:
        """Take in a span; `end_ns` is None for one that never ended."""


class Rules:
    """Holds lines against the format, in the order of the file.

    Attributes:
        faults: the first faults, in the order in which they were found.
        fault_count: how many there are in all.
        counts: events by kind, of the lines that were given.
        header_line: number of the last header; 0 for none so far.
        footer_line: number of the closing line; 0 for none so far.
        unchecked_indexes: index lines that were not held against the lines before them.

    Args:
        path: the file, as faults name it.
        limit: faults to keep.
        spans: takes the spans of lines without a fault.
        counted_elsewhere: gives the events of lines that were found right without the rules.
        figures: gives what the lines before the one that is looked at add up to; None where that
            is not known, and index lines are not held against it.
        part: number of the file among the parts of its trace.

    Example::

        rules = Rules("trace.pfw", 10, nesting, dict)
        rules.line(1, b"[", 0)
    """

    def __init__(
        self,
        path: str,
        limit: int,
        spans: Spans,
        counted_elsewhere: Callable[[], Mapping[str, int]],
        figures: Callable[[], FoundFigures | None] = lambda: None,
        part: int = 0,
    ) -> None:
        self.path = path
        self.limit = limit
        self.spans = spans
        self.counted_elsewhere = counted_elsewhere
        self.figures = figures
        self.part = part
        self.unchecked_indexes = 0
        self.faults: list[Fault] = []
        self.fault_count = 0
        self.counts: Counter[str] = Counter()
        self.header_line = 0
        self.header_missed = False
        self.footer_line = 0
        self.time = NANOSECOND_TIME
        self._model = LineModel()
        self.last_line = 0

    def fault(self, line: int, message: str) -> None:
        """Count a fault, and keep it if it is among the first."""
        self.fault_count += 1
        if len(self.faults) < self.limit:
            self.faults.append(Fault(self.path, line, message))

    def all_counts(self) -> Counter[str]:
        """Return the events by kind, of all lines."""
        return self.counts + Counter(self.counted_elsewhere())

    def line(self, number: int, line: bytes, plain_bytes: int) -> None:
        """Look at the next line.

        Args:
            number: of the line, from 1.
            line: without its line break.
            plain_bytes: bytes of the text before it.
        """
        self.last_line = number
        if number == 1 and line == b"[":
            return
        if self._framing(number, line):
            self._event(number, line, plain_bytes)

    def plain_style(self) -> int:
        """Return how lines behind the last one write times if they are right by themselves.

        `NO_STYLE` where it takes more: what is wrong with them may be their place.
        """
        begun = self.header_line or self.header_missed
        if not begun or self.footer_line or self.last_line < 2:
            return NO_STYLE
        return WHOLE_MICROS if self.time is MICROSECOND_TIME else THREE_DECIMALS

    def _framing(self, number: int, line: bytes) -> bool:
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

    def _event(self, number: int, line: bytes, plain_bytes: int) -> None:
        try:
            event = self._model.event(line)
        except LineFaultError as error:
            self.fault(number, str(error))
            self._count_anyway(line)
            return
        if b'\\\\"' in line and FINAL_BACKSLASH.search(line):
            self.fault(
                number,
                r"a text ends in a backslash not written as \u005c; Perfetto loses what follows",
            )
        if (b"\\ud" in line or b"\\uD" in line) and SURROGATE.search(line):
            self.fault(number, "a surrogate escape (\\ud800 to \\udfff); write UTF-8 itself")
        ph = event.ph
        if ph == "M":
            self._metadata(number, event, line, plain_bytes)
            return
        self.counts[COUNT_OF[ph]] += 1
        if not self.header_line and not self.header_missed:
            self.fault(number, "an event before the header line (name 'dftrace')")
            self.header_missed = True
        time = self.time.search(line)
        if time is None:
            self.fault(number, self._time_rule())
        elif ph == "X":
            start, end = self._span_ns(time)
            self.spans.add(event.pid, event.tid, start, end, number)
        elif ph == "B":
            start, _ = self._span_ns(time)
            self.spans.add(event.pid, event.tid, start, None, number)

    def _span_ns(self, time: re.Match[bytes]) -> tuple[int, int]:
        parts = [int(part or 0) for part in time.groups()]
        if self.time is MICROSECOND_TIME:
            start, duration = parts[0] * 1000, parts[1] * 1000
        else:
            start, duration = parts[0] * 1000 + parts[1], parts[2] * 1000 + parts[3]
        return start, start + duration

    def _time_rule(self) -> str:
        if self.time is MICROSECOND_TIME:
            return "ts and dur must be whole microseconds (the header says epoch_us)"
        return "ts and dur must be microseconds with exactly three decimals, ts first"

    def _metadata(self, number: int, event: Any, line: bytes, plain_bytes: int) -> None:
        if event.name == CUSTOM_METADATA:
            self.counts["metadata"] += 1
        elif event.name == HEADER:
            if self.header_line:
                self.fault(number, f"a second header line; the first is line {self.header_line}")
            self.header_line = number
            epoch = event.args.timestamps == "epoch_us"
            self.time = MICROSECOND_TIME if epoch else NANOSECOND_TIME
        elif event.name == INDEX:
            found = self.figures()
            if found is None:
                self.unchecked_indexes += 1
                return
            for message in index_faults(line, number - 1, plain_bytes, self.part, found):
                self.fault(number, message)
        elif event.name == FOOTER:
            self.footer_line = number
            self._against_footer(number, event.args, plain_bytes)

    def _count_anyway(self, line: bytes) -> None:
        """Count a faulty line as what it says it is, so that the counts do not fail as well."""
        ph = PHASE.search(line)
        kind = COUNT_OF.get(ph[1].decode()) if ph else None
        if b'"name":"CM"' in line:
            kind = "metadata"
        if kind:
            self.counts[kind] += 1

    def _against_footer(self, number: int, said: FooterArgs, plain_bytes: int) -> None:
        counts = self.all_counts()
        found = {name: counts[name] for name in COUNTS}
        found["events"] = sum(found.values())
        found["bytes"] = plain_bytes
        for name, count in found.items():
            if getattr(said, name) != count:
                self.fault(
                    number,
                    f"the closing line says {name} {getattr(said, name)}, the file holds {count}",
                )
