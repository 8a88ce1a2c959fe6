"""Clocks: times that cannot be, set back, or that fit no other of their run, and how well kept."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from dftrace_ai import _reader
from dftrace_ai.analysis.reading.reach import (
    EARLIEST_NS,
    MOST_BYTES,
    NOWHERE,
    Reach,
    joined,
)
from dftrace_ai.analysis.reading.reader import LongLine, TraceReader
from dftrace_ai.errors import TraceError, readable
from dftrace_ai.wording import counted, quoted

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.trace_format.header_and_footer import HeaderFacts, Ntp

    Times = NDArray[np.int64]

# The year 2043. Nothing was recorded yet beyond it, and sums of times stay within 64 bits.
LATEST_NS: Final = 2**61

# Hosts whose clocks are kept differ by less than a second, and ranks that work together begin
# within minutes. What is further from all others was not there with them, or its clock is off.
APART_NS: Final = 3_600_000_000_000

NAMED: Final = 8

# Processes of one host that read its wall clock once each differ by less, unless it was set.
SET_NS: Final = 1_000_000


class SetBack(NamedTuple):
    """How the clock of a file was set back: by how much at most, how often in a thread at most."""

    ns: int = 0
    places: int = 0


NEVER: Final = SetBack()


class FileTimes(NamedTuple):
    """From when to when the events of a file are, without those whose times cannot be.

    How many these are (`odd`) is None where nobody has counted them; `reach` None where not known.
    """

    trace: Trace
    reach: Reach | None
    odd: int | None = 0
    clock: SetBack = NEVER


class TimeCounts:
    """Tells the times of a file that can be from those that cannot; needs NumPy.

    A time cannot be where it is after 2042; and before 2000, where most of the file are dates since
    then. Where most are none, since they count from the start of a machine or a program, or its
    clock was never set, those that are dates cannot be.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        # Before 2000, from then on, and what is too late.
        self._counts = [0, 0, 0]
        self._reaches = [NOWHERE, NOWHERE, NOWHERE]

    def add(self, ph: NDArray[Any], start_ns: Times, dur_ns: Times) -> None:
        """Take in events; ns since 1970, -1 for none."""
        timed = (ph != ord("M")) & (start_ns != -1)
        late = _late(start_ns, dur_ns)
        early = start_ns < EARLIEST_NS
        for kind, chosen in enumerate((early & ~late, ~early & ~late, late)):
            rows = timed & chosen
            count = int(rows.sum())
            if count:
                start = start_ns[rows]
                last = start if kind == 2 else start + dur_ns[rows].clip(0)
                self._counts[kind] += count
                found = Reach(int(start.min()), int(last.max()))
                self._reaches[kind] = joined([self._reaches[kind], found]) or NOWHERE

    @property
    def _kept(self) -> int:
        early, dates, _ = self._counts
        return 1 if dates >= early else 0

    @property
    def times(self) -> FileTimes:
        """What was found."""
        odd = sum(self._counts) - self._counts[self._kept]
        return FileTimes(self._trace, self._reaches[self._kept], odd)

    def odd(self, start_ns: Times, dur_ns: Times) -> NDArray[np.bool_]:
        """Return a mask of the events whose times cannot be, when all have been taken in."""
        early = start_ns < EARLIEST_NS
        return _late(start_ns, dur_ns) | (early if self._kept else ~early)


def _late(start_ns: Times, dur_ns: Times) -> NDArray[np.bool_]:
    return dur_ns > LATEST_NS - start_ns.clip(0, LATEST_NS)


def is_believable(reach: Reach) -> bool:
    """Return whether all events of a file can be at the times that they say."""
    first, last = reach
    return reach == NOWHERE or last < EARLIEST_NS or EARLIEST_NS <= first <= last < LATEST_NS


