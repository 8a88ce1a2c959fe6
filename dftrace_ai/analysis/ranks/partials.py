"""What each rank says for the whole job: its steps, the work of its own, and where it met others.

A partial is made of the files of one rank alone, holds whole numbers only, and says nothing of
others. So ranks are read one after the other, on several processors or machines, and what is made
of all of them does not depend on the order. It comes in chunks of steps: those of all ranks with
the same numbers are looked at together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np

from dftrace_ai._reader import pack_columns, unpack_columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.steps.detection import FoundBy

STEPS_OF_CHUNK: Final = 256
"""Steps with numbers from n to n + 255 are one chunk, where n is divisible by 256."""

GARBAGE: Final = "host/gc"
"""Category and name of collections of Python's garbage, which lie within other spans."""

NOT_ANNOTATED: Final = "not annotated"
"""In place of a span's name, for what of a step lies in none."""

MOST_GROUPS_SHARED: Final = 64

UNTOLD: Final = -1
"""In place of a number that nobody tells, as `seq`, `peer`, and the step of what lies in none."""

# As `JOINT`, by the names of the vocabulary.
ROOTED: Final = frozenset({"bcast", "reduce", "gather", "scatter"})
MESSAGES: Final = frozenset({"send", "receive"})

NO_WAIT_NS: Final = 100_000
"""Who waits no longer than this for a message has found it there."""

Until = Literal["end", "waited", "enqueued", "none"]
"""What the end of a call is: its own, when somebody had waited for it, when it was given to a
device, or nothing that was seen."""
UNTIL: Final[dict[Until, int]] = {"end": 0, "waited": 1, "enqueued": 2, "none": 3}


class Place(NamedTuple):
    """Where a rank runs."""

    rank: int
    world_size: int | None
    host: str  # its name as people know it; empty where it is not known
    clock: str  # ranks with the same one have one clock: the boot of their host, or its name
    local_rank: int | None
    layout: tuple[
        tuple[str, int], ...
    ]  # rank in each dimension, as it is told: (("dp", 0), ("pp", 1))
    run: str
    start: int  # how often it was started, from 1
    pid: int
    cpus: int | None = None  # processors of its host
    clock_offset_ns: int | None = None  # what its times have on top of those of the boot

    @property
    def stage(self) -> int | None:
        """Its stage of a pipeline: the dimension `pp` of its layout."""
        return dict(self.layout).get("pp")


class Group(NamedTuple):
    """A process group. Two of one name that have other members are two."""

    name: str
    description: str
    ranks: tuple[int, ...]  # empty where nobody tells


@lru_cache(MOST_GROUPS_SHARED)
def shared_group(group: Group) -> Group:
    """Return the one that is held of groups that are the same: each rank names all of its own."""
    return group


class StepRows(NamedTuple):
    """Steps in order of their number."""

    number: Integers  # what each is called, int64
    start_ns: Integers  # nanoseconds since 1970, by the rank's own clock
    end_ns: Integers
    time_ns: Integers  # what it took without evaluation inside of it
    blocked_ns: Integers  # how much of that the rank was blocked by others
    gc_ns: Integers  # how much of it Python's garbage was collected, in whatever span that lies


class SpanRows(NamedTuple):
    """Outermost spans of work of the thread that trains, in order of time, without overlaps.

    They are cut where a step ends, so that what they take and what is not annotated add up to it.
    """

    step: Integers  # row of the step in which each begins; `UNTOLD` for none
    name: Integers  # index in `RankPartial.names`
    start_ns: Integers
    end_ns: Integers
    blocked_ns: Integers  # how much of it the thread was blocked by others


class SilenceRows(NamedTuple):
    """When the thread that trains was blocked by others, in order of time, without overlaps."""

    start_ns: Integers
    end_ns: Integers
    call: Integers  # row of the call that ended it; `UNTOLD` where that is on the thread itself


class CallRows(NamedTuple):
    """Collectives and messages, by their start."""

    step: Integers  # row of the step in which each was called; `UNTOLD` for none
    name: Integers  # index in `RankPartial.names`, of ``all_reduce`` and so on
    group: Integers  # index in `RankPartial.groups`; `UNTOLD` where none is told
    start_ns: Integers
    end_ns: Integers
    late_ns: Integers  # so much earlier than it was seen its end may have been; 0 for exact ends
    until: Integers  # codes of `UNTIL`
    seq: Integers  # its number as torch counts
    nth: Integers  # how many of this group and name the process had begun before
    bytes: Integers
    track: Integers  # thread or lane that it lies on
    peer: Integers  # of a message: the other rank; of what is rooted: the root
    tag: Integers


class StepsChunk(NamedTuple):
    """What a rank did in steps of some numbers, see `STEPS_OF_CHUNK`.

    What lies between steps is in the chunk of the step before it.
    """

    steps: StepRows
    spans: SpanRows
    silences: SilenceRows
    calls: CallRows

    def own_ns(self, names: int) -> Integers:
        """Return its own work by step and name, ``(steps, names + 1)``, not annotated the last."""
        steps, spans = self.steps, self.spans
        own = np.zeros((len(steps.number), names + 1), np.int64)
        inside = spans.step != UNTOLD
        at = spans.step[inside], spans.name[inside]
        np.add.at(own, at, (spans.end_ns - spans.start_ns - spans.blocked_ns)[inside])
        own[:, names] = np.maximum(steps.time_ns - steps.blocked_ns - own.sum(1), 0)
        return own


