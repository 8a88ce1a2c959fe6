"""At which times the lines of files are shown in one trace: by the clock of which host."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from dftrace_ai.analysis.reading.clock_faults import on_one_clock
from dftrace_ai.analysis.reading.index_line import recorded
from dftrace_ai.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dftrace_ai.analysis.ranks.clock_fitting import Line
    from dftrace_ai.analysis.ranks.clock_offsets import Clocks
    from dftrace_ai.analysis.reading.identity import Owners
    from dftrace_ai.analysis.reading.trace import Trace

Piece: TypeAlias = "tuple[int, int, float, int]"
"""From a time of the file on, another shift, drift, and time at which that is nothing: ns."""

# Of a clock that drifts by less over a whole file each time is moved by the same, so that durations
# stay what they were.
LEAST_DRIFT_NS: Final = 500


class _Clock(NamedTuple):
    """The clock of a host, and by which constant the files of its boot are brought together."""

    lines: tuple[tuple[int, Line], ...]  # none where it is gone by what files say
    constant_ns: int | None


class ShownTimes:
    """Tells at which times the lines of files are shown.

    Args:
        files: all that are shown in one trace.
        owners: whose they are.
        clocks: how those of hosts differ, as measured; None where that is not asked for.
        exact: files of one boot of a host are brought together by the constants that they say.
    """

    def __init__(
        self,
        files: Sequence[Trace],
        owners: Owners,
        clocks: Measured | None = None,
        *,
        exact: bool = True,
    ) -> None:
        self.base_us = shown_base_us(files)
        self.notes: list[str] = on_one_clock(files)[1] if exact else []
        self._owners = owners
        self._own = clocks.own if clocks else {}
        self._clocks = _given(files) if exact else {}
        for name, clock in (_measured(clocks) if clocks else {}).items():
            given = self._clocks.get(name)
            if clock.constant_ns is None and given is not None:
                clock = clock._replace(constant_ns=given.constant_ns)  # noqa: PLW2901
            self._clocks[name] = clock

    def pieces(self, file: Trace) -> list[Piece]:
        """Return how the clock of a file is moved: none where its times stay as they are."""
        header = file.header
        is_profile = bool(file.file.copy and file.file.copy.profile)
        if header is None or (header.pid is None and not is_profile):
            return []
        base_us = header.time_base_us or (self.base_us if is_profile else 0)
        own_ns = base_us * 1000
        shared = header.boot_id or self._owners.of(file).host
        own = shared if header.rank is None else self._own.get(header.rank, shared)
        clock = self._clocks.get(own)
        if clock is None:
            return _whole(own_ns - self.base_us * 1000)
        if header.time_base_us and header.clock_offset_ns and clock.constant_ns is not None:
            own_ns += clock.constant_ns - header.clock_offset_ns
        return self._moved(file, own_ns, clock)

    def _moved(self, file: Trace, own_ns: int, clock: _Clock) -> list[Piece]:
        if not clock.lines:
            return _whole(own_ns - self.base_us * 1000)
        pieces: list[Piece] = []
        length_ns, middle_ns = _reach_of(file, own_ns)
        for begin, line in clock.lines:
            offset, rate, at = line.offset, line.rate, line.at
            shift = own_ns - offset - self.base_us * 1000
            if rate and len(clock.lines) == 1 and abs(rate) * length_ns < LEAST_DRIFT_NS:
                constant = shift - round(rate * (middle_ns + own_ns - at))
                pieces.append((begin - own_ns, constant, 0.0, 0))
                continue
            pieces.append((begin - own_ns, shift, rate, at - own_ns))
        return _whole(pieces[0][1]) if len(pieces) == 1 and not pieces[0][2] else pieces


def _whole(shift_ns: int) -> list[Piece]:
    return [(0, shift_ns, 0.0, 0)] if shift_ns else []


def _reach_of(file: Trace, own_ns: int) -> tuple[float, int]:
    try:
        reach = recorded(file)
    except TraceError:
        reach = None
    if reach is None or reach.last_ns < reach.first_ns:
        return float("inf"), 0
    base_ns = (file.said.time_base_us or 0) * 1000
    return reach.last_ns - reach.first_ns, (reach.first_ns + reach.last_ns) // 2 - base_ns


class Measured(NamedTuple):
    """The clocks of a job's hosts, by their names, and the constants of the ranks there."""

    clocks: Clocks
    names: Sequence[str]
    constants_ns: Mapping[str, int]
    own: Mapping[int, str] = {}  # of ranks that have a clock of their own


def _measured(found: Measured) -> dict[str, _Clock]:
    clocks: dict[str, _Clock] = {}
    for name, line in zip(found.names, found.clocks.lines, strict=True):
        lines = ((-(1 << 61), line), *line.later)
        clocks[name] = _Clock(lines, found.constants_ns.get(name))
    return clocks


def _given(files: Iterable[Trace]) -> dict[str, _Clock]:
    constants: dict[str, list[int]] = defaultdict(list)
    for file in files:
        header = file.said
        if header.boot_id and header.clock_offset_ns and header.time_base_us:
            constants[header.boot_id].append(header.clock_offset_ns)
    # Of each boot what most of its files have.
    return {
        boot: _Clock((), sorted(offsets)[(len(offsets) - 1) // 2])
        for boot, offsets in constants.items()
    }


def shown_base_us(files: Iterable[Trace]) -> int:
    """Return the time since which the merged trace of files counts, microseconds since 1970."""
    # Times that are since 1970 themselves (base 0) come down to the base of the others, which would
    # lose their nanoseconds on the way up.
    bases = (file.header.time_base_us for file in files if file.header)
    return min((base for base in bases if base), default=0)
