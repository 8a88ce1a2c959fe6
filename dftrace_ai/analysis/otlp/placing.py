"""Which trace and which parent each span of a process has for OpenTelemetry.

A run is a trace, and each of its steps is one: the spans of a step in all ranks, below the step of
their rank. A line is written when its span has ended, so children come before their parents, and
all of a step before the step: spans are held until that has come, and no longer.
"""

from __future__ import annotations

from bisect import bisect_right
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from dftrace_ai.analysis.otlp.messages import Span, length_of
from dftrace_ai.analysis.otlp.resources import resource_of
from dftrace_ai.analysis.reading.event_columns import BlockColumns
from dftrace_ai.analysis.reading.reader import Start
from dftrace_ai.analysis.reading.scanning import BEGIN
from dftrace_ai.analysis.steps.roles import role_of
from dftrace_ai.trace_format.header_and_footer import (
    CUSTOM_METADATA,
    FOOTER,
    OWN_CATEGORY,
    late_rank_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from dftrace_ai._reader import EventBlock
    from dftrace_ai.analysis.otlp.messages import Attributes, Resource
    from dftrace_ai.analysis.reading.event_columns import EventColumns, Integers, Label
    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.analysis.steps.roles import Role
    from dftrace_ai.analysis.where import Where
    from dftrace_ai.trace_format.header_and_footer import HeaderFacts
    from dftrace_ai.trace_format.json_types import Json

NS: Final = 1_000_000_000

# Of one process, and of one that may have no steps, such as a loader's worker; what goes beyond is
# placed as if no further step came.
MOST_HELD: Final = 20_000
MOST_HELD_AT_FIRST: Final = 5_000
# Of what their arguments say.
MOST_HELD_BYTES: Final = 32 * 1024 * 1024
# While a job runs, spans that no step has come for are held for so long, or for so many steps.
LONGEST_HELD_NS: Final = 120 * NS
STEPS_HELD: Final = 4
# Other threads are written later, and kernels end behind the span that has launched them: the steps
# are known of so many spans.
MOST_KNOWN: Final = 100_000
# Bodies of a loop are taken for steps when so many have come, and no step by its name.
BODIES: Final = 8

NO_ARGUMENT: Final = frozenset({"hhash", "p_idx", "level", "error", "unfinished"})
NO_SPAN: Final = b""


class _Held(NamedTuple):
    """A span as it was recorded."""

    id: int
    parent: int
    tid: int
    label: Label
    role: Role
    start_ns: int
    end_ns: int
    args: Mapping[str, Json]
    chosen: bool
    key: bytes


class _Step:
    """A step of a process: from the wait that leads to it, until it ends."""

    def __init__(self, span: _Held, start_ns: int, trace_id: bytes) -> None:
        self.span = span
        self.start_ns = start_ns
        self.trace_id = trace_id
        self.is_told = False
        self.ids: list[int] = []

    def has(self, span: _Held) -> bool:
        """Return whether a span began in it, and is not around it."""
        return self.start_ns <= span.start_ns < self.span.end_ns and not self.is_within(span)

    def is_within(self, span: _Held) -> bool:
        """Return whether a span is around it."""
        step = self.span
        return span is not step and span.start_ns <= step.start_ns and span.end_ns >= step.end_ns


class Placed(NamedTuple):
    """What a block of a file gave: where the next one begins, and the spans that have a place now.

    `ids`: the numbers of spans that have ended in it.
    """

    whole: Start
    spans: list[Span]
    ids: Integers


class PlacedSpans:
    """The spans of a process, with ids, in traces; the files of its recording are read in order.

    Args:
        trace: the first of them.
        where: which spans are told; None for all. Steps are told that hold one.
        live: what has not found its step after a while is not held any longer.

    Attributes:
        spans: how many have been read.
        left_out: instants, counters, arrows and values of metadata, which are no spans.
        notes: what could not be read.
        again: numbers of spans that were read before, and are passed over if they come again.
        ended: how recording ended, as the closing line of the file says that was read last.
    """

    def __init__(self, trace: Trace, where: Where | None = None, *, live: bool = False) -> None:
        self.spans = 0
        self.left_out = 0
        self.notes: list[str] = []
        self.again: set[int] = set()
        self.ended: str | None = None
        self._where = where
        self._live = live
        self._file = trace
        self._columns = BlockColumns()
        header = trace.said
        # Two recordings of one process, with one run's name, both count from 1.
        self._salt = blake2b(
            repr((header.run, header.host, header.pid, trace.recording[1])).encode(),
            digest_size=16,
        ).digest()
        self._run = _trace_id(header, trace.recording[1])
        self._name = trace.recording[1]
        self._resource = resource_of(header, self._name)
        self._process = self._key(b"process")
        self._threads: dict[int, str] = {}
        self._roles: dict[int, Role] = {}
        self._unnamed = 0
        self._first_ns, self._last_ns = 2**63, 0
        # Those that were open when something was written, by their numbers.
        self._unfinished: dict[int, _Held] = {}
        self._held: list[_Held] = []
        self._held_bytes = 0
        self._bodies: list[_Held] | None = []
        self._by_name = False
        self._steps: list[_Step] = []
        # Of the spans in steps: the step, and the nearest one that is told, itself or above it.
        self._known: dict[int, tuple[_Step, bytes]] = {}
        self._decided_ns = 0
        self._longest_ns = 0
        self._at: tuple[Json, int, int] = (None, 0, -1)
        # Spans outside of steps that wait for the one around them, by its number.
        self._waiting: dict[int, list[_Held]] = {}
        self._waiting_count = 0

    @property
    def resource(self) -> Resource:
        """The process, as far as it is known now: its rank may become known late."""
        return self._resource

    def read(self, trace: Trace, start: Start = BEGIN, *, to_end: bool = True) -> Iterator[Placed]:
        """Yield what a file holds from a place on, block by block; files come in their order.

        `to_end`: a last block that is torn, too, which else is still being written.
        """
        self._file = trace
        blocks = self._columns.blocks(trace, start)
        whole = start
        for block, columns in self._columns.of(blocks):
            if blocks.whole != whole:
                whole = blocks.whole
            elif trace.file.codec == "plain" and blocks.place:
                place = sum(blocks.place)
                whole = Start(place, place, whole.lines + block.lines)
            elif not to_end:
                return
            yield Placed(whole, self._placed_of(block, columns), columns.id[columns.ph == ord("X")])
        if to_end:
            self.notes += blocks.notes

    def end(self) -> list[Span]:
        """Return the spans that have no place yet, and that of the process: nothing follows."""
        told: list[Span] = []
        for span in self._unfinished.values():
            told += self._add(span._replace(end_ns=max(span.end_ns, self._last_ns)))
        for body in self._bodies or ():
            told += self._with_step(body)
        self._bodies = []
        for span in self._taken(lambda _: True):
            told += self._place(span)
        told += self._let_go(lambda _: True)
        self._steps.clear()
        self._known.clear()
        if self._last_ns:
            rank = self._file.said.rank
            called = "process" if rank is None else f"rank {rank}"
            facts = (("dftrace.spans", self.spans),)
            start = min(self._first_ns, self._last_ns)
            told.append(
                Span(self._run, self._process, NO_SPAN, called, start, self._last_ns, facts)
            )
        return told

    def _placed_of(self, block: EventBlock, columns: EventColumns) -> list[Span]:
        is_span = (columns.ph == ord("X")) | (columns.ph == ord("B"))
        is_meta = columns.ph == ord("M")
        for row in np.flatnonzero(is_meta).tolist():
            self._learn(columns, row)
        self.left_out += len(columns) - int(is_span.sum()) - int(is_meta.sum())
        rows = np.flatnonzero(is_span & (columns.start_ns >= 0))
        chosen = np.ones(len(columns), bool)
        if self._where is not None:
            chosen = self._where.rows(columns)
        told: list[Span] = []
        for span in self._read_rows(block, columns, rows, chosen[rows]):
            told += self._add(span)
        if self._live:
            held_ns = max(LONGEST_HELD_NS, STEPS_HELD * self._longest_ns)
            told += self._give_up(self._last_ns - held_ns)
        return told

    def _read_rows(
        self, block: EventBlock, columns: EventColumns, rows: Integers, chosen: Integers
    ) -> Iterator[_Held]:
        labels, codes = columns.labels, columns.label[rows].tolist()
        for code in {*codes} - self._roles.keys():
            source = "kineto" if (copy := self._file.file.copy) and copy.profile else "annotated"
            self._roles[code] = role_of(*labels[code], source)
        values = zip(
            *(np.asarray(column)[rows].tolist() for column in (columns.id, block.parent)),
            columns.tid[rows].tolist(),
            codes,
            columns.start_ns[rows].tolist(),
            columns.dur_ns[rows].tolist(),
            chosen.tolist(),
            columns.all_args(rows),
            strict=True,
        )
        for number, parent, tid, code, start, dur, is_chosen, args in values:
            if number in self.again:
                continue
            self.spans += number not in self._unfinished
            self._first_ns = min(self._first_ns, start)
            end = start + max(dur, 0)
            self._last_ns = max(self._last_ns, end)
            if number:
                key = self._key(number.to_bytes(8, "little"))
            else:
                self._unnamed += 1
                key = self._key(b"row%d" % self._unnamed)
            # Where ids are left out, the greatest number stands for none.
            above = parent if parent not in {number, 2**64 - 1} else 0
            span = _Held(
                *(number, above, tid, labels[code], self._roles[code], start, end, args),
                chosen=is_chosen,
                key=key,
            )
            if dur < 0:
                # It may end yet: what is open at a dump is written, too.
                self._unfinished[number or -self._unnamed] = span
                continue
            self._unfinished.pop(number, None)
            yield span

    def _learn(self, columns: EventColumns, row: int) -> None:
        label = columns.labels[columns.label[row]]
        if label == (OWN_CATEGORY, FOOTER):
            self.ended = str(columns.args(row).get("ended", ""))
        if label.cat == OWN_CATEGORY and label.name == "thread_name":
            name = columns.args(row).get("name")
            if isinstance(name, str):
                self._threads[int(columns.tid[row])] = name
        elif label.name == CUSTOM_METADATA:
            late = late_rank_of({"name": label.name, "ph": "M", "args": columns.args(row)})
            # The rank is told of the process.
            self.left_out += late is None
            if late is not None and self._file.said.rank is None:
                self._file.know_place(self._file.said.placed(*late, None))
                self._resource = resource_of(self._file.said, self._name)

    def _key(self, number: bytes) -> bytes:
        return blake2b(number, key=self._salt, digest_size=8).digest()

    def _add(self, span: _Held) -> list[Span]:
        if span.start_ns < self._decided_ns:
            return self._place(span)
        self._held.append(span)
        self._held_bytes += sum(map(length_of, span.args.values()))
        told: list[Span] = []
        if span.role == "step" and span.end_ns > span.start_ns:
            self._by_name, self._bodies = True, []
            told = self._with_step(span)
        elif span.role == "block" and not self._by_name:
            if self._bodies is None:
                return self._with_step(span)
            self._bodies.append(span)
            if len(self._bodies) >= BODIES:
                bodies, self._bodies = self._bodies, None
                for body in bodies:
                    told += self._with_step(body)
        most = MOST_HELD if self._steps else MOST_HELD_AT_FIRST
        if len(self._held) >= most or self._held_bytes >= MOST_HELD_BYTES:
            told += self._give_up(self._held[len(self._held) // 2].end_ns)
        return told

    def _with_step(self, span: _Held) -> list[Span]:
        """Return what has a place now that a step has ended."""
        if span.start_ns < self._decided_ns:
            return []  # it lies around another one, and is placed with the others
        waits = [one for one in self._held if one.role == "wait" and one.end_ns <= span.start_ns]
        start = max(waits, key=lambda one: one.end_ns).start_ns if waits else span.start_ns
        step = _Step(span, start, self._trace_of(span))
        self._steps.append(step)
        self._know(span, step, span.key)
        self._decided_ns = span.end_ns
        self._longest_ns = max(self._longest_ns, span.end_ns - start)
        due = self._taken(lambda one: one.start_ns < span.end_ns)
        inside = {one.id: one for one in due if one.id and step.has(one)}
        told: list[Span] = []
        for one in due:
            self._resolve(one, step, inside)
        for one in due:
            told += self._place(one)
        self._forget()
        return told

    def _resolve(self, span: _Held, step: _Step, inside: Mapping[int, _Held]) -> None:
        """Note for a span of a step, and those above it, which one that is told is the nearest."""
        path: list[_Held] = []
        one: _Held | None = inside.get(span.id)
        while one is not None and one.id not in self._known:
            # Parents that go round in a circle lead to the step.
            self._know(one, step, one.key if one.chosen else step.span.key)
            if one.chosen:
                break
            path.append(one)
            one = inside.get(one.parent)
        if one is not None:
            _, above = self._known[one.id]
            for each in path:
                self._known[each.id] = step, above

    def _know(self, span: _Held, step: _Step, nearest: bytes) -> None:
        if span.id and span.id not in self._known:
            step.ids.append(span.id)
            self._known[span.id] = step, nearest

    def _forget(self) -> None:
        """Let go of the oldest steps where too many spans are known."""
        while len(self._known) > MOST_KNOWN and len(self._steps) > 1:
            for each in self._steps.pop(0).ids:
                self._known.pop(each, None)

    def _taken(self, which: Callable[[_Held], bool]) -> list[_Held]:
        """Return the held spans that are these, which are held no longer."""
        due = [one for one in self._held if which(one)]
        self._held = [one for one in self._held if not which(one)]
        self._held_bytes -= sum(length_of(value) for one in due for value in one.args.values())
        return due

    def _step_of(self, span: _Held) -> tuple[_Step, bytes] | None:
        """Return the step of a span, and what is told above it there."""
        # Its own, that of what has begun it, or that in which it began.
        own = self._known.get(span.id)
        if own is not None and own[0].span is span:
            return own
        if (known := self._known.get(span.parent)) is not None:
            return known
        at = bisect_right(self._steps, span.start_ns, key=lambda step: step.start_ns) - 1
        step = self._steps[at] if at >= 0 else None
        return (step, step.span.key) if step is not None and step.has(span) else None

    def _place(self, span: _Held) -> list[Span]:
        found = self._step_of(span)
        if found is None:
            return self._outside(span)
        step, above = found
        self._know(span, step, span.key if span.chosen else above)
        if not span.chosen:
            return []
        told: list[Span] = []
        if not step.is_told:
            step.is_told = True
            link = self._run, self._process
            told.append(self._told(step.span, step.trace_id, NO_SPAN, link))
        if span is not step.span:
            told.append(self._told(span, step.trace_id, above))
        return told

    def _outside(self, span: _Held) -> list[Span]:
        """Return what is told of a span that is in no step, and of what waited for it."""
        waited = self._waiting.pop(span.id, []) if span.id else []
        self._waiting_count -= len(waited)
        told = [self._told(one, self._run, span.key) for one in waited if span.chosen]
        below = [span] if span.chosen else waited
        if not span.parent or not below:
            return told + [self._told(one, self._run, self._process) for one in below]
        if self._where is None:
            return [
                *told,
                self._told(span, self._run, self._key(span.parent.to_bytes(8, "little"))),
            ]
        self._waiting.setdefault(span.parent, []).extend(below)
        self._waiting_count += len(below)
        if self._waiting_count >= MOST_HELD:
            told += self._let_go(lambda _: True)
        return told

    def _let_go(self, which: Callable[[_Held], bool]) -> list[Span]:
        """Return spans that wait no longer for the one around them: it is still open."""
        told: list[Span] = []
        waiting, self._waiting, self._waiting_count = self._waiting, {}, 0
        for above, spans in waiting.items():
            told += [self._told(one, self._run, self._process) for one in spans if which(one)]
            left = [one for one in spans if not which(one)]
            if left:
                self._waiting[above] = left
                self._waiting_count += len(left)
        return told

    def _give_up(self, before_ns: int) -> list[Span]:
        """Place the spans that ended before a moment as if no further step came."""
        told: list[Span] = []
        for span in self._taken(lambda one: one.end_ns <= before_ns):
            told += self._place(span)
        return told + self._let_go(lambda one: one.end_ns <= before_ns)

    def _trace_of(self, span: _Held) -> bytes:
        """Return the trace of a step, which it has in all ranks."""
        epoch = span.args.get("epoch")
        number = next(
            (at for name in ("step", "count") if type(at := span.args.get(name)) is int), None
        )
        before, laps, last = self._at
        if number is None:
            number = last + 1
        laps = 0 if epoch != before else laps + (number <= last)
        self._at = epoch, laps, number
        restarts = self._file.said.restarts or 0
        said = repr((self._run, restarts, epoch, laps, number)).encode()
        return blake2b(said, digest_size=16).digest()

    def _rank(self, step: _Held) -> Attributes:
        """Return the rank, by which steps beside each other are told apart where no resource is."""
        rank = self._file.said.rank
        return () if rank is None or "rank" in step.args else (("dftrace.rank", rank),)

    def _told(
        self,
        span: _Held,
        trace_id: bytes,
        parent_id: bytes,
        link: tuple[bytes, bytes] | None = None,
    ) -> Span:
        cat, name = span.label
        called = name if name == cat or name.startswith(f"{cat}.") else f"{cat}.{name}"
        error = span.args.get("error")
        attributes: Attributes = (
            ("dftrace.category", cat),
            ("thread.id", span.tid),
            *(self._rank(span) if link else ()),
            *((("thread.name", known),) if (known := self._threads.get(span.tid)) else ()),
            *(
                ("dftrace.args.category" if key == "category" else f"dftrace.{key}", value)
                for key, value in span.args.items()
                if key not in NO_ARGUMENT and value is not None
            ),
            *((("error.type", error),) if isinstance(error, str) else ()),
            *((("dftrace.unfinished", True),) if span.args.get("unfinished") else ()),
        )
        return Span(
            *(trace_id, span.key, parent_id, called, span.start_ns, span.end_ns, attributes),
            error=error if isinstance(error, str) else None,
            link=link,
        )


def _trace_id(header: HeaderFacts, name: str) -> bytes:
    """Return the trace of a run: its 16 bytes, where that is what it has."""
    try:
        run = bytes.fromhex(header.run or "")
    except ValueError:
        run = b""
    if len(run) == 16 and any(run):
        return run
    return blake2b((header.run or name).encode("utf-8", "replace"), digest_size=16).digest()
