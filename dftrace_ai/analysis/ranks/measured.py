"""What a rank says, by its measured steps: see `partials`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import numpy as np
import orjson

from dftrace_ai import _reader
from dftrace_ai.analysis.ranks.partials import (
    GARBAGE,
    NO_WAIT_NS,
    STEPS_OF_CHUNK,
    UNTIL,
    UNTOLD,
    CallRows,
    CutSteps,
    Group,
    Place,
    RankPartial,
    SilenceRows,
    SpanRows,
    StepRows,
    StepsChunk,
)
from dftrace_ai.analysis.steps.calls import OF_FILE, OF_GROUPS, CallSpans
from dftrace_ai.analysis.steps.detection import is_within
from dftrace_ai.analysis.steps.marks import RESIDENT, levels_of
from dftrace_ai.analysis.steps.profiled import NAMES, profiled_calls
from dftrace_ai.analysis.steps.roles import ROLES
from dftrace_ai.analysis.steps.spans import FAR, places, rising, union, values_at, without
from dftrace_ai.analysis.steps.timeline import (
    PART_CODE,
    PART_TABLE,
    ThreadLine,
    covered_within,
    joined,
    thread_columns,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.steps import BlockedSteps, Process
    from dftrace_ai.analysis.steps.roles import Role
    from dftrace_ai.analysis.steps.spans import Spans

# What a thread does for the training; of spans of other names those that hold nothing of it.
WORK: Final[tuple[Role, ...]] = (
    *("wait", "item", "collate", "io", "data", "transfer"),
    *("forward", "backward", "optimizer", "compute", "checkpoint"),
)

# By codes of roles: 1 what is work, 2 what is other work.
_KINDS: Final = np.array([1 if role in WORK else 2 * (role == "other") for role in ROLES], np.uint8)

# What a header says of a layout, and how many dimensions are believed.
DIMENSION: Final = re.compile(r"\s*([^=,\s]{1,64})\s*=\s*(\d{1,9})\s*", re.ASCII)
MOST_DIMENSIONS: Final = 16

SENT: Final = "send"
# No call, but that somebody waits for one.
WAIT: Final = "wait"

# Of the lines with a key and a value those that tell of groups.
PROCESS_GROUP: Final = "process_group"

# Of more stages nobody has made a pipeline.
MOST_STAGES: Final = 2**20


def partial_of(process: Process, steps: BlockedSteps | None, place: Place) -> RankPartial:
    """Return what a rank says for the whole job; `steps` as of `measure_blocked` or `measure`."""
    peak = int(levels_of(process.samples, *RESIDENT)[1].max(initial=UNTOLD))
    if steps is None:
        return RankPartial(place, (), (), None, {}, 0, peak)
    names = _Names()
    calls, rows, groups, stage = _calls(process, steps, names)
    silences = _silences(process, steps, rows)
    numbers = _numbers_of(steps)
    garbage = process.spans.at(process.spans.called(*GARBAGE.split("/")))
    collected = covered_within(
        *union(garbage.start_ns, garbage.end_ns), steps.start_ns, steps.end_ns
    )
    all_steps = StepRows(
        numbers, steps.start_ns, steps.end_ns, steps.time_ns, steps.parts["comm"], collected
    )
    spans = _spans(steps, silences, names, process.near_ns)
    return RankPartial(
        place,
        names.all,
        groups,
        steps.found_by,
        cut_steps(StepsChunk(all_steps, spans, silences, calls)),
        len(steps),
        peak,
        stage,
        _apart_ns(process, steps),
        UNTOLD if stage == UNTOLD and place.stage is None else _passes(steps),
    )


def _apart_ns(process: Process, steps: BlockedSteps) -> int:
    """Return the time from the first step to the last that was recorded and is in none."""
    first, last = steps.start_ns[:1], steps.end_ns[-1:]
    whole = last - first - covered_within(*process.pauses, first, last)
    return max(int(whole[0] - steps.time_ns.sum()), 0)


def layout_of(told: str | None) -> tuple[tuple[str, int], ...]:
    """Return the rank in each dimension that a layout names: ``dp=0,pp=1``, or a JSON object."""
    if told and told.lstrip().startswith("{"):
        try:
            told = ",".join(f"{name}={rank}" for name, rank in orjson.loads(told).items())
        except orjson.JSONDecodeError:
            return ()
    pairs = [DIMENSION.fullmatch(one) for one in (told or "").split(",")[:MOST_DIMENSIONS]]
    return tuple({pair[1]: int(pair[2]) for pair in pairs if pair}.items())


class _Names:
    """Names of spans and calls, by their numbers."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    @property
    def all(self) -> tuple[str, ...]:
        return tuple(self._numbers)

    def number_of(self, name: str) -> int:
        """Return the number of a name."""
        return self._numbers.setdefault(name, len(self._numbers))

    def numbers_of(self, spans: Spans, *, alone: bool) -> Integers:
        """Return the number of what each span is called, by its name alone or by both."""
        found = np.zeros(len(spans), np.int64)
        for place in np.flatnonzero(np.bincount(spans.place)).tolist():
            columns, here = spans.columns[place], np.flatnonzero(spans.place == place)
            codes = values_at(columns.label, spans.row[here])
            numbers = np.zeros(len(columns.labels), np.int64)
            for code in np.flatnonzero(np.bincount(codes)).tolist():
                cat, name = columns.labels[code]
                numbers[code] = self.number_of(name if alone else f"{cat}/{name}")
            found[here] = numbers.take(codes)
        return found


