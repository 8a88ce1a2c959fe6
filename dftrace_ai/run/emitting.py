"""The one door for events that are not spans of a block: whoever records something records it here.

Annotations, counters of the system, tensor inspection, loggers and instrumentation alike. Each
call does nothing where no run is on, waits for nothing and raises nothing for what it is given to
record: what cannot be written is left out and counted in the trace's last line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import dftrace_ai._native as _native

if TYPE_CHECKING:
    from collections.abc import Callable

    from dftrace_ai.trace_format.json_types import Json

Moment = tuple[int, int, int, int]
"""When and where something was: nanoseconds since the epoch by the trace's clock, id and level of
the span that was open, and the run that the span belongs to. What is told later lies there."""

ApartSpan = _native.ApartSpan
"""A span that any thread may end, of `begin`. ``span.end(args=None, exc_type=None)`` ends it:
arguments given there stand beside those it began with, or in their place; the type of an exception
becomes its ``error``; a second end does nothing. ``span.is_open`` tells whether it is recorded and
has not ended, ``span.moment`` the present in it, None where it is not. Who drops it ends it, and
the event says ``"dropped": true``."""

moment: Callable[[], Moment] = _native.moment
"""Returns the present, in the span that is open in this thread or task."""

time_us: Callable[[], int] = _native.time_us
"""Returns microseconds since the epoch, by the trace's clock."""

ticks: Callable[[], int] = _native.ticks
"""Returns the recorder's own clock, for `complete_between`; 0 where nothing is recorded. What it
tells a thread is later than all events of that thread so far, and earlier than those that come."""

ThreadCounts = _native.ThreadCounts
"""An object whose attributes are numbers of the calling thread, and 0 in one that begins: what it
is inside of. All such objects have the same ones."""

Gate = _native.Gate
"""Whether instrumentation records anything now: what it asks before each span.

Attributes:
    live: it is there. A wrapper that outlives it, because somebody has laid his own over it, does
        nothing any more.
    recording: it is, and the step that is on is one of those that are asked for.
    shared: an object whose `value` is the same for workers of loaders, in memory that they share;
        None where there are none.
"""

PassState = _native.PassState
"""How many batches of a loader were fetched and used. What else is known of it is in a class that
is derived from this one.

Attributes:
    of: id of the loader's iterator.
    begun: when the first batch was asked for, in `ticks`.
    last: when it was last used, in `ticks`.
    fetched: batches that it has given.
    used: of these, those that something was done with.
    number: of the epoch that it is; None for none.
    trained: something was learned from it.
    drained: it gives no more.
    told: a framework tells of its epochs, which need not be passes.
"""

TrainingState = _native.TrainingState
"""Where a training is: a class for one to be derived from, with what comes by in each step. It has
a step recorded by its node when it is over, and its numbers reach all nodes below another one.
The class that is derived has ``_take_pass(iterator, first, now)``, which sets ``_pass``,
``_end_pass(over, end)``, ``_pass_learns(over)``, ``_judges()``, ``_feeds()``, whether that pass
may give more, and ``_optimizers_alive()``, how many there are. What one is told is about the thread
that tells: ``_of_thread(number)`` makes another for a further thread, and ``_takes_tracks(number)``
is called of one that trains beside others, ``_are_several()`` when the second does."""

Gated = _native.Gated
"""``Gated(wrapped, node, gate)`` stands for a function or a data set: its calls and items are those
of `wrapped`, and spans of the node while the gate, or what it shares, says so."""

RecordedCall = _native.RecordedCall
"""A function of torch that makes up a step, recorded as a span while the gate says so, and told to
the training: ``RecordedCall(work, wrapped, node, gate, training, leave_hooked)`` is called as
`wrapped` is. Further arguments are the objects that are meant, what says which backward pass calls,
a module with torch's flag of compiling, and whether nothing accompanies the spans of the node. The
work is ``"fetch"``, ``"clearing"``, ``"optimizer"``, ``"backward"`` or ``"gradients"``."""

