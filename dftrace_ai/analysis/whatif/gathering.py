"""What ranks did in some of their steps: chosen evenly over the run, on one axis of time.

Stretches of steps that follow each other are worked out side by side, a rank's in one a *chain*.
All chains lie one after the other on one axis, so that what is done for each is done for all at
once.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from dftrace_ai.analysis.ranks.matching import in_order, meetings_in
from dftrace_ai.analysis.ranks.partials import MESSAGES, NOT_ANNOTATED, UNTIL, UNTOLD
from dftrace_ai.analysis.steps.measuring import steady_times
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from dftrace_ai.analysis.ranks.blocks import Block
    from dftrace_ai.analysis.ranks.clock_offsets import Clocks
    from dftrace_ai.analysis.ranks.job import RanksOfJob
    from dftrace_ai.analysis.ranks.partials import Group, Place, RankPartial
    from dftrace_ai.analysis.reading.event_columns import Integers

# Of more operations the graph would take more than a second and a gigabyte.
MOST_OPERATIONS: Final = 1_000_000
MOST_STEPS: Final = 512
STRETCH_STEPS: Final = 32
FEWEST_OF_STRETCH: Final = 10
FEWEST_STEPS: Final = 5
"""Fewer say nothing at all; below the limit for steps no cause is named."""
# A chunk of all ranks is read for each block.
MOST_BLOCKS: Final = 16
# Times on the axis, sums of two of them among them, are in 64 bits.
LONGEST_AXIS_NS: Final = 2**62


class TimesApartError(Exception):
    """Times of one stretch lie so far apart that they cannot be on one axis."""

    def __init__(self, hosts: tuple[str, ...]) -> None:
        super().__init__(f"times of {len(hosts)} hosts are apart")
        self.hosts = hosts


class Columns(NamedTuple):
    """Rows of all chains; `at` and `end` are on the axis."""

    chain: Integers
    at: Integers
    end: Integers


@dataclass(frozen=True, repr=False)
class Gathered:
    """What all ranks did in the judged steps."""

    places: tuple[Place, ...]  # of each rank
    numbers: Integers  # what the steps are called, stretch by stretch
    stretch_of: Integers  # of each step its stretch
    stretches: int  # how many
    pipeline: tuple[int, int] | None  # of how many stages, and of how many passes each
    all_steps: int  # how many steps the rank with the fewest has
    names: tuple[str, ...]  # of spans
    labels: tuple[str, ...]  # of calls: category and name, with the direction or group
    axis_ns: int  # how long each chain's part of the axis is
    base_ns: Integers  # of each stretch, when it begins: where its part of the axis is 0
    chain_rank: Integers  # of each chain the index of its rank
    chain_stretch: Integers  # of each chain its stretch
    began: Integers  # where the first step of each chain begins on the axis
    ended: Integers  # where the last ends
    steps: Columns  # in each chain, in order
    step: Integers  # of `steps`, the index of each in `numbers`
    gc_ns: Integers  # of `steps`, how long garbage was collected in each
    spans: Columns  # outermost spans of work, without overlaps
    span_name: Integers  # index in `names`
    silences: Columns  # when the thread was blocked
    silence_call: Integers  # row in `calls` of what ended it; `UNTOLD` for none that is known
    calls: Columns  # collectives and messages
    call_label: Integers  # index in `labels`
    call_name: Integers  # index in `call_names`, of ``all_reduce`` and so on
    call_names: tuple[str, ...]  # names of calls
    call_queue: Integers  # calls of one chain and queue are done one after the other
    call_late_ns: Integers  # the error of their ends
    call_waited: Integers  # whether it may have ended before: its end is when somebody waited
    call_meeting: Integers  # number of its meeting, from 0; `UNTOLD` for none
    call_direction: Integers  # of messages in a pipeline, 1 for forward and -1 for backward, else 0
    call_track: Integers  # the track that it lies on
    call_peer: Integers  # of messages the other rank, of rooted collectives the root; `UNTOLD`
    enqueued: int  # how many calls tell only when they were given to a device


class _Part(NamedTuple):
    """What one rank did in one stretch; times by the clock of all, rows of calls from 0."""

    steps: tuple[Integers, Integers, Integers]
    spans: tuple[Integers, Integers, Integers]
    silences: tuple[Integers, Integers, Integers]
    calls: _Calls


class _Calls(NamedTuple):
    """Calls of one rank in one stretch."""

    start: Integers
    end: Integers
    late: Integers
    waited: Integers
    label: Integers
    name: Integers
    queue: Integers
    meeting: Integers
    direction: Integers
    track: Integers
    peer: Integers
    enqueued: Integers


def gather(job: RanksOfJob, clocks: Clocks, odd: Collection[int] = ()) -> Gathered | None:
    """Gather what all ranks did in steps that are chosen evenly; None without common steps.

    Steps with the numbers `odd` are left out. TimesApartError: steps of one number are centuries
    apart.
    """
    if not job.ranks:
        return None
    labels = _Labels(job.ranks)
    order = in_order(job.ranks)
    parts: list[list[_Part]] = []
    numbers: list[Integers] = []
    bases: list[int] = []
    most = 0
    for number, (block, blocks) in enumerate(_blocks(job)):
        skipped = 0 if most else _warm_up(block)
        most = most or max(_most_steps(block) // blocks, FEWEST_STEPS)
        met = meetings_in(block, order)
        meeting = np.where(met == UNTOLD, UNTOLD, met + (number << 32))
        edges = block.tables.calls.edges.tolist()
        of_ranks_calls = [meeting[low:high] for low, high in pairwise(edges)]
        kept = np.flatnonzero(~np.isin(block.numbers, [*odd]))
        skipped = int(np.searchsorted(kept, skipped))
        for first, behind in _stretches(block.numbers[kept], skipped, most):
            low, high = int(kept[first]), int(kept[behind - 1]) + 1
            of_ranks = [
                _part(block, rank, low, high, clocks, of_ranks_calls[rank], labels)
                for rank in range(len(job.ranks))
            ]
            parts.append(of_ranks)
            numbers.append(block.numbers[low:high].copy())
            bases.append(min(int(part.steps[0][0]) for part in of_ranks))
        del block, met, meeting, of_ranks_calls  # before the next is read
    return _together(job, parts, numbers, bases, labels) if parts else None


def _blocks(job: RanksOfJob) -> Iterator[tuple[Block, int]]:
    """Yield the first block and others chosen evenly, each with how many there are."""
    chunks = deque(sorted(job.chunks))
    block: Block | None = None
    while chunks and block is None:
        block = job.block(chunks.popleft())
    if block is None:
        return
    most = max(_most_steps(block) // FEWEST_OF_STRETCH, 1)
    blocks = min(1 + len(chunks), MOST_BLOCKS, most)
    yield block, blocks
    for at in np.linspace(0, len(chunks), blocks).astype(int)[1:].tolist():
        block = None  # before the next is read
        if (block := job.block(chunks[at - 1])) is not None:
            yield block, blocks


def _warm_up(block: Block) -> int:
    """Return how many steps of a run's first block are not like the later ones."""
    time = block.time_ns.max(0)
    return int(steady_times(time, np.zeros(len(time), bool)).mask.argmax())