def _numbers_of(steps: BlockedSteps) -> Integers:
    """Return what steps are called: as their spans tell, else as they were found."""
    roles: tuple[Role, ...] = ("step", "block", "wait")
    for role in roles:
        marks = steps.thread.of(role)
        at = np.searchsorted(marks.start_ns, steps.start_ns)
        if len(marks) and at[-1] < len(marks) and (marks.start_ns[at] < steps.end_ns).all():
            (told,) = marks.integers(at, "step")
            if told[0] >= 0 and (np.diff(told) > 0).all():
                return told
    return steps.number.astype(np.int64)


def _calls(
    process: Process, steps: BlockedSteps, names: _Names
) -> tuple[CallRows, Integers, tuple[Group, ...], int]:
    """Return calls, their rows among the spans, groups that they were made in, and the stage."""
    if process.source == "kineto":
        return *_profiled(process, steps, names), UNTOLD
    found = steps.calls or CallSpans.of(process.spans)
    found = found.only(~found.spans.called(None, WAIT))
    # What the host enqueued is the same call as the interval of the stream beside it.
    on_gpu, told = found.spans.has("gpu_comm"), found.told
    if on_gpu.any():
        twice = np.isin(found.spans.id, told.numbers["p_idx"][on_gpu])
        found = found.only(~(twice & told.ends("enqueued") & ~on_gpu))
    rows, spans, told = found
    group, groups = _groups(process, spans, told.group, told.texts)
    until = np.where(told.until < 0, UNTIL["end"], UNTIL["none"])
    for name in ("waited", "enqueued"):
        until[told.ends(name)] = UNTIL[name]
    # Whoever stood in a wait for it saw the end; of what was sent that is when it was taken.
    stood = told.ends("waited") & (told.waited_ns >= NO_WAIT_NS) & ~spans.called(None, SENT)
    until[stood] = UNTIL["end"]
    numbers = {name: np.maximum(column, UNTOLD) for name, column in told.numbers.items()}
    peer = np.where(numbers["peer"] < 0, numbers["root"], numbers["peer"])
    calls = CallRows(
        step=steps.within(spans.start_ns),
        name=names.numbers_of(spans, alone=True),
        group=group,
        start_ns=spans.start_ns,
        end_ns=spans.end_ns,
        late_ns=told.late_ns,
        until=until,
        track=spans.tid,
        peer=peer,
        **{name: numbers[name] for name in ("seq", "nth", "bytes", "tag")},
    )
    # Of a schedule that is interleaved a rank has several: each its own, and the next so many on.
    stages = numbers["stage_index"]
    stage = int(stages.min(initial=FAR, where=stages >= 0))
    return calls, rows, groups, stage if stage < MOST_STAGES else UNTOLD


