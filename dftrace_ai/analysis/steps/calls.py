"""What collectives and messages tell of themselves: of which group, how large, if waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from dftrace_ai.analysis.reading.argument_members import NO_NUMBER, Wanted
from dftrace_ai.analysis.steps.roles import role_of
from dftrace_ai.analysis.steps.spans import places, values_at
from dftrace_ai.trace_format.header_and_footer import CUSTOM_METADATA

if TYPE_CHECKING:
    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.steps.spans import Spans

# Where nothing says how late an end was seen: after a pause of 5 ms at most, or an eighth of the
# length, and not before the interpreter was free.
LATE_NS: Final = 6_000_000
LATE_SHARE: Final = 8

MOST_NS: Final = 2**50 * 1000

NUMBERS: Final = ("seq", "nth", "bytes", "peer", "root", "tag", "waited_by", "p_idx", "stage_index")
TIMES: Final = ("waited_us", "late_us")
TEXTS: Final = ("group", "until")

PROFILED: Final = frozenset({"kernel", "Kernel", "cpu_op", "Operator", "user_annotation"})
"""Categories in which torch.profiler has collectives and messages."""

SAMPLED: Final = ("memory", "cpu %", "gpu %", "gpu throttled")
"""Words in the names of counters of memory and processors."""


def _is_call(cat: str, name: str) -> bool:
    return role_of(cat, name) in {"comm", "gpu_comm"}


def _is_profiled(cat: str, name: str) -> bool:
    return cat in PROFILED and role_of(cat, name, "kineto") in {"comm", "gpu_comm"}


def _is_of_loop(cat: str, name: str) -> bool:
    return role_of(cat, name) in {"step", "block", "wait"}


def _is_custom(_cat: str, name: str) -> bool:
    return name == CUSTOM_METADATA


def _is_any(_cat: str, _name: str) -> bool:
    return True


def _is_sampled(_cat: str, name: str) -> bool:
    return any(word in name.lower() for word in SAMPLED)


OF_CALLS: Final = Wanted(_is_call, NUMBERS, TIMES, TEXTS)
OF_LOOPS: Final = Wanted(_is_of_loop, ("count", "step", "block", "p_idx"))
OF_GROUPS: Final = Wanted(_is_custom, texts=("name", "value"))
OF_SAMPLES: Final = Wanted(_is_sampled, phase="C")
OF_COUNTERS: Final = Wanted(_is_any, phase="C")
OF_PROFILED: Final = Wanted(
    _is_profiled,
    ("External id", "Seq", "In msg nelems", "Out msg nelems"),
    texts=(
        *("Collective name", "dtype", "Process Group Name", "Process Group Description"),
        "Process Group Ranks",
    ),
)
OF_FILE: Final = (OF_CALLS, OF_LOOPS, OF_GROUPS, OF_SAMPLES, OF_PROFILED)
"""Members of arguments that are taken when a file is read, as `Arguments.members`."""
OF_EVENTS: Final = (*OF_FILE, OF_COUNTERS)
"""The same where the events are kept as well."""


class Calls(NamedTuple):
    """What calls tell of themselves."""

    numbers: dict[str, Integers]  # by the name in `NUMBERS`; `NO_NUMBER` where there is none
    waited_ns: Integers  # how long somebody had waited when it ended; `NO_NUMBER` if untold
    late_ns: Integers  # so much earlier than it was seen the end may have been
    looked: Integers  # it is told how late the end was seen, and no wait
    group: Integers  # the process group, place in `texts`; -1 for none
    until: Integers  # what the end is, place in `texts`; -1 for an end of its own
    texts: tuple[str, ...]

    def ends(self, *until: str) -> Integers:
        """Return a mask of the calls whose end is one of these."""
        # An end of its own, -1, leads to the last.
        asked = np.array([*(text in until for text in self.texts), False])
        return asked[self.until]

    def only(self, which: Integers) -> Calls:
        """Return some of them, by a mask."""
        return self._replace(
            numbers={name: column[which] for name, column in self.numbers.items()},
            waited_ns=self.waited_ns[which],
            late_ns=self.late_ns[which],
            looked=self.looked[which],
            group=self.group[which],
            until=self.until[which],
        )


class CallSpans(NamedTuple):
    """Collectives and messages among the spans of a process, and what they tell of themselves."""

    rows: Integers  # their indices, which rise
    spans: Spans
    told: Calls

    @classmethod
    def of(cls, spans: Spans) -> CallSpans:
        """Return those of a process."""
        kind = np.int32 if len(spans) < 2**31 else np.int64
        rows = np.flatnonzero(spans.has("comm", "gpu_comm")).astype(kind)
        some = spans.at(rows)
        return cls(rows, some, calls_of(some))

    def only(self, which: Integers) -> CallSpans:
        """Return some of them, by a mask; of all nothing is copied."""
        if which.all():
            return self
        return CallSpans(self.rows[which], self.spans.at(which), self.told.only(which))


def calls_of(spans: Spans) -> Calls:
    """Return what spans of collectives and messages tell of themselves."""
    texts: dict[str, int] = {}
    found: dict[str, Integers] = {}
    files = np.flatnonzero(np.bincount(spans.place)).tolist()
    for place in files:
        here = np.flatnonzero(spans.place == place) if len(files) > 1 else slice(None)
        members = spans.columns[place].arguments.members[OF_FILE.index(OF_CALLS)]
        at = places(members.rows, spans.row[here])
        known = [texts.setdefault(text, len(texts)) for text in members.texts]
        of_file = np.array([*known, -1])  # -1 leads to the last
        for name in (*NUMBERS, *TIMES, *TEXTS):
            column = values_at(members.columns[name], at)
            if name in TEXTS:
                column = of_file[column]
            if len(files) == 1:
                found[name] = column.astype(np.int64, copy=False)
                continue
            whole = found.setdefault(name, np.empty(len(spans), np.int64))
            whole[here] = column
    if not files:
        found = {name: np.zeros(0, np.int64) for name in (*NUMBERS, *TIMES, *TEXTS)}
    numbers = {name: found[name] for name in (*NUMBERS, *TIMES)}
    codes = {name: found[name] for name in TEXTS}
    waited, late = (_time(numbers.pop(name)) for name in TIMES)
    guess = LATE_NS + (spans.end_ns - spans.start_ns) // LATE_SHARE
    seen = (codes["group"] >= 0) & (codes["until"] < 0) & (waited <= 0)
    looked = (late != NO_NUMBER) & (waited == NO_NUMBER)
    late = np.where(looked, late, np.where(seen, guess, 0))
    return Calls(numbers, waited, late, looked, codes["group"], codes["until"], tuple(texts))


def _time(ns: Integers) -> Integers:
    """Return times; `NO_NUMBER` for what cannot be one."""
    return np.where((ns < 0) | (ns >= MOST_NS), NO_NUMBER, ns)
