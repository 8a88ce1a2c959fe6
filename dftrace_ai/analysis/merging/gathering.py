"""What of traces stands in a merged one: which files and times, by which clocks, which arrows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from dftrace_ai.analysis.merging.choice import (
    BEYOND_ALL,
    MOST_EVENTS,
    Choice,
    as_much_as_a_viewer_takes,
    asked_for,
    events_in,
)
from dftrace_ai.analysis.merging.merged_trace import MergedTrace
from dftrace_ai.analysis.merging.shown_times import ShownTimes, shown_base_us
from dftrace_ai.analysis.reading.identity import Owners
from dftrace_ai.analysis.reading.index_line import recorded
from dftrace_ai.analysis.reading.time_window import TimeWindow
from dftrace_ai.errors import DftraceError, TraceError, needs_numpy, readable
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from dftrace_ai.analysis.executors import Spread
    from dftrace_ai.analysis.merging.joined import Joined
    from dftrace_ai.analysis.reading.reach import Reach
    from dftrace_ai.analysis.reading.trace import Trace

By = Literal["measured", "given", "none"]
"""By which clocks times are shown: as collectives tell, or the files, or each as it is."""

MOST_BYTES: Final = 128 * 1024 * 1024
"""Of larger traces ranks are read for longer than a viewer loads what it can take of them."""

NO_ARROWS: Final = "no arrows from the last rank to come"


class ClockError(DftraceError):
    """Clocks of hosts are not known as well as was asked for; the message names the hosts."""


class Asked(NamedTuple):
    """What somebody wants to see."""

    # Attributes:
    #     ranks: these alone; with `steps_and_calls` these whole.
    #     steps: these alone, by their numbers.
    #     window: what touches it alone.
    #     around: what lies around the steps or the window, too, for what led there.
    #     numbered: a track of each rank has its steps by their numbers, where that is soon known.
    #     steps_and_calls: spans of steps and collectives alone, but for `ranks`.
    #     everything: all of it, however much that is.
    #     arrows: so many at most; None for as many as are told apart.
    #     clocks: by which times are shown.
    #     error_ns: hosts whose clocks are known less well are refused.
    #     certain: by what they are off at most, not by what they usually are.
    #     most_bytes: larger traces are shown by their own clocks and without arrows, unless one of
    #         both is asked for.

    ranks: Sequence[range] | None = None
    steps: range | None = None
    window: TimeWindow | None = None
    around: bool = False
    numbered: bool = False
    steps_and_calls: bool = False
    everything: bool = False
    arrows: int | None = None
    clocks: By = "measured"
    error_ns: int | None = None
    certain: bool = False
    most_bytes: int = MOST_BYTES


class Gathered(NamedTuple):
    """What is shown, and what is to be told of it, a line each."""

    files: tuple[Trace, ...]
    window: TimeWindow | None
    asked: TimeWindow | None  # the part of it that was asked for
    tracks: Mapping[Path, Iterable[bytes]]
    times: ShownTimes
    steps_only: frozenset[Path]
    told: tuple[str, ...]

    def merged(
        self,
        *,
        files: Sequence[Trace] | None = None,
        counters: Mapping[str, str] | None = None,
        packed: bool = False,
        jobs: int = 1,
    ) -> MergedTrace:
        """Return these files, or some of them, as one trace."""
        return MergedTrace(
            self.files if files is None else files,
            self.window,
            self.tracks,
            counters,
            times=self.times,
            steps_only=self.steps_only,
            packed=packed,
            jobs=jobs,
        )


def gathered(
    traces: Sequence[Trace],
    asked: Asked,
    beside: Callable[[Sequence[Trace]], Sequence[Trace]] = lambda _: (),
    spread: Spread | None = None,
) -> Gathered:
    """Find out what of traces is shown."""
    # Args:
    #     traces: which.
    #     asked: what somebody wants to see of them.
    #     beside: gives what is shown beside those that were chosen.
    #     spread: who reads ranks for arrows and clocks; by default this process.
    #
    # Raises:
    #     TraceError: no trace is of a rank, or has a step, that was asked for.
    #     ClockError: a clock is not known as well as was asked for.
    #     DftraceError: steps are asked for, and NumPy is not installed.
    told: list[str] = []
    choice = asked_for(traces, asked.ranks, steps_and_calls=asked.steps_and_calls)
    joined = _joined(choice.files, asked, told, spread)
    window = asked.window
    tracks: Mapping[Path, Iterable[bytes]] = {}
    if asked.steps is not None:
        with needs_numpy("--steps"):
            from dftrace_ai.analysis.merging.numbered_steps import shown_steps
        window, tracks = shown_steps(choice.files, asked.steps)
    elif asked.numbered:
        tracks = _numbered(choice.files)
    seen = window
    if window is not None and asked.around:
        window = window.widened()
    free = asked.ranks is None and not asked.steps_and_calls and not asked.everything
    if free:
        choice = as_much_as_a_viewer_takes(
            choice.files,
            joined.late if joined and events_in(choice.files) > MOST_EVENTS else (),
            window=window is not None,
        )
        told += choice.notes
        if choice.share < 1:
            window = _part(choice, joined)
    elif asked.everything and (events := events_in(choice.files)) > BEYOND_ALL:
        told.append(f"{events:,} events are more than a viewer has memory for ({BEYOND_ALL:,})")
    measured = joined.measured if joined and asked.clocks == "measured" else None
    files = (*choice.files, *beside(choice.files))
    times = ShownTimes(files, Owners(files), measured, exact=asked.clocks != "none")
    if joined and measured:
        told += [*joined.uncalibrated(), *joined.set_back()]
    if joined and asked.arrows != 0:
        from dftrace_ai.analysis.last_to_come import MOST_ARROWS, arrows_of

        try:
            arrows = arrows_of(joined, times, window, asked.arrows or MOST_ARROWS)
        except (DftraceError, OSError) as error:
            told.append(f"{NO_ARROWS}: {error}")
        else:
            behind = {p: one.behind(tracks.get(p, ())) for p, one in arrows.lines.items()}
            tracks = {**tracks, **behind}
            told += arrows.notes
    return Gathered(files, window, seen, tracks, times, choice.steps_only, tuple(told))


def _numbered(files: Sequence[Trace]) -> dict[Path, list[bytes]]:
    try:
        from dftrace_ai.analysis.merging.numbered_steps import numbered_steps
    except ImportError:
        return {}  # NumPy is not there; the trace is shown without them
    try:
        return numbered_steps(files)
    except DftraceError:
        return {}  # who reads it for the viewer tells


def _joined(
    files: Sequence[Trace], asked: Asked, told: list[str], spread: Spread | None
) -> Joined | None:
    own = [one for one in files if one.header and one.header.run and not one.file.copy]
    clocks = {one.said.boot_id or one.said.host for one in own}
    measures = asked.clocks == "measured" and len(clocks) > 1
    if len({one.said.rank for one in own} - {None}) < 2 or (asked.arrows == 0 and not measures):
        return None
    explicit = bool(asked.arrows) or asked.error_ns is not None or spread is not None
    size = 0
    for one in own:
        with readable(one):
            size += one.file.content.stat().st_size
    joined, why = None, ""
    if size > asked.most_bytes and not explicit:
        why = f"traces are larger than {asked.most_bytes >> 20} MiB"
    else:
        try:
            from dftrace_ai.analysis.merging.joined import Joined

            joined = Joined.of(own, spread)
        except ImportError:
            why = ""  # NumPy is not there
        except (DftraceError, OSError) as error:
            # That others cannot read them is another matter than what traces say.
            if spread and (spread.left_out or not isinstance(error, TraceError)):
                raise
            why = str(error)
    told += spread.left_out if spread else ()
    if joined is None and why:
        told.append(f"{NO_ARROWS}: {why}")
        if measures:
            told.append(f"clocks of hosts are not measured, and times are as they have them: {why}")
    if asked.error_ns is not None and len(clocks) > 1:
        beyond = sorted(map(str, clocks))
        if joined:
            beyond = [*joined.clocks.beyond(asked.error_ns, certain=asked.certain)]
        if beyond:
            raise ClockError(
                f"{counted(len(beyond), 'clock')} not known to within "
                f"{asked.error_ns / 1e6:g} ms: {', '.join(beyond[:8])}"
            )
    return joined


def _part(choice: Choice, joined: Joined | None) -> TimeWindow | None:
    reaches = map(_reach_of, choice.files)
    known = [reach for reach in reaches if reach and reach.first_ns <= reach.last_ns]
    if not known:
        return None
    first = min(reach.first_ns for reach in known)
    last = max(reach.last_ns for reach in known)
    length = round((last - first) * choice.share)
    slowest = joined.slowest_ns() if joined else None
    middle = sum(slowest) // 2 if slowest else (first + last) // 2
    begin = max(first, min(middle - length // 2, last - length))
    base_ns = shown_base_us(choice.files) * 1000
    return TimeWindow((begin - base_ns) / 1000, (begin + length - base_ns) / 1000)


def _reach_of(file: Trace) -> Reach | None:
    try:
        return recorded(file)
    except TraceError:
        return None  # whoever reads it tells