def believed(trace: Trace, reach: Reach | None) -> FileTimes:
    """Return from when to when a file reaches; it is read where some of its times cannot be."""
    if reach is None or is_believable(reach):
        return FileTimes(trace, reach)
    try:
        from dftrace_ai.analysis.reading.scanning import LETTERS, TraceBlocks, new_scanner
    except ImportError:
        return FileTimes(trace, None, None)  # NumPy is not there
    import numpy as np

    counts = TimeCounts(trace)
    try:
        for block in TraceBlocks(new_scanner(), trace):
            columns = (np.asarray(getattr(block, name)) for name in ("start_ns", "dur_ns"))
            counts.add(LETTERS[np.asarray(block.ph)], *columns)
    except TraceError:
        return FileTimes(trace, None, None)  # it was read before, as far as it goes
    return counts.times


class Kinship(Protocol):
    """Whose the files are, and who has started whom; see `Owners`."""

    def of(self, trace: Trace, /) -> Any:
        """Return whose a file is."""

    def parent(self, owner: Any, /) -> Any:
        """Return who has started a process; None where that is not known."""


def clock_notes(files: Iterable[FileTimes], owners: Kinship) -> list[str]:
    """Return what is to be said of the clocks of a run, of all its processes: one line, or none."""
    known = list(files)
    told = [
        *_odd_times(known),
        *_clocks_set(known),
        *_ranks_apart(known),
        *_children_apart(known, owners),
    ]
    return [f"clocks: {'; '.join(told)}"] if told else []


def lie_apart(one: Reach, other: Reach) -> bool:
    """Return whether two were at no time within an hour of each other."""
    return NOWHERE not in (one, other) and _gap_ns(one, other) > APART_NS


def _gap_ns(one: Reach, other: Reach) -> int:
    return max(one.first_ns - other.last_ns, other.first_ns - one.last_ns)


def _odd_times(files: Sequence[FileTimes]) -> Iterator[str]:
    odd = [file for file in files if file.odd != 0]
    if odd:
        count = sum(file.odd or 0 for file in odd)
        events = "events" if any(file.odd is None for file in odd) else counted(count, "event")
        more = ", ..." if len(odd) > 1 else ""
        yield (
            f"{events} in {counted(len(odd), 'file')} at times that cannot be, years from all "
            f"others: {quoted(str(odd[0].trace))}{more}"
        )


def _clocks_set(files: Sequence[FileTimes]) -> Iterator[str]:
    back = [file for file in files if file.clock.places]
    if back:
        most = max(file.clock for file in back)
        name = quoted(str(back[0].trace))
        up_to, more = (" up to", ", ...") if len(back) > 1 else ("", "")
        yield (
            f"times in {counted(len(back), 'file')} go back by{up_to} {hours_text(most.ns)}, "
            f"in {counted(most.places, 'place')}: {name}{more}"
        )


def has_clock_in_lines(trace: Trace) -> bool:
    """Return whether the order of a file's lines tells of a clock that was set back.

    That of our own recorder cannot be, and the lines of torch.profiler have no order.
    """
    copy = trace.file.copy
    return trace.said.run is None and not (copy and copy.profile)


def _known_reaches(
    files: Sequence[FileTimes],
) -> Iterator[tuple[Trace, HeaderFacts, Reach | None]]:
    """Yield files of runs with events, and from when to when these are; None for not known."""
    begun = {file.trace.recording for file in files if not file.trace.part}
    for trace, reach, odd, _ in files:
        header = trace.said
        if header.run is not None and reach != NOWHERE:
            # What it recorded first is gone, and where that was is not known.
            cut = trace.recording not in begun or _has_let_go(trace) or odd is None
            yield trace, header, None if cut else reach


def _ranks_apart(files: Sequence[FileTimes]) -> Iterator[str]:
    """Tell of ranks that were there when no other of their run was."""
    runs: dict[tuple[str, Hashable], dict[int, Reach | None]] = defaultdict(dict)
    for _, header, reach in _known_reaches(files):
        if header.rank is None or (header.world_size or 1) < 2:
            continue
        # A job that goes through its ranks several times is one run, and each rank there is one.
        ranks = runs[header.run or "", (header.world_size, header.restarts)]
        before = ranks.get(header.rank, NOWHERE)
        ranks[header.rank] = reach and joined([before, reach])
    for (run, _), ranks in runs.items():
        known = {rank: reach for rank, reach in ranks.items() if reach is not None}
        groups = _together(known)
        usual = max(groups, key=len, default=[])
        others = sorted(rank for group in groups if group is not usual for rank in group)
        if others:
            most = joined(known[rank] for rank in usual) or NOWHERE
            gap = min(_gap_ns(known[rank], most) for rank in others)
            named = ", ".join(map(str, others[:NAMED])) + (", ..." if len(others) > NAMED else "")
            yield (
                f"run {run[:8]}: {counted(len(others), 'rank')} recorded nothing within "
                f"{hours_text(gap)} of the other {len(usual)}, as where clocks differ: {named}"
            )