def _profiled(
    process: Process, steps: BlockedSteps, names: _Names
) -> tuple[CallRows, Integers, tuple[Group, ...]]:
    """Return the same of a profile."""
    told = profiled_calls(process.spans)
    spans = process.spans.at(told.row)
    numbers = np.array([names.number_of(name) for name in NAMES])
    # Of gloo nobody tells the group: it is that of all, or calls of it contradict each other.
    groups = {Group("", "default_pg", ()): 0}
    numbers_of = np.zeros(len(told.groups) + 1, np.int64)  # -1 leads to the last
    for code in np.unique(told.group[told.group >= 0]).tolist():
        called, about, ranks = told.groups[code]
        # Of many ranks not all are written.
        one = Group(called, about, _ranks_of(_json(ranks)))
        numbers_of[code] = groups.setdefault(one, len(groups))
    untold = np.full(len(spans), UNTOLD)
    until = np.where(told.enqueued, UNTIL["enqueued"], UNTIL["end"])
    calls = CallRows(
        step=steps.within(told.start_ns),
        name=numbers[told.name],
        group=numbers_of[told.group],
        start_ns=told.start_ns,
        end_ns=spans.end_ns,
        late_ns=told.late_ns,
        until=until,
        seq=np.maximum(told.seq, UNTOLD),
        nth=untold,
        bytes=np.maximum(told.bytes, UNTOLD),
        track=spans.tid,
        peer=untold,
        tag=untold,
    )
    return calls, told.row, tuple(groups)


def _json(text: str) -> object:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def _ranks_of(ranks: object) -> tuple[int, ...]:
    """Return the ranks of a list; none for what is none."""
    known = isinstance(ranks, list) and all(type(one) is int and 0 <= one < 2**31 for one in ranks)
    return tuple(sorted(set(ranks))) if isinstance(ranks, list) and known else ()


def _groups(
    process: Process, spans: Spans, group: Integers, texts: tuple[str, ...]
) -> tuple[Integers, tuple[Group, ...]]:
    """Return the group of each call, and the groups."""
    lines = _group_lines(process.spans)
    numbers: dict[Group, int] = {}
    found = np.full(len(spans), UNTOLD)
    order = np.argsort(group, kind="stable")
    codes, begins = np.unique(group[order], return_index=True)
    for code, here in zip(codes.tolist(), np.split(order, begins[1:]), strict=False):
        if code < 0:
            continue
        told = lines.get(texts[code], [((0, 0), Group(texts[code], "", ()))])
        which = [numbers.setdefault(one, len(numbers)) for _, one in told]
        if len(set(which)) == 1:
            found[here] = which[0]
            continue
        # Of one name there were several, one after the other: a call is of that told last.
        at = spans.place[here].astype(np.int64) << 40 | spans.row[here]
        told_at = np.array([place << 40 | row for (place, row), _ in told])
        found[here] = np.array(which)[np.maximum(np.searchsorted(told_at, at) - 1, 0)]
    return found, tuple(numbers)


def _group_lines(spans: Spans) -> Mapping[str, list[tuple[tuple[int, int], Group]]]:
    """Return what lines say of groups, by name, with the place of each line."""
    found: dict[str, list[tuple[tuple[int, int], Group]]] = {}
    for place, file in enumerate(spans.columns):
        members = file.arguments.members[OF_FILE.index(OF_GROUPS)]
        names, values = members.columns["name"].tolist(), members.columns["value"].tolist()
        for row, name, value in zip(members.rows.tolist(), names, values, strict=True):
            if min(name, value) >= 0 and members.texts[name] == PROCESS_GROUP:
                group = _group_of(members.texts[value])
                if group is not None:
                    found.setdefault(group.name, []).append(((place, row), group))
    return found


def _group_of(text: str) -> Group | None:
    said = _json(text)
    if not isinstance(said, dict) or not isinstance(said.get("name"), str):
        return None
    description = said.get("description")
    return Group(
        said["name"],
        description if isinstance(description, str) else "",
        _ranks_of(said.get("ranks")),
    )


def _silences(process: Process, steps: BlockedSteps, rows: Integers) -> SilenceRows:
    """Return when the thread was blocked; `rows` are the calls among the spans of the process."""
    stood, line = steps.standstill, steps.timeline
    comm = line.only(line.part == PART_CODE["comm"])
    # What standstill has of it was told by calls, the rest lies on the thread itself or a GPU.
    rest = without(comm.start_ns, comm.end_ns, stood.start_ns, stood.end_ns)
    owner = comm.span[places(comm.start_ns, rest[0], right=True) - 1]
    on_gpu = process.spans.has("gpu_compute", "gpu_comm", "gpu_transfer")
    thread = np.flatnonzero((process.spans.tid == steps.tid) & ~on_gpu)
    span = np.where(owner >= 0, thread[owner], -1) if len(owner) else owner
    start = np.concatenate([stood.start_ns, rest[0]])
    order = np.argsort(start, kind="stable")
    span = np.concatenate([stood.span, span])[order]
    at = np.minimum(places(rows, span), len(rows) - 1)
    call = np.where(rows[at] == span, at, UNTOLD) if len(rows) else np.full(len(span), UNTOLD)
    start, end = start[order], np.concatenate([stood.end_ns, rest[1]])[order]
    # What lies beneath may have cut a silence.
    begins = np.append(True, (call[1:] != call[:-1]) | (start[1:] > end[:-1]))[: len(call)]
    return SilenceRows(start[begins], end[np.roll(begins, -1)], call[begins])