def _most_steps(block: Block) -> int:
    """Return how many steps may be judged, by what lies in those of a block."""
    rows = sum(int(table.edges[-1]) for table in block.tables)
    steps = int(block.tables.steps.edges[-1]) / len(block.ranks)
    # Each cuts the thread twice.
    return min(int(MOST_OPERATIONS * steps / max(2 * rows, 1)), MOST_STEPS)


def _stretches(numbers: Integers, skipped: int, most: int) -> Iterator[tuple[int, int]]:
    """Yield stretches of steps that follow each other, from and to before an index."""
    edges = np.flatnonzero(np.diff(numbers) != 1) + 1
    runs = [
        (max(low, skipped), high)
        for low, high in zip((0, *edges.tolist()), (*edges.tolist(), len(numbers)), strict=True)
        if high > skipped
    ]
    total = sum(high - low for low, high in runs)
    if len(runs) == 1 and total <= min(most, 2 * STRETCH_STEPS):
        yield runs[0]
        return
    length = min(STRETCH_STEPS, max(most // 2, min(most, FEWEST_OF_STRETCH)))
    pieces = []
    for low, high in runs:
        cuts = np.linspace(low, high, max(round((high - low) / length), 1) + 1).astype(int)
        pieces += list(zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True))
    wanted = len(pieces)
    if total > most:
        wanted = max(round(most * len(pieces) / total), 1)
    chosen = np.unique(np.linspace(0, len(pieces) - 1, wanted + 2)[1:-1].round().astype(int))
    for at in range(len(pieces)) if wanted == len(pieces) else chosen.tolist():
        yield pieces[at]


class _Labels:
    """How spans and calls are called, over all ranks."""

    def __init__(self, ranks: tuple[RankPartial, ...]) -> None:
        self.names: dict[str, int] = {NOT_ANNOTATED: 0}
        self.calls: dict[str, int] = {}
        self.call_names: dict[str, int] = {}
        self._dimensions = {one.place.rank: dict(one.place.layout) for one in ranks}
        self._everyone = {one.place.rank for one in ranks}
        self.stage = {
            rank: layout["pp"] for rank, layout in self._dimensions.items() if "pp" in layout
        }
        self._groups: dict[Group, str] = {}

    def group(self, group: Group) -> str:
        """Return what groups of its shape are called: those that do the same elsewhere."""
        if group not in self._groups:
            self._groups[group] = self._shape(group)
        return self._groups[group]

    def of_call(self, partial: RankPartial, name: int, beside: int) -> str:
        """Return how a call is called, by its name and its group, or -3 to -1 for a direction."""
        called = partial.names[name]
        if called in MESSAGES:
            direction = {-3: " backward", -2: "", -1: " forward"}[beside]
            return f"comm/{called}{direction}"
        group = self.group(partial.groups[beside]) if beside != UNTOLD else ""
        return f"comm/{called} {group}".rstrip()

    def _shape(self, group: Group) -> str:
        members = [self._dimensions.get(rank) for rank in group.ranks]
        if members and all(members):
            known = [layout for layout in members if layout]
            varying = [
                dimension
                for dimension in known[0]
                if len({layout.get(dimension) for layout in known}) > 1
            ]
            if varying:
                return "+".join(varying)
        if group.ranks and self._everyone <= set(group.ranks):
            return "all"
        return counted(len(group.ranks), "rank") if group.ranks else group.name


def _number(known: dict[str, int], name: str) -> int:
    return known.setdefault(name, len(known))


def _part(
    block: Block,
    rank: int,
    low: int,
    high: int,
    clocks: Clocks,
    meeting: Integers,
    labels: _Labels,
) -> _Part:
    partial, chunk, rows = block.ranks[rank], block.chunk(rank), block.rows[rank]
    first, last = int(rows[low]), int(rows[high - 1])
    began, ended = int(chunk.steps.start_ns[first]), int(chunk.steps.end_ns[last])

    def common(times: Integers) -> Integers:
        return clocks.corrected(rank, np.minimum(times, ended))

    steps = chunk.steps
    some = slice(first, last + 1)
    spans = _between(chunk.spans.start_ns, began, ended)
    names = np.array([_number(labels.names, name) for name in partial.names] or [0])
    quiet = chunk.silences
    silent = np.flatnonzero((quiet.end_ns > began) & (quiet.start_ns < ended))
    calls = _between(chunk.calls.start_ns, began, ended)
    call = quiet.call[silent]
    # Calls of others than those of the stretch are not told.
    known = (call >= calls.start) & (call < calls.stop)
    return _Part(
        (common(steps.start_ns[some]), common(steps.end_ns[some]), steps.gc_ns[some]),
        (
            common(chunk.spans.start_ns[spans]),
            common(chunk.spans.end_ns[spans]),
            names[chunk.spans.name[spans]],
        ),
        (
            common(np.maximum(quiet.start_ns[silent], began)),
            common(quiet.end_ns[silent]),
            np.where(known, call - calls.start, UNTOLD),
        ),
        _calls_of(block, rank, calls, clocks, meeting, labels),
    )


def _calls_of(
    block: Block, rank: int, some: slice, clocks: Clocks, meeting: Integers, labels: _Labels
) -> _Calls:
    partial, calls = block.ranks[rank], block.tables.calls.of(rank)
    name, group, peer = calls.name[some], calls.group[some], calls.peer[some]
    messages = np.array([name in MESSAGES for name in partial.names] or [False])[name]
    direction = np.where(messages, _directions(partial, name, peer, labels), 0)
    # What a call is called depends on its name, and its group or direction.
    beside = np.where(messages, direction - 2, group)
    pairs, at = np.unique(np.stack((name, beside)), axis=1, return_inverse=True)
    label = np.array(
        [_number(labels.calls, labels.of_call(partial, *pair)) for pair in pairs.T.tolist()] or [0]
    )
    names = np.array([_number(labels.call_names, name) for name in partial.names] or [0])
    # Messages wait for those before them to the same rank, collectives for those of their group.
    queues = np.stack(
        (messages, np.where(messages, name, group), peer * messages, calls.tag[some] * messages)
    )
    queue = np.unique(queues, axis=1, return_inverse=True)[1]
    # What is taken over as it is must not hold the tables of all ranks.
    return _Calls(
        start=clocks.corrected(rank, calls.start_ns[some]),
        end=clocks.corrected(rank, calls.end_ns[some]),
        late=calls.late_ns[some].copy(),
        waited=calls.until[some] == UNTIL["waited"],
        label=label[at.reshape(-1)],
        name=names[name],
        queue=queue.reshape(-1),
        meeting=meeting[some].copy(),
        direction=direction,
        track=calls.track[some].copy(),
        peer=peer.copy(),
        enqueued=calls.until[some] == UNTIL["enqueued"],
    )


def _directions(partial: RankPartial, name: Integers, peer: Integers, labels: _Labels) -> Integers:
    """Return 1 for messages to later stages or from earlier ones, -1 for others, 0 without."""
    here = labels.stage.get(partial.place.rank)
    if here is None:
        return np.zeros(len(name), np.int64)
    others, at = np.unique(peer, return_inverse=True)
    later = np.array([labels.stage.get(other, here) - here for other in others.tolist()] or [0])
    sends = np.array([name == "send" for name in partial.names] or [False])[name]
    direction: Integers = np.sign(later)[at.reshape(-1)] * np.where(sends, 1, -1)
    return direction


def _between(starts: Integers, began: int, ended: int) -> slice:
    return slice(*np.searchsorted(starts, (began, ended)).tolist())


def _together(
    job: RanksOfJob,
    parts: list[list[_Part]],
    numbers: list[Integers],
    bases: list[int],
    labels: _Labels,
) -> Gathered:
    """Put what all ranks did in all stretches on one axis, stretch by stretch."""
    ranks = len(job.ranks)
    flat = [(stretch, part) for stretch, some in enumerate(parts) for part in some]
    axis = 1 + max(
        int(np.max(np.concatenate((part.steps[1], part.calls.end)))) - bases[stretch]
        for stretch, part in flat
    )
    if axis * len(flat) > LONGEST_AXIS_NS:
        raise TimesApartError(_apart(job, parts))
    shift = np.array([at * axis - bases[stretch] for at, (stretch, _) in enumerate(flat)])

    def columns(starts: list[Integers], ends: list[Integers]) -> Columns:
        chain = np.repeat(np.arange(len(starts)), [len(one) for one in starts])
        moved = shift[chain]
        return Columns(chain, np.concatenate(starts) + moved, np.concatenate(ends) + moved)

    every = [part for _, part in flat]
    steps = columns([part.steps[0] for part in every], [part.steps[1] for part in every])
    before = np.cumsum([0, *(len(some) for some in numbers)])
    silences = columns([one.silences[0] for one in every], [one.silences[1] for one in every])
    calls_before = np.cumsum([0, *(len(one.calls.start) for one in every)])
    silence_call = np.concatenate([one.silences[2] for one in every])
    silence_call = np.where(
        silence_call == UNTOLD, UNTOLD, silence_call + calls_before[silences.chain]
    )
    calls = _Calls(
        *(np.concatenate(rows) for rows in zip(*(one.calls for one in every), strict=True))
    )
    call_columns = columns([one.calls.start for one in every], [one.calls.end for one in every])
    return Gathered(
        places=tuple(one.place for one in job.ranks),
        numbers=np.concatenate(numbers),
        stretch_of=np.repeat(np.arange(len(numbers)), [len(some) for some in numbers]),
        stretches=len(numbers),
        pipeline=job.pipeline,
        all_steps=min(one.step_count for one in job.ranks),
        names=tuple(labels.names),
        labels=tuple(labels.calls),
        axis_ns=axis,
        base_ns=np.array(bases),
        chain_rank=np.tile(np.arange(ranks), len(parts)),
        chain_stretch=np.repeat(np.arange(len(parts)), ranks),
        began=np.array([int(part.steps[0][0]) for part in every]) + shift,
        ended=np.array([int(part.steps[1][-1]) for part in every]) + shift,
        steps=steps,
        step=np.concatenate(
            [before[stretch] + np.arange(len(part.steps[0])) for stretch, part in flat]
        ),
        gc_ns=np.concatenate([part.steps[2] for part in every]),
        spans=columns([one.spans[0] for one in every], [one.spans[1] for one in every]),
        span_name=np.concatenate([one.spans[2] for one in every]),
        silences=silences,
        silence_call=silence_call,
        calls=call_columns,
        call_label=calls.label,
        call_name=calls.name,
        call_names=tuple(labels.call_names),
        call_queue=calls.queue,
        call_late_ns=calls.late,
        call_waited=calls.waited,
        call_meeting=_dense(calls.meeting, call_columns.chain // ranks),
        call_direction=calls.direction,
        call_track=calls.track,
        call_peer=calls.peer,
        enqueued=int(calls.enqueued.sum()),
    )


def _apart(job: RanksOfJob, parts: list[list[_Part]]) -> tuple[str, ...]:
    """Return the hosts whose times are furthest from those of most."""
    ended = np.array([[part.steps[1][-1] for part in some] for some in parts], float)
    far = np.abs(ended - np.median(ended, axis=1, keepdims=True)).max(0)
    hosts = (rank.place.host for rank, it in zip(job.ranks, far > far.max() / 2, strict=True) if it)
    return tuple(dict.fromkeys(hosts))


def _dense(meeting: Integers, stretch: Integers) -> Integers:
    """Number meetings of each stretch from 0 on; who meets nobody else stays alone."""
    found = np.full(len(meeting), UNTOLD, np.int64)
    told = np.flatnonzero(meeting != UNTOLD)
    if len(told):
        key = stretch[told] * (int(meeting.max()) + 1) + meeting[told]
        _, at, counts = np.unique(key, return_inverse=True, return_counts=True)
        several = counts[at] > 1
        found[told[several]] = np.unique(at[several], return_inverse=True)[1]
    return found