@dataclass(frozen=True, repr=False)
class CutSteps(Mapping[int, StepsChunk]):
    """What a rank did in all steps, cut into chunks."""

    numbers: tuple[int, ...]  # of the chunks, in order
    rows: StepsChunk  # those of all chunks, one behind the other, as each of them has them
    edges: tuple[Integers, ...]  # of each kind where the rows of chunks begin; the last is behind

    @classmethod
    def of(cls, chunks: Mapping[int, StepsChunk]) -> CutSteps:
        """Put chunks together, of which there is one at least."""
        if isinstance(chunks, cls):
            return chunks
        kinds: list[Any] = [*zip(*chunks.values(), strict=True)]
        rows = (type(of[0])(*map(np.concatenate, zip(*of, strict=True))) for of in kinds)
        counts = ([0, *(len(one[0]) for one in of)] for of in kinds)
        return cls(tuple(chunks), StepsChunk(*rows), tuple(map(np.cumsum, counts)))

    def __getitem__(self, number: int) -> StepsChunk:
        at = self._at[number]
        parts = (slice(*edges[at : at + 2].tolist()) for edges in self.edges)
        kinds: Any = zip(self.rows, parts, strict=True)
        return StepsChunk(*(type(rows)(*(one[part] for one in rows)) for rows, part in kinds))

    def __iter__(self) -> Iterator[int]:
        return iter(self.numbers)

    def __len__(self) -> int:
        return len(self.numbers)

    @cached_property
    def _at(self) -> dict[int, int]:
        return {number: at for at, number in enumerate(self.numbers)}


@dataclass(frozen=True, repr=False)
class RankPartial:
    """What one rank says."""

    place: Place  # where it runs
    # Category and name of its spans, as ``compute/backward``; of calls the name alone.
    names: tuple[str, ...]
    groups: tuple[Group, ...]  # the process groups that its calls were made in
    found_by: FoundBy | None  # how its steps were found; None where there are none
    # What it did, by chunk: step number divided by `STEPS_OF_CHUNK`.
    chunks: Mapping[int, StepsChunk]
    step_count: int  # all its steps
    # The most memory that a sample of the process tells; `UNTOLD` for none.
    peak_bytes: int = UNTOLD
    stage: int = UNTOLD  # the first stage of a pipeline that its messages tell; `UNTOLD` for none
    apart_ns: int = 0  # from its first step to its last, the time that is in none
    # How many forward passes a stage makes in the usual step; `UNTOLD` for no stage.
    passes: int = UNTOLD
    notes: tuple[str, ...] = ()  # what of its files could not be read or is left out, one line each


# Own work alone, in few bytes: so many steps of all ranks are unpacked at a time.
STEPS_UNPACKED: Final = 32
# Number, time, blocked and collecting time stand before the own work by name.
_BEFORE_NAMES: Final = 4
_UNIT_NS: Final = 1000

_NONE: Final = np.zeros(0, np.int64)
_NO_SILENCES: Final = SilenceRows(*(_NONE for _ in SilenceRows._fields))
_NO_CALLS: Final = CallRows(*(_NONE for _ in CallRows._fields))


def own_only(partial: RankPartial) -> RankPartial:
    """Return a rank with the same own work by step and name, to a microsecond, and nothing else."""
    return replace(partial, chunks=_OwnChunks(partial))


class _OwnChunks(Mapping[int, StepsChunk]):
    """Chunks of `STEPS_UNPACKED` steps, which are unpacked when they are asked for."""

    def __init__(self, partial: RankPartial) -> None:
        names = len(partial.names)
        tables = [_own_table(chunk, names) for chunk in partial.chunks.values()]
        tables = tables or [np.zeros((_BEFORE_NAMES + names, 0), np.int64)]
        table = np.concatenate(tables, axis=1)
        # Names of calls have no work.
        self._rows = np.flatnonzero(table.any(axis=1) | (np.arange(len(table)) < _BEFORE_NAMES))
        kinds, firsts = np.unique(table[0] // STEPS_UNPACKED, return_index=True)
        rows = table[self._rows]
        content = [
            pack_columns([*rows[:, low:high]])
            for low, high in pairwise([*firsts.tolist(), table.shape[1]])
        ]
        self._content = b"".join(content)
        self._kinds = kinds
        self._steps = np.diff([*firsts.tolist(), table.shape[1]])
        self._edges = np.cumsum([0, *map(len, content)])

    def __getitem__(self, number: int) -> StepsChunk:
        at = int(self._kinds.searchsorted(number))
        if at == len(self._kinds) or self._kinds[at] != number:
            raise KeyError(number)
        count = int(self._steps[at])
        content = self._content[self._edges[at] : self._edges[at + 1]]
        packed = unpack_columns(content, (count,) * len(self._rows))
        table = np.frombuffer(packed, np.int64).reshape(-1, count)
        time, blocked, garbage = table[1:_BEFORE_NAMES] * _UNIT_NS
        own = table[_BEFORE_NAMES:] * _UNIT_NS
        name, step = own.nonzero()
        names, nothing = self._rows[_BEFORE_NAMES:] - _BEFORE_NAMES, np.zeros(len(name), np.int64)
        return StepsChunk(
            StepRows(table[0], np.zeros(count, np.int64), time, time, blocked, garbage),
            SpanRows(step, names[name], nothing, own[name, step], nothing),
            _NO_SILENCES,
            _NO_CALLS,
        )

    def __iter__(self) -> Iterator[int]:
        return iter(self._kinds.tolist())

    def __len__(self) -> int:
        return len(self._kinds)


def _own_table(chunk: StepsChunk, names: int) -> Integers:
    steps = chunk.steps
    own = chunk.own_ns(names)[:, :names]
    times = np.vstack([steps.time_ns, steps.blocked_ns, steps.gc_ns, own.T]) // _UNIT_NS
    table: Integers = np.vstack([steps.number, times])
    return table
