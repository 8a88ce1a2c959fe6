"""A stretch of time of a trace, as users write one: ``12.3s+49ms``."""

from __future__ import annotations

import re
from typing import NamedTuple

from dftrace_ai.errors import DftraceError

# What is shown around a moment for which no length is given.
AROUND_US = 500_000.0

# Of a window its length is shown so often before it and behind it, for what led there.
MARGINS = 10.0

MICROSECONDS = {"": 1.0, "us": 1.0, "ms": 1e3, "s": 1e6}
TIME = r"(\d{1,19}(?:\.\d{1,9})?)(us|ms|s|)"
WINDOW = re.compile(rf"{TIME}(?:\+{TIME})?", re.ASCII)


class TimeWindow(NamedTuple):
    """From when to when, in microseconds of the trace: as its lines have them in ``ts``."""

    begin_us: float
    end_us: float

    def widened(self) -> TimeWindow:
        """Return it with what lies around it."""
        margin_us = (self.end_us - self.begin_us) * MARGINS
        return TimeWindow(max(0.0, self.begin_us - margin_us), self.end_us + margin_us)

    def touches(self, begin_us: float, end_us: float) -> bool:
        """Whether something that lasts from `begin_us` to `end_us` is in it, if only partly."""
        return begin_us <= self.end_us and end_us >= self.begin_us


def parsed_length_us(text: str) -> float:
    """Return a length of time, microseconds: ``parsed_length_us("1ms") == 1000``.

    Raises:
        DftraceError: it is none, or has no unit: seconds and microseconds are far apart.
    """
    match = re.fullmatch(TIME, text.replace(" ", ""), re.ASCII)
    if match is None or not match[2]:
        raise DftraceError(f"{text!r} is no length of time; what is meant looks like 1ms or 50us")
    return float(match[1]) * MICROSECONDS[match[2]]


def parsed_window(text: str) -> TimeWindow:
    """Return the window that ``START+LENGTH`` names, or half a second around ``START``.

    Units are s, ms and us (the default); time counts as `ts` does in the lines.
    """
    match = WINDOW.fullmatch(text.replace(" ", ""))
    if match is None:
        raise DftraceError(
            f"{text!r} is no time; what is meant looks like 12.3s, 850ms or 12.3s+49ms"
        )
    start, unit, length, length_unit = match.groups()
    begin_us = float(start) * MICROSECONDS[unit]
    if length is None:
        return TimeWindow(max(0.0, begin_us - AROUND_US), begin_us + AROUND_US)
    return TimeWindow(begin_us, begin_us + float(length) * MICROSECONDS[length_unit])
