"""Lines of samples of stacks for who passes lines on: which they are, moved, within a window."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Final

import orjson

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from dftrace_ai.analysis.reading.event_columns import EventNames
    from dftrace_ai.analysis.reading.time_window import TimeWindow
    from dftrace_ai.trace_format.json_types import EventLine

PROFILE: Final = "Profile"
CHUNK: Final = "ProfileChunk"
STACKS: Final = "stack"
"""Names and category of these lines."""

START: Final = re.compile(rb'"startTime":(\d{1,20})(?!\d)')


def is_of_stacks(event: EventLine) -> bool:
    """Return whether a line is of samples, which are no events."""
    return (
        event.get("ph") == "P"
        and event.get("cat") == STACKS
        and event.get("name") in (PROFILE, CHUNK)
    )


# How what cannot be read of them is told, behind which file and how many.
UNREAD: Final = "of samples that cannot be read"


def has_samples(columns: Iterable[EventNames]) -> bool:
    """Return whether there are samples of stacks beside the events of files."""
    return any((STACKS, CHUNK) in one.labels for one in columns)


@dataclass(repr=False)
class _Waiting:
    """Samples of one id, whose lines are told when the first of them lies in the window."""

    profile: EventLine
    at_us: int  # of the last sample so far
    told_us: int | None = None  # of the last one that was told
    nodes: list[Any] = field(default_factory=list)  # that were not told


class ShownStacks:
    """Samples of a trace on another base of time, and those of a window alone.

    Frames are told with the first samples that need them.

    Attributes:
        odd: lines that are not as the format has them, and were left out.
    """

    def __init__(self, window: TimeWindow | None, shown_us: Callable[[int], int]) -> None:
        self.odd = 0
        self._window = window
        self._shown_us = shown_us
        self._waiting: dict[tuple[object, object], _Waiting] = {}

    def lines(self, text: bytes, event: EventLine) -> Iterator[bytes]:
        """Yield what a line becomes, its own time and process as they were: nothing, or some."""
        if self._window is None:
            yield self._moved(text)
            return
        try:
            told = [*self._within(event, self._window)]
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            self.odd += 1
        else:
            yield from map(self._moved, told)

    def _moved(self, line: bytes) -> bytes:
        found = START.search(line)
        start = self._shown_us(int(found[1])) if found else 0
        if found is None or start == int(found[1]):
            return line
        return b'%s"startTime":%d%s' % (line[: found.start()], start, line[found.end() :])

    def _within(self, event: EventLine, window: TimeWindow) -> Iterator[bytes]:
        args: Any = event["args"]
        data: Any = args["data"]
        key = event["pid"], event["id"]
        if event["name"] == PROFILE:
            self._waiting[key] = _Waiting(event, int(data["startTime"]))
            return
        known = self._waiting[key]
        profile = data["cpuProfile"]
        known.nodes += profile.get("nodes", ())
        times = [*accumulate(data["timeDeltas"], initial=known.at_us)]
        known.at_us = times[-1]
        moved = [*map(self._shown_us, times[1:])]
        kept = [at for at, time in enumerate(moved) if window.touches(time, time)]
        if not kept:
            return
        inside = [times[at + 1] for at in kept]
        if known.told_us is None:
            known.told_us = inside[0]
            head: Any = known.profile["args"]
            start = {**head, "data": {**head["data"], "startTime": inside[0]}}
            yield orjson.dumps({**known.profile, "args": start})
        since = [after - before for before, after in pairwise([known.told_us, *inside])]
        columns: dict[str, list[int]] = {
            name: [data[name][at] for at in kept]
            for name in ("cpu", "cut", "late")
            if name != "late" or name in data
        }
        if "ready" in data:
            columns["ready"] = data["ready"] * len(kept) // len(moved)
        samples = {"nodes": known.nodes, "samples": [profile["samples"][at] for at in kept]}
        told = {**data, "cpuProfile": samples, "timeDeltas": since, **columns}
        yield orjson.dumps({**event, "args": {**args, "data": told}})
        known.told_us, known.nodes = inside[-1], []
