"""A pass of validation in which the rules look at every line, and spans are sorted: slow, and plain."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from dftrace_ai.analysis.reading.reader import LongLine
from dftrace_ai.analysis.reading.trace import Trace
from dftrace_ai.analysis.validating.rules import Fault, Rules

NEVER = 2**63 - 1


class EveryLine:
    """What `FilePass` has, without the native reader."""

    def __init__(self, file: Trace, limit: int, _parts: Any = None) -> None:
        self.rules = Rules(str(file.path), limit, self, dict)
        self._reader = file.reader()
        self._spans: defaultdict[tuple[int, int], list[tuple[int, int, int]]] = defaultdict(list)
        self.lines = 0

    def run(self) -> None:
        plain_bytes = 0
        for self.lines, line in self._reader.lines():
            self.rules.line(self.lines, line, plain_bytes)
            plain_bytes += (line.size if isinstance(line, LongLine) else len(line)) + 1

    def add(self, pid: int, tid: int, start_ns: int, end_ns: int | None, line: int) -> None:
        end_ns = NEVER if end_ns is None else min(end_ns, NEVER)
        self._spans[pid, tid].append((min(start_ns, NEVER), -end_ns, line))

    @property
    def tear(self) -> Any:
        return self._reader.tear

    def native_faults(self, limit: int) -> tuple[int, list[Fault]]:
        faults = sorted(self._overlaps())
        return len(faults), faults[:limit]

    def _overlaps(self) -> Iterator[Fault]:
        for (pid, tid), spans in self._spans.items():
            around: list[tuple[int, int]] = []
            for start, minus_end, line in sorted(spans):
                while around and around[-1][0] <= start:
                    around.pop()
                if not around or around[-1][0] >= -minus_end:
                    around.append((-minus_end, line))
                    continue
                message = (
                    f"on pid {pid} tid {tid} the span overlaps the one of line {around[-1][1]} "
                    "in part: neither holds the other"
                )
                yield Fault(self.rules.path, line, message)

    def notes(self) -> tuple[str, ...]:
        return ()
