"""Holding the traces of a victim against what its threads told of themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from conftest import trace_files
from perfetto.agreement import agree
from perfetto.trace_file import Event, Trace, read

from stress.account import Account, Place, Told, read_accounts

# The processor's counter is tied to the system's clock bit by bit, and bent by less than this.
SKEW = 1e-3
ROUNDING_NS = 5

Key = tuple[str, int]


@dataclass
class Verdict:
    """How the traces of one victim compare with its accounts."""

    made: int = 0
    found: int = 0
    wrong: list[str] = field(default_factory=list)

    def holds(self) -> bool:
        """Whether every span is there, and none is wrong."""
        return self.made == self.found and not self.wrong


def judge(place: Place, *, perfetto: bool = False) -> Verdict:
    """Compare the traces with the accounts, span by span.

    `perfetto` asks the Perfetto engine, too.
    """
    verdict = Verdict()
    traces = _read_strictly(place, verdict)
    if perfetto and traces:
        try:
            agree(traces)
        except AssertionError as error:
            verdict.wrong.append(f"Perfetto shows something else: {error}"[:500])
    accounts = {account.name: account for account in read_accounts(place)}
    written = _by_span(traces, accounts, verdict)
    for account in accounts.values():
        _compare(account, written, verdict)
    for left in [*place.spools.iterdir(), *place.out.glob("*.spool-at")]:
        verdict.wrong.append(f"{left.name} is left")
    return verdict


def judge_counts(traces: Sequence[Trace], made: Mapping[str, int]) -> Verdict:
    """Compare traces, which were read strictly, with how many spans of each name were made.

    For programs that keep no account of each; names that are not in `made` are not looked at.
    """
    there: Counter[str] = Counter()
    verdict = Verdict(made=sum(made.values()))
    for trace in traces:
        there += trace.names
        if trace.footer["dropped"]:
            verdict.wrong.append(f"{trace.path.name} tells of {trace.footer['dropped']} dropped")
    verdict.found = sum(min(count, there[name]) for name, count in made.items())
    verdict.wrong += [
        f"{there[name]} times {name}, {count} were made"
        for name, count in made.items()
        if there[name] > count
    ]
    return verdict


def _read_strictly(place: Place, verdict: Verdict) -> list[Trace]:
    from dftrace_ai.analysis.validating import validate_traces

    traces = []
    for path in trace_files(place.out):
        try:
            traces.append(read(path))
        except AssertionError as error:
            verdict.wrong.append(str(error)[:500])
    if traces:
        checked = validate_traces([trace.path for trace in traces], limit=5)
        verdict.wrong += [str(fault) for fault in checked.first_faults(20)]
    return traces


@dataclass(frozen=True)
class Written:
    """A span as it stands in a trace."""

    trace: Trace
    event: Event


def _by_span(
    traces: list[Trace], accounts: dict[str, Account], verdict: Verdict
) -> dict[Key, Written]:
    """Every event of the traces by its place in the accounts; it has to have exactly one there."""
    written: dict[Key, Written] = {}
    for trace in traces:
        for event in trace.of("X", "B", "i", "C", "s", "f"):
            key = event.args.get("diary"), event.args.get("n")
            account = accounts.get(key[0])
            if account is None or key[1] not in range(len(account.spans)):
                verdict.wrong.append(f"nobody made {event.line[:300]}")
            elif key in written:
                verdict.wrong.append(f"twice there: {event.line[:300]}")
            else:
                written[key] = Written(trace, event)
    return written


def _compare(account: Account, written: dict[Key, Written], verdict: Verdict) -> None:
    first: tuple[Told, Event] | None = None
    last_ts = -1
    for told in account.spans:
        allowed = _allowed(told, account)
        there = written.get((account.name, told.number))
        certain = None not in allowed
        verdict.made += certain
        if there is None:
            continue
        verdict.found += certain
        event = there.event
        faults = list(_faults(told, account, there, allowed))
        faults += _wrong_parent(told, account, there, written)
        assert event.ts_ns is not None
        if event.ts_ns <= last_ts:
            faults.append("begins before the one before it")
        last_ts = event.ts_ns
        first = first or (told, event)
        faults += _wrong_start(*first, told, event)
        verdict.wrong += [f"{fault}: {told}, {event.line[:300]}" for fault in faults]


def _allowed(told: Told, account: Account) -> set[str | None]:
    """As what a span may stand in the trace: ended, unfinished, or not at all."""
    if told.before_begin > account.closed:
        return {None}
    allowed: set[str | None] = set()
    ended_in_time = 0 < told.after_end < account.closing
    if ended_in_time or 0 < (told.before_end or told.after_end) < account.closed:
        allowed.add("X")
    if not ended_in_time:
        allowed.add("B")
    if not 0 < told.after_begin < account.closing:
        allowed.add(None)
    return allowed


def _faults(
    told: Told, account: Account, there: Written, allowed: set[str | None]
) -> Iterator[str]:
    event, args = there.event, there.event.args
    if event.ph not in allowed:
        yield f"a line {event.ph!r} where {allowed} would be right"
    if (event.pid, event.tid) != (account.pid, account.tid):
        yield f"not by {account.pid}, {account.tid}"
    own = {"diary", "n", "done", "error", "hhash", "p_idx", "level", "unfinished"}
    if set(args) - own:
        yield f"strange arguments {set(args) - own}"
    if event.ph == "B":
        if args.get("unfinished") is not True:
            yield "does not say that it is unfinished"
        if args.get("done") == told.number:
            yield "has the arguments of its end"
    elif "error" not in args and args.get("done") != told.number:
        yield "has not the arguments of its end"
    if event.dur_ns is not None:
        yield from _wrong_duration(told, event.dur_ns)


def _wrong_duration(told: Told, dur_ns: int) -> Iterator[str]:
    if told.after_begin and told.before_end:
        least = told.before_end - told.after_begin
        if dur_ns < least * (1 - SKEW) - ROUNDING_NS:
            yield f"takes less than {least} ns"
    if told.after_end:
        most = told.after_end - told.before_begin
        if dur_ns > most * (1 + SKEW) + ROUNDING_NS:
            yield f"takes more than {most} ns"


def _wrong_start(first: Told, first_event: Event, told: Told, event: Event) -> Iterator[str]:
    """The beginnings of a thread's spans are as far apart as the thread says."""
    assert event.ts_ns is not None
    assert first_event.ts_ns is not None
    apart = event.ts_ns - first_event.ts_ns
    least = told.before_begin - (first.after_begin or first.before_begin)
    most = (told.after_begin or told.after_end or told.before_begin) - first.before_begin
    if told.after_begin and not least * (1 - SKEW) - ROUNDING_NS <= apart:
        yield f"begins {apart} ns behind the first, at least {least} would be right"
    if told.after_begin and not apart <= most * (1 + SKEW) + ROUNDING_NS:
        yield f"begins {apart} ns behind the first, at most {most} would be right"


def _wrong_parent(
    told: Told, account: Account, there: Written, written: dict[Key, Written]
) -> Iterator[str]:
    if told.parent == -1:
        return
    event = there.event
    if told.parent is None:
        if event.p_idx != 0:
            yield "has a parent"
        return
    above = written.get((account.name, told.parent))
    if above is None or above.trace is not there.trace or above.event.id != event.p_idx:
        yield f"is not inside of span {told.parent}"