def _spans(steps: BlockedSteps, silences: SilenceRows, names: _Names, near_ns: int) -> SpanRows:
    """Return work by the innermost span of another part, cut where steps begin and end."""
    spans, start, end = _innermost(steps, near_ns)
    cuts = rising(steps.start_ns, steps.end_ns, *steps.gaps, *steps.evaluation)
    pieces = _reader.cut_pieces(start, end, cuts)
    piece, low, high = (np.frombuffer(one, np.int64) for one in pieces)
    step = steps.within(low)
    step[is_within(steps.gaps, low) | is_within(steps.evaluation, low)] = UNTOLD
    blocked = covered_within(silences.start_ns, silences.end_ns, low, high)
    return SpanRows(step, names.numbers_of(spans, alone=False)[piece], low, high, blocked)


def _innermost(steps: BlockedSteps, near_ns: int) -> tuple[Spans, Integers, Integers]:
    """Return whose each piece of the thread's work is, and where pieces begin and end.

    A span around work of another part, as an optimizer's around the forward and backward of its
    closure, has what is left. What is other work lies in the work around it.
    """
    thread = steps.thread
    found = _reader.outermost_work(thread_columns(thread), _KINDS, PART_TABLE)
    whole, mixed = (np.frombuffer(one, np.int64) for one in found)
    start, end = thread.start_ns[whole], thread.end_ns[whole]
    if not len(mixed):
        return thread.at(whole), start, end
    line = joined(ThreadLine.of(thread.at(mixed), near_ns, ()).lines())
    start, end = np.concatenate([start, line.start_ns]), np.concatenate([end, line.end_ns])
    order = np.argsort(start, kind="stable")
    owner = np.concatenate([whole, mixed[line.span]])[order]
    return thread.at(owner), start[order], end[order]


def _passes(steps: BlockedSteps) -> int:
    """Return how many forward passes the usual step has, but for those made again in a backward."""
    both = steps.thread.of("forward", "backward")
    forward = both.at(_is_outermost(both, np.arange(len(both)))).of("forward")
    step = steps.within(forward.start_ns)
    return int(np.median(np.bincount(step[step != UNTOLD], minlength=len(steps))))


def _is_outermost(spans: Spans, rows: Integers) -> Integers:
    """Return which of some spans lie in none of them that began before."""
    reach = np.maximum.accumulate(np.append(-1, spans.end_ns[rows]))[:-1]
    return spans.start_ns[rows] >= reach


def cut_steps(whole: StepsChunk) -> CutSteps:
    """Cut what a rank did in all steps into chunks."""
    steps, spans, silences, calls = whole
    numbers = steps.number // STEPS_OF_CHUNK
    firsts = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1]))
    times = np.append(steps.start_ns[firsts[1:]], FAR)
    ends = [np.searchsorted(rows.start_ns, times) for rows in (spans, silences, calls)]
    edges = [np.append(0, one) for one in (np.append(firsts[1:], len(numbers)), *ends)]
    first_step, first_call = edges[0][:-1], edges[3][:-1]
    of_silences = np.diff(edges[2])
    call = _from(silences.call, first_call, of_silences)
    inside = (call >= 0) & (call < np.repeat(np.diff(edges[3]), of_silences))
    rows = StepsChunk(
        steps,
        spans._replace(step=_from(spans.step, first_step, np.diff(edges[1]))),
        silences._replace(call=np.where(inside, call, UNTOLD)),
        calls._replace(step=_from(calls.step, first_step, np.diff(edges[3]))),
    )
    return CutSteps(tuple(numbers[firsts].tolist()), rows, tuple(edges))


def _from(row: Integers, first: Integers, counts: Integers) -> Integers:
    """Return rows as they are counted in chunks, of each of which so many follow each other."""
    return np.where(row == UNTOLD, UNTOLD, row - np.repeat(first, counts))