@dataclass(frozen=True)
class HostClocks:
    """How well the wall clocks of the hosts of some traces were kept, as their kernels have said.

    Attributes:
        hosts: how many hosts there are; one that was started again is another.
        not_synchronised: names of those whose clocks nobody kept, or too badly, by name.
        unknown: of how many nothing is known: their kernels do not say it, or others recorded.
    """

    hosts: int
    not_synchronised: tuple[str, ...]
    unknown: int

    @property
    def told(self) -> str:
        """A line about hosts that are not synchronised; empty for none."""
        names = self.not_synchronised
        if not names:
            return ""
        named = ", ".join(map(quoted, names[:NAMED])) + (", ..." if len(names) > NAMED else "")
        noun = "host" if self.hosts == 1 else "hosts"
        return f"clocks: {len(names)} of {self.hosts:,} {noun} not synchronised: {named}"


def host_clocks(files: Iterable[Trace]) -> HostClocks:
    """Return how well the clocks of the hosts were kept, by the last that each file says of it."""
    # Containers of one start of a host have one clock between them, and names of their own.
    names: dict[str, str] = {}
    found: dict[str, list[Ntp]] = {}
    for file in files:
        header = file.header
        if header is None or header.host is None:
            continue
        told = (file.end.footer and file.end.footer.ntp) or header.ntp
        clock = header.boot_id or header.host
        names.setdefault(clock, header.host)
        found.setdefault(clock, []).extend([told] if told else [])
    bad = [
        names[clock] for clock, told in found.items() if not all(ntp.synchronised for ntp in told)
    ]
    return HostClocks(len(found), tuple(sorted(bad)), sum(not told for told in found.values()))