RecordedForward = _native.RecordedForward
"""A call of modules, recorded where it is the outermost of a model, and told to the training. Which
span it is in depends on whether it learns, judges or computes again for a backward pass."""

quick_within_forward: Callable[..., Any] = _native.quick_within_forward
"""Has a function that stands for torch's ``Module.__call__``, and is returned, do what torch's own
does without a frame of Python where the thread is within a ``ThreadCounts.forward``. Where torch
runs the frames, a second argument has to return None: what torch compiles this thread's by. With a
`RecordedForward`, and a module that has torch's flag of compiling, the outermost calls go by that
one; without them the one before is forgotten."""

record_within_forward: Callable[..., None] = _native.record_within_forward
"""Has such calls within a forward recorded: ``record_within_forward(node_of, gate, plain)``, by the
node that a function returns for a module and how deep it is. Without arguments they are not any
more."""

is_recording: Callable[[], bool] = _native.is_on
"""Returns whether a run is on: who has to work for an event asks first."""


def instant(
    name: str,
    args: Mapping[str, Any] | None = None,
    *,
    category: str = "instant",
    track: str = "",
    at: Moment | None = None,
) -> None:
    """Mark a moment: now, or `at` one of `moment`; on a track of its own, or the thread's."""
    arguments = None if args is None else dict(args)
    if at is None:
        _native.instant(category, name, arguments, track)
    else:
        _native.instant(category, name, arguments, track, at)


def counter(name: str, values: float | Mapping[str, float], *, at: Moment | None = None) -> None:
    """Plot finite numbers by series, or one as ``value``; what is none is left out and counted."""
    series = dict(values) if isinstance(values, Mapping) else {"value": values}
    if at is None:
        _native.counter(name, series)
    else:
        _native.counter(name, series, at)


def flow_out(name: str, identity: int, *, at: Moment | None = None) -> None:
    """Start an arrow in the span that is open; without one it is left out and counted."""
    _native.flow(name, False, identity, *(() if at is None else (at,)))


def flow_in(name: str, identity: int, *, at: Moment | None = None) -> None:
    """End an arrow in the span that is open; see `flow_out`."""
    _native.flow(name, True, identity, *(() if at is None else (at,)))


def metadata(key: object, value: object, *, in_every_part: bool = False) -> None:
    """Write a ``CM`` line, which is in the file at once."""
    _native.metadata(key, value, in_every_part)


def complete(
    name: str,
    start_us: int,
    duration_us: int,
    args: Mapping[str, Any] | None = None,
    *,
    category: str,
    track: str = "",
    sanitised: int = 0,
) -> None:
    """Record a span whose times are known, in microseconds since the epoch, as of `time_us`.

    `track`: of its own, on which spans nest; empty for the thread's. `sanitised`: how much of it
    was written otherwise than given; it is counted.
    """
    _native.log_event(category, name, start_us, duration_us, dict(args or {}), sanitised, track)


def complete_between(
    name: str,
    start: int,
    end: int,
    args: Mapping[str, int | str | None] | None = None,
    *,
    category: str,
    track: str,
) -> None:
    """Record a span whose beginning and end are known only afterwards, exact to the nanosecond."""
    _native.log_between(category, name, start, end, dict(args or {}), track)


def complete_within(
    name: str,
    start_ns: int,
    end_ns: int,
    args: Mapping[str, Any] | None = None,
    *,
    category: str,
    track: str,
    of: Moment,
) -> None:
    """Record a span whose times are known, as in `Moment`, which another span has caused."""
    _native.log_within(category, name, start_ns, end_ns, dict(args or {}), track, of)


def begin(
    name: str,
    args: Mapping[str, Json] | None = None,
    *,
    category: str,
    track: str,
) -> ApartSpan:
    """Open a span that another thread may end, in any order with others.

    It begins now, in the span that is open here, and lies on a track that is no thread's, where
    others see it while it is open. Where no run is on it is nothing.
    """
    return _native.begin(category, name, dict(args or {}), track)
