"""Collectives and messages in files of torch.profiler, by what they tell of themselves.

On a GPU a kernel is a call, which waits inside for the others. On the host it is what a thread of
gloo does, launched by an operation ``c10d::``. Group, bytes and number are told by the kernel, or
by ``record_param_comms``, which has the external number of what it launched.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from dftrace_ai.analysis.reading.argument_members import NO_NUMBER
from dftrace_ai.analysis.steps.calls import LATE_NS, OF_FILE, OF_PROFILED
from dftrace_ai.analysis.steps.spans import places

if TYPE_CHECKING:
    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.steps.spans import Spans

NO_CALL: Final = -1
RECORDED: Final = "record_param_comms"
# The letters of each call in the names that torch and NCCL have for it, the longer ones first.
NAMED: Final = (
    ("sendrecv", ""),  # either
    ("allreduce", "all_reduce"),
    ("allgather", "all_gather"),
    ("reducescatter", "reduce_scatter"),
    ("alltoall", "all_to_all"),
    ("broadcast", "bcast"),
    ("barrier", "barrier"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("reduce", "reduce"),
    ("recv", "receive"),
    ("send", "send"),
)
NAMES: Final = tuple(name for _, name in NAMED if name)
BYTES: Final = {
    **dict.fromkeys(("byte", "char", "bool", "int8", "uint8"), 1),
    **dict.fromkeys(("half", "bfloat16", "short", "float16", "int16"), 2),
    **dict.fromkeys(("double", "long", "float64", "int64", "complexfloat"), 8),
    **dict.fromkeys(("float", "int", "float32", "int32"), 4),
}


class ToldGroup(NamedTuple):
    """A process group as a profile tells it."""

    name: str
    description: str
    ranks: str  # as it is written: ``[0, 1]``; empty where nobody tells


class ProfiledCalls(NamedTuple):
    """Collectives and messages of a profile."""

    row: Integers  # of the span that lasts as long, in order
    name: Integers  # in `NAMES`
    start_ns: Integers  # when each was called
    late_ns: Integers  # so much earlier than it was seen its end may have been
    on_gpu: Integers
    enqueued: Integers  # only that it was launched is seen
    group: Integers  # in `groups`; -1 for none
    seq: Integers  # `NO_NUMBER` for none, and so below
    bytes: Integers
    groups: tuple[ToldGroup, ...]


class _Told(NamedTuple):
    """What spans tell in their arguments, in their order."""

    external: Integers
    seq: Integers
    bytes: Integers
    name: Integers  # in `NAMES`; `NO_CALL` for none
    group: Integers  # in the groups; -1 for none

    def at(self, rows: Integers) -> _Told:
        return _Told(*(column[rows] for column in self))


def call_name(text: str) -> int:
    """Return which of `NAMES` a name of torch's or NCCL's is; `NO_CALL` for none of them."""
    letters = re.sub(r"[^a-z]", "", text.lower())
    found = next((name for key, name in NAMED if key in letters), "")
    return NAMES.index(found) if found else NO_CALL


def profiled_calls(spans: Spans) -> ProfiledCalls:
    """Return the calls among the spans of a profile."""
    groups: dict[ToldGroup, int] = {}
    on_gpu = spans.has("gpu_comm")
    rows = np.flatnonzero(spans.has("comm") | on_gpu)
    some = spans.at(rows)
    labels = _labels(some)
    told = _told(some, groups)
    named = np.array([call_name(text) for text in labels.texts] or [NO_CALL])[labels.of]
    recorded, gloo, launched = (labels.begin(begin) for begin in (RECORDED, "gloo:", "c10d::"))
    kernel = on_gpu[rows]
    lasting = kernel | gloo
    if not lasting.any():
        lasting = recorded
    at = np.flatnonzero(lasting)
    mine = told.at(at)
    records = np.flatnonzero(recorded)
    own = np.where(mine.name != NO_CALL, mine.name, named[at])
    by = _pairs(some, told, records, at, own, kernel[at])
    from_record = told.at(np.maximum(by, 0))
    lacks = (by >= 0) & (mine.name == NO_CALL)
    name, group, seq, size = (
        np.where(lacks, other, ours)
        for other, ours in zip(
            (from_record.name, from_record.group, from_record.seq, from_record.bytes),
            (own, mine.group, mine.seq, mine.bytes),
            strict=True,
        )
    )
    start = some.start_ns[at].copy()
    threads = np.flatnonzero(gloo[at])
    start[threads] = _launches(some, np.flatnonzero(launched), named, at[threads], name[threads])
    known = name != NO_CALL
    return ProfiledCalls(
        rows[at][known],
        name[known],
        start[known],
        np.where(gloo[at][known], LATE_NS, 0),
        kernel[at][known],
        recorded[at][known],
        group[known],
        seq[known],
        size[known],
        tuple(groups),
    )


class _Labels(NamedTuple):
    """Names of spans."""

    of: Integers  # of each span, in `texts`
    texts: tuple[str, ...]

    def begin(self, beginning: str) -> Integers:
        """Return a mask of those whose name begins so."""
        codes = [at for at, text in enumerate(self.texts) if text.startswith(beginning)]
        return np.isin(self.of, codes)


def begin_with(spans: Spans, beginning: str) -> Integers:
    """Return a mask of the spans whose name begins so."""
    return _labels(spans).begin(beginning)


def _labels(spans: Spans) -> _Labels:
    texts: dict[str, int] = {}
    of = np.zeros(len(spans), np.int64)
    for place in np.flatnonzero(np.bincount(spans.place)).tolist():
        columns, here = spans.columns[place], np.flatnonzero(spans.place == place)
        codes, which = np.unique(columns.label[spans.row[here]], return_inverse=True)
        names = [columns.labels[code].name for code in codes.tolist()]
        of[here] = np.array([texts.setdefault(text, len(texts)) for text in names])[which]
    return _Labels(of, tuple(texts))


def _told(spans: Spans, groups: dict[ToldGroup, int]) -> _Told:
    count = len(spans)
    found = _Told(*(np.full(count, NO_NUMBER) for _ in _Told._fields))
    found.name[:] = NO_CALL
    found.group[:] = -1
    for place in np.flatnonzero(np.bincount(spans.place)).tolist():
        here = np.flatnonzero(spans.place == place)
        members = spans.columns[place].arguments.members[OF_FILE.index(OF_PROFILED)]
        at = places(members.rows, spans.row[here])
        columns = {name: column[at] for name, column in members.columns.items()}
        texts = (*members.texts, "")  # -1 leads to the last

        def text(name: str, columns: dict[str, Integers] = columns) -> Integers:
            return columns[name]

        found.external[here] = columns["External id"]
        found.seq[here] = columns["Seq"]
        names = np.array([call_name(one) for one in texts])
        found.name[here] = names[text("Collective name")]
        sizes = np.array([BYTES.get(one.lower(), 0) for one in texts])[text("dtype")]
        elements = np.maximum(columns["In msg nelems"], columns["Out msg nelems"])
        found.bytes[here] = np.where((elements >= 0) & (sizes > 0), elements * sizes, NO_NUMBER)
        who = np.stack(
            [text(f"Process Group {one}") for one in ("Name", "Description", "Ranks")], axis=1
        )
        unlike, which = np.unique(who, axis=0, return_inverse=True)
        codes = [
            groups.setdefault(ToldGroup(*(texts[code] for code in one)), len(groups))
            if texts[one[0]]
            else -1
            for one in unlike.tolist()
        ]
        found.group[here] = np.array(codes, np.int64)[which.reshape(-1)]
    return found


def _pairs(
    spans: Spans, told: _Told, records: Integers, at: Integers, name: Integers, kernel: Integers
) -> Integers:
    """Return which record tells of each call; -1 for none."""
    by = np.full(len(at), -1)
    if not len(records):
        return by
    # A kernel has the external number of what launched it.
    known = records[np.argsort(told.external[records], kind="stable")]
    near = np.minimum(np.searchsorted(told.external[known], told.external[at]), len(known) - 1)
    same = kernel & (told.external[at] != NO_NUMBER)
    by = np.where(same & (told.external[known[near]] == told.external[at]), known[near], by)
    # What a thread does has another one: it is the k-th of its name.
    for one in np.unique(name[~kernel]).tolist():
        calls = np.flatnonzero(~kernel & (name == one))
        of_name = records[told.name[records] == one]
        if (
            len(of_name) == len(calls)
            and (spans.start_ns[of_name] <= spans.end_ns[at[calls]]).all()
        ):
            by[calls] = of_name
    return by


def _launches(
    spans: Spans, launches: Integers, named: Integers, at: Integers, name: Integers
) -> Integers:
    """Return when calls of threads were launched: the k-th of a name by the k-th."""
    start = spans.start_ns[at].copy()
    for one in np.unique(name).tolist():
        calls, ours = np.flatnonzero(name == one), launches[named[launches] == one]
        begun = spans.start_ns[ours]
        if len(ours) == len(calls) and (begun <= start[calls]).all():
            start[calls] = begun
    return np.maximum.accumulate(start)