def on_one_clock(files: Sequence[Trace]) -> tuple[list[Trace], list[str]]:
    """Return files of which those of one host count by one wall clock, and a line if it was set.

    Each run of a process reads it once, when it begins; that of most files is taken.
    """
    hosts: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for at, file in enumerate(files):
        header = file.said
        if header.boot_id and header.clock_offset_ns and header.time_base_us:
            hosts[header.boot_id].append((header.clock_offset_ns, at))
    found, moved = [*files], []
    for offsets in hosts.values():
        usual_ns, _ = sorted(offsets)[(len(offsets) - 1) // 2]
        for offset_ns, at in offsets:
            apart_ns = usual_ns - offset_ns
            if abs(apart_ns) >= SET_NS:
                found[at] = files[at].moved(round(apart_ns / 1000))
                moved.append(abs(apart_ns))
    if not moved:
        return found, []
    most = f"{max(moved) / 1e9:,.3f} s" if max(moved) < APART_NS else hours_text(max(moved))
    told = f"{counted(len(moved), 'file')} moved by up to {most}: the wall clock of a host was set"
    return found, [f"clocks: {told} between the beginnings of its processes"]


def _together(ranks: dict[int, Reach]) -> list[list[int]]:
    """Return ranks in groups, none of which was there within an hour of another."""
    groups: list[list[int]] = []
    until = 0
    for rank, reach in sorted(ranks.items(), key=lambda each: each[1]):
        if not groups or reach.first_ns > until + APART_NS:
            groups.append([])
            until = reach.last_ns
        groups[-1].append(rank)
        until = max(until, reach.last_ns)
    return groups


def _children_apart(files: Sequence[FileTimes], owners: Kinship) -> Iterator[str]:
    """Tell of processes that were not there when the one that has started them was."""
    reaches: dict[Any, Reach | None] = {}
    for trace, header, reach in _known_reaches(files):
        if header.pid is not None:
            own = owners.of(trace)
            reaches[own] = reach and joined([reaches.get(own, NOWHERE), reach])
    gaps = []
    for own, one in reaches.items():
        parent = owners.parent(own)
        other = None if parent is None else reaches.get(parent)
        if one is not None and other is not None and lie_apart(one, other):
            gaps.append(_gap_ns(one, other))
    if gaps:
        of = "the process that has started it" if len(gaps) == 1 else "those that have started them"
        processes = "1 process" if len(gaps) == 1 else f"{len(gaps):,} processes"
        yield f"{processes} recorded nothing within {hours_text(min(gaps))} of {of}"


def hours_text(ns: int) -> str:
    """Return a long time in hours: ``hours_text(9_000_000_000_000) == "2.5 h"``."""
    return f"{ns / 3.6e12:.3g} h" if ns < 3.6e15 else f"{ns / 3.6e12:,.0f} h"


def _has_let_go(trace: Trace) -> bool:
    try:
        footer = trace.end.footer
    except TraceError:
        return True  # as for the header
    return bool(footer and footer.overwritten)


def clock_in_lines(trace: Trace, most_bytes: int | None = None) -> SetBack:
    """Return how the clock was set back by which a file was recorded, by reading its lines.

    `NEVER` where these do not tell of it, or are more than `most_bytes`.
    """
    if not has_clock_in_lines(trace):
        return NEVER
    file = trace.file
    with readable(trace):
        if most_bytes is not None and file.content.stat().st_size > most_bytes:
            return NEVER
    totals = _reader.Totals(1, MOST_BYTES)
    in_order = False
    while not in_order:  # once more where it was not
        for text in TraceReader(file).texts():
            if not isinstance(text, LongLine):
                totals.add_lines(text)
        in_order = not totals.end_process()
    return SetBack(*totals.clock())


# What goes back more often has no order at all; what goes back for less are lines that came late.
MOST_PLACES: Final = 3
FEWEST_ROWS: Final = 10


def set_back(tracks: Iterable[Any]) -> SetBack:
    """Return by how much the clock was set back in a file whose lines are in the order of time.

    Lines come in the order of the ends of spans, or of their beginnings. In either, a span does not
    end before one has begun that stands before it on its thread. Where many end an hour before
    that, the clock was set. Files without any order tell nothing, and times that cannot be are left
    out. `_reader.Totals` does the same. Of each thread there are starts and lengths, ns, in the
    order of the lines: (spans, 2). Needs NumPy.
    """
    import numpy as np

    spans = [np.asarray(track, np.int64).reshape(-1, 2) for track in tracks]
    kinds = [_kind(start, length) for start, length in (track.T for track in spans)]
    dates = sum(int((kind == 1).sum()) for kind in kinds)
    believed = int(dates >= sum(int((kind == 0).sum()) for kind in kinds))
    found = [NEVER]
    for track, kind in zip(spans, kinds, strict=True):
        start, length = track[(kind == believed) & (track[:, 0] >= 0)].T
        found.append(_of_thread(start, start + length))
    return SetBack(max(one.ns for one in found), max(one.places for one in found))


def _kind(start: NDArray[np.int64], length: NDArray[np.int64]) -> NDArray[Any]:
    """Return 1 for times that are dates, 0 for those before, 2 for what is too late to be."""
    import numpy as np

    return np.where(length > LATEST_NS - start.clip(0), 2, start >= EARLIEST_NS)


def _of_thread(start: NDArray[np.int64], end: NDArray[np.int64]) -> SetBack:
    import numpy as np

    if not len(start):
        return NEVER
    begun = np.maximum.accumulate(start)
    back = end < np.concatenate([begun[:1], begun[:-1]]) - APART_NS
    edges = np.diff(back.astype(np.int8), prepend=0, append=0)
    begins, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    if not len(begins) or len(begins) > MOST_PLACES or (ends - begins).min() < FEWEST_ROWS:
        return NEVER
    return SetBack(int((begun - start)[begins].max()), len(begins))
