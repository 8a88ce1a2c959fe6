"""Who holds up a job, by the dumps of its ranks: group by group, then by who waits for whom.

Within a group calls are matched by their numbers. Ranks that called something else are the cause
by themselves. Otherwise a call that some have not come to, or have not started, says who waits for
whom there; over all groups the cause is who is waited for and waits for nobody, or a circle.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from dftrace_ai.live.dumps.flight_dumps import MOST_RANKS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from dftrace_ai.live.dumps.flight_dumps import Call, Dump, Dumps

# Ranks of a healthy job are a moment apart when their dumps are written.
PATIENCE_NS: Final = 1_000_000_000

# The name that torch gives to the group of all ranks.
_WORLD: Final = "default_pg"

Kind: TypeAlias = Literal[
    "none",
    "mismatched collective",
    "mismatched size",
    "mismatched dtype",
    "missing",
    "never started",
    "no dump",
    "wrong order",
    "not done everywhere",
    "under way",
]


@dataclass(frozen=True)
class Problem:
    """A call of a process group in which ranks do not go together.

    Attributes:
        kind: what is wrong. ``mismatched ...``: the ranks called another operation, with
            other sizes or types. ``missing``: they have not called it. ``never started``: they
            have, but what is before it on their stream has not ended. ``no dump``: all
            others are in it. ``wrong order``: ranks wait for each other in several
            groups. ``not done everywhere``, ``under way``: it has ended on other ranks, on none.
        ranks: who is the cause; all that differ where nobody is in the majority.
        group, description: the name of the process group, and what the program calls it.
        group_ranks: who is in it.
        guessed: nobody says who is in it: those are told that have called something of it, of the
            group of all ranks those up to the highest that left a dump.
        seq: which collective of the group it is; 0 for messages.
        op: the operation of most.
        waiting: who is in the call and not done.
        waiting_s: the longest time that one of them is, by the time of its file; None where
            that is unknown.
        where: line of the program from which one of them called it; empty where unknown.
        found: what each of the named ranks called, or in what it stands.
        usual: what the most have called; empty where there is no most.
    """

    kind: Kind
    ranks: tuple[int, ...] = ()
    group: str = ""
    description: str = ""
    group_ranks: tuple[int, ...] = ()
    guessed: bool = False
    seq: int = 0
    op: str = ""
    waiting: tuple[int, ...] = ()
    waiting_s: float | None = None
    where: str = ""
    found: dict[int, str] = field(default_factory=dict)
    usual: str = ""


@dataclass(frozen=True)
class Verdict:
    """What the dumps of a job say.

    Attributes:
        cause: what holds the job up; of kind ``none`` where nothing does.
        problems: what was found in each group.
        no_dump: ranks of these groups without a dump.
        too_old: ranks whose dump was written before others came to the call that they are in, so
            that it does not tell whether they have come, too.
        guessed: what the groups are called of which nobody says who is in them.
    """

    cause: Problem
    problems: tuple[Problem, ...]
    no_dump: tuple[int, ...]
    too_old: tuple[int, ...] = ()
    guessed: tuple[str, ...] = ()


def judge(
    dumps: Dumps,
    groups: Mapping[str, Iterable[frozenset[int]]] | None = None,
    idle_s: float = 60.0,
    world_size: int | None = None,
) -> Verdict:
    """Say what holds up a job.

    Args:
        dumps: those of its ranks.
        groups: the ranks of process groups by their names, as the job's traces tell; gloo's
            dumps do not.
        idle_s: seconds from which on a call is no longer slow that all ranks are in.
        world_size: number of ranks of the job; None where unknown.

    Returns:
        The cause, and what was found in each group.

    Example::

        found = judge(read_dumps(["fr/"]))
        print(found.cause.kind, found.cause.ranks)
    """
    by_rank = dumps.by_rank
    groups_of_job = _groups(by_rank, groups or {}, world_size)
    problems: list[Problem] = []
    looked = _Looked(by_rank, idle_s, defaultdict(set), set())
    places = _Places(groups_of_job)
    for group in groups_of_job:
        problems += _of_collectives(group, looked)
        problems += _of_messages(group, looked, places)
    absent = {rank for group in groups_of_job for rank in group.ranks} - set(by_rank)
    cause = _cause(problems, looked.waits, by_rank, idle_s)
    guessed = dict.fromkeys(group.called for group in groups_of_job if group.guessed)
    old = tuple(sorted(looked.too_old))
    return Verdict(cause, tuple(problems), tuple(sorted(absent)), old, tuple(guessed))


class _Looked(NamedTuple):
    """The dumps, and what comes of looking at group after group."""

    by_rank: Mapping[int, Dump]
    idle_s: float
    waits: dict[int, set[int]]  # for whom each rank waits
    too_old: set[int]


class _Group(NamedTuple):
    name: str
    ranks: tuple[int, ...]
    guessed: bool
    calls: dict[int, list[Call]]  # of each of its ranks that have a dump

    @property
    def called(self) -> str:
        """What the program calls it, or else its name."""
        descriptions = (call.description for calls in self.calls.values() for call in calls)
        return next(filter(None, descriptions), f"group {self.name}")

    def problem(self, kind: Kind, ranks: Iterable[int], call: Call) -> Problem:
        return Problem(
            kind,
            tuple(sorted(ranks)),
            group=self.name,
            description=call.description,
            group_ranks=self.ranks,
            guessed=self.guessed,
            seq=0 if call.message else call.seq,
            op=call.op,
            where=call.where,
        )


def _groups(
    by_rank: Mapping[int, Dump],
    known: Mapping[str, Iterable[frozenset[int]]],
    world_size: int | None,
) -> list[_Group]:
    """Groups are those of one name and with the same ranks: each part of a split has the same."""
    told: dict[str, list[frozenset[int]]] = defaultdict(list)
    for dump in by_rank.values():
        for name, ranks in dump.ranks.items():
            if ranks not in told[name]:
                told[name].append(ranks)
    for name, sets in known.items():
        told[name] += sets
    least = max(by_rank, default=-1) + 1
    is_size_known = world_size is not None and least <= world_size <= MOST_RANKS
    world = frozenset(range(world_size if is_size_known and world_size else least))
    guessed: set[tuple[str, frozenset[int] | None]] = set()
    found: dict[tuple[str, frozenset[int] | None], dict[int, list[Call]]] = {}
    for rank, dump in by_rank.items():
        mine: dict[str, frozenset[int] | None] = {}
        for call in dump.calls:
            if call.group not in mine:
                others = (one for one in told[call.group] if rank in one)
                known_of = dump.ranks.get(call.group) or next(others, None)
                is_world = known_of is None and call.description == _WORLD
                mine[call.group] = world if is_world else known_of
                if known_of is None and not (is_world and is_size_known):
                    guessed.add((call.group, mine[call.group]))
            found.setdefault((call.group, mine[call.group]), {}).setdefault(rank, []).append(call)
    groups = []
    for (name, members), calls in found.items():
        inside = tuple(sorted(calls if members is None else members))
        # A rank that has called nothing of a group is missing there.
        calls |= {rank: [] for rank in inside if rank in by_rank and rank not in calls}
        groups.append(_Group(name, inside, (name, members) in guessed, calls))
    return groups


def _of_collectives(group: _Group, looked: _Looked) -> list[Problem]:
    by_rank = looked.by_rank
    by_seq: dict[int, dict[int, Call]] = defaultdict(dict)
    newest_done: dict[int, int] = {}
    for rank, calls in group.calls.items():
        for call in calls:
            if not call.message:
                by_seq[call.seq].setdefault(rank, call)
                if call.state != "scheduled":
                    newest_done[rank] = max(call.seq, newest_done.get(rank, -1))
    # Before it some have no call since their ring has overwritten it.
    first = max((by_rank[rank].first.get(group.name, 0) for rank in group.calls), default=0)
    found: Problem | None = None
    passed: Problem | None = None
    for seq in sorted(seq for seq in by_seq if seq >= first):
        here = by_seq[seq]
        if different := _different(group, here):
            return [different]
        if found is not None:
            continue
        # gloo tells late that a call has ended; one with a later one behind it has.
        open_here = {
            rank: call
            for rank, call in here.items()
            if call.state != "done" and newest_done.get(rank, -1) <= seq
        }
        missing = group.calls.keys() - here.keys()
        if open_here and not any(
            _had_time(by_rank[rank], call.created_ns) for rank, call in open_here.items()
        ):
            continue
        came_ns = min(call.created_ns for call in here.values())
        old = {rank for rank in missing if not _had_time(by_rank[rank], came_ns)}
        if old and open_here:
            looked.too_old.update(old)
        if old and old == missing:
            found = _of_old_dumps(group, old, open_here, looked)
            continue
        missing -= old
        if missing and not open_here:
            # They need not come in time for a broadcast; or all others have failed.
            failed = all(not call.completed for call in here.values())
            if passed is None and failed:
                passed = group.problem("missing", missing, next(iter(here.values())))
            continue
        # gloo tells it late, and of none that it ended well.
        is_late = len(open_here) < len(here) and not any(call.completed for call in here.values())
        if missing or (open_here and not is_late):
            found = _of_call(group, here, open_here, missing, looked)
            found = _timed(found, open_here, by_rank)
    return [one for one in (found or passed,) if one is not None]


def _of_call(
    group: _Group,
    here: Mapping[int, Call],
    open_here: Mapping[int, Call],
    missing: set[int],
    looked: _Looked,
) -> Problem:
    """What is wrong with a call that some are in, and who waits for whom there."""
    head = next(iter(open_here.values()))
    if missing:
        for rank in open_here:
            looked.waits[rank] |= missing
        return group.problem("missing", missing, head)
    started_ns = [call.started_ns for call in open_here.values() if call.state == "started"]
    scheduled = {
        rank
        for rank, call in open_here.items()
        if call.state == "scheduled" and _had_time(looked.by_rank[rank], min(started_ns, default=0))
    }
    if len(open_here) == len(here) and started_ns and scheduled:
        for rank in open_here.keys() - scheduled:
            looked.waits[rank] |= scheduled
        return group.problem("never started", scheduled, head)
    absent = set(group.ranks) - group.calls.keys()
    if absent and len(open_here) == len(here):
        for rank in open_here:
            looked.waits[rank] |= absent
        return group.problem("no dump", absent, head)
    kind: Kind = "not done everywhere" if len(open_here) < len(here) else "under way"
    return group.problem(kind, open_here, head)


def _of_old_dumps(
    group: _Group, old: set[int], open_here: Mapping[int, Call], looked: _Looked
) -> Problem | None:
    """What is wrong with a call that others are in for long, and of some that is not known."""
    if not open_here:
        return None
    for rank in open_here:
        looked.waits[rank] |= old
    problem = group.problem("no dump", old, next(iter(open_here.values())))
    problem = _timed(problem, open_here, looked.by_rank)
    return problem if is_long(problem, looked.idle_s) else None


def _had_time(dump: Dump, since_ns: int) -> bool:
    """Whether a dump was written well after a moment; it is taken so where either is unknown."""
    return not dump.written_ns or not since_ns or dump.written_ns >= since_ns + PATIENCE_NS


def _timed(problem: Problem, calls: Mapping[int, Call], by_rank: Mapping[int, Dump]) -> Problem:
    """A problem with those that wait, and how long they do."""
    waiting = calls.keys() - set(problem.ranks) or calls.keys()
    ages = [
        (by_rank[rank].written_ns - calls[rank].created_ns) / 1e9
        for rank in waiting
        if calls[rank].created_ns and by_rank[rank].written_ns
    ]
    return replace(problem, waiting=tuple(sorted(waiting)), waiting_s=max(ages) if ages else None)


# Every rank may give them other sizes.
_UNEVEN: Final = frozenset(
    {
        *("all_to_all", "all_to_all_single", "all_to_all_v_single", "alltoall", "alltoall_base"),
        *("all_gather_v", "reduce_scatter_v", "gather", "scatter", "split", "new_window"),
    }
)


def _op(call: Call) -> str:
    if not call.parts:
        return call.op
    counts = Counter(part.op for part in call.parts)
    return f"{call.op} of {', '.join(f'{n} {op}' for op, n in sorted(counts.items()))}"


def _sizes(call: Call) -> str:
    parts = call.parts or (call,)
    if any(part.op in _UNEVEN for part in parts):
        return ""
    return ", ".join(f"{part.inputs.text} to {part.outputs.text}" for part in parts)


def _dtypes(call: Call) -> str:
    return ", ".join(sorted({name for part in call.parts or (call,) for name in part.dtypes}))


_COMPARED: Final[tuple[tuple[Kind, Callable[[Call], str]], ...]] = (
    ("mismatched collective", _op),
    ("mismatched size", _sizes),
    ("mismatched dtype", _dtypes),
)


def _different(group: _Group, here: Mapping[int, Call]) -> Problem | None:
    """The first thing in which calls of one number are not alike."""
    for kind, told_by in _COMPARED:
        told = {rank: text for rank, call in here.items() if (text := told_by(call))}
        counts = Counter(told.values()).most_common(2)
        if len(counts) < 2:
            continue
        usual = counts[0][0] if counts[0][1] > counts[1][1] else ""
        odd = [rank for rank, text in told.items() if text != usual]
        if not usual and kind == "mismatched size":
            # Who gathers what does not fit together is wrong, however many others there are.
            unfit = [rank for rank in odd if not _fits(here[rank], len(group.ranks))]
            odd = unfit or odd
        head = next(here[rank] for rank in told if told[rank] == (usual or counts[0][0]))
        problem = group.problem(kind, odd, head)
        ages = [one for one in here.items() if one[0] not in odd] or list(here.items())
        return replace(
            problem,
            waiting=tuple(sorted(rank for rank, call in ages if call.state != "done")),
            found={rank: told[rank] for rank in sorted(odd)},
            usual=usual,
        )
    return None


def _fits(call: Call, size: int) -> bool:
    """Whether what a rank gathers or scatters is of a size with the group."""
    taken, given = call.inputs.elements, call.outputs.elements
    if "gather" in call.op:
        return given == taken * size
    return taken == given * size if "reduce_scatter" in call.op else True


class _Places:
    """Where collectives stand in the dumps of ranks, to know which of their messages are one."""

    def __init__(self, groups: Iterable[_Group]) -> None:
        self._records: dict[int, dict[tuple[int, int], int]] = defaultdict(dict)
        for number, group in enumerate(groups):
            for rank, calls in group.calls.items():
                mine = self._records[rank]
                mine |= {(number, call.seq): call.record for call in calls if not call.message}

    def together(
        self, pair: tuple[int, int], sides: tuple[list[Call], list[Call]]
    ) -> tuple[list[Call], list[Call]]:
        """Return the messages of two ranks that begin with the same one.

        Rings have overwritten others on each side: they are those behind the first collective
        that both dumps have. Without any only those that are open.
        """
        mine, theirs = (self._records.get(rank, {}) for rank in pair)
        shared = mine.keys() & theirs
        if not shared:
            sent, received = ([one for one in side if one.state != "done"] for side in sides)
            return sent, received
        first = min(shared, key=mine.__getitem__)
        return (
            [one for one in sides[0] if one.record > mine[first]],
            [one for one in sides[1] if one.record > theirs[first]],
        )


def _of_messages(group: _Group, looked: _Looked, places: _Places) -> list[Problem]:
    """What is wrong with messages: one side has come, the other has not, or not with the same."""
    by_rank = looked.by_rank
    found: dict[tuple[int, int], tuple[list[Call], list[Call]]] = defaultdict(lambda: ([], []))
    for rank, calls in group.calls.items():
        for call in calls:
            for part in call.parts or (call,):
                if part.peer is None or max(part.peer) >= len(group.ranks):
                    continue
                pair = group.ranks[part.peer[0]], group.ranks[part.peer[1]]
                if rank == pair[part.op == "recv"]:
                    found[pair][part.op == "recv"].append(part)
    problems = []
    for pair, sides in sorted(found.items()):
        is_cut = any(by_rank[rank].wrapped for rank in pair if rank in by_rank)
        whole = places.together(pair, sides) if is_cut else sides
        problem = _of_pair(group, pair, whole, looked)
        problems += [problem] if problem else []
    return problems


def _of_pair(
    group: _Group,
    pair: tuple[int, int],
    sides: tuple[list[Call], list[Call]],
    looked: _Looked,
) -> Problem | None:
    by_rank = looked.by_rank
    for sent, received in zip(*sides, strict=False):
        if "done" in (sent.state, received.state):
            continue
        if problem := _unlike(group, pair, sent, received):
            return problem
        if sent.state != received.state:
            started, late = pair if sent.state == "started" else pair[::-1]
            call = sent if started == pair[0] else received
            if not _had_time(by_rank[late], call.started_ns):
                continue
            looked.waits[started].add(late)
            problem = group.problem("never started", [late], call)
            return _timed(problem, {started: call}, by_rank)
    for side, op, waiting, late in ((0, "recv", *pair), (1, "send", *pair[::-1])):
        lone = [one for one in sides[side][len(sides[1 - side]) :] if one.state != "done"]
        if not lone:
            continue
        call = lone[0]
        if not _had_time(by_rank[waiting], call.created_ns):
            continue
        if late in by_rank and not _had_time(by_rank[late], call.created_ns):
            looked.too_old.add(late)
            looked.waits[waiting].add(late)
            continue
        looked.waits[waiting].add(late)
        problem = group.problem("missing" if late in by_rank else "no dump", [late], call)
        return _timed(replace(problem, op=op), {waiting: call}, by_rank)
    return None


def _unlike(group: _Group, pair: tuple[int, int], sent: Call, received: Call) -> Problem | None:
    compared: tuple[tuple[Kind, str, str], ...] = (
        ("mismatched size", sent.inputs.text, received.outputs.text),
        ("mismatched dtype", _dtypes(sent), _dtypes(received)),
    )
    for kind, one, other in compared:
        if one and other and one != other:
            problem = group.problem(kind, pair, sent)
            return replace(problem, found={pair[0]: one, pair[1]: other})
    return None


# Where nobody waits for anybody the first of these that was found is told.
_OTHERWISE: Final[tuple[Kind, ...]] = ("missing", "not done everywhere", "under way")


def _cause(
    problems: Iterable[Problem],
    waits: Mapping[int, set[int]],
    by_rank: Mapping[int, Dump],
    idle_s: float,
) -> Problem:
    """The problem that the others follow from."""
    hard = [one for one in problems if one.kind.startswith("mismatched")]
    if hard:
        return hard[0]
    waited_for = set().union(*waits.values()) if waits else set()
    roots = waited_for - {rank for rank, others in waits.items() if others}
    # Of one that left a dump is known that it does not wait.
    named = roots & by_rank.keys() or roots
    if named:
        theirs = [one for one in problems if named & set(one.ranks)]
        # They are none only where dumps are too old to tell.
        return _of_roots(named, theirs, by_rank) if theirs else Problem("none")
    circle = sorted(rank for rank in waits if rank in _reached(rank, waits))
    if circle:
        return _of_circle(circle, problems, by_rank)
    for kind in _OTHERWISE:
        for one in problems:
            if one.kind == kind and (kind == "missing" or is_long(one, idle_s)):
                return _standing(one, by_rank)
    return Problem("none")


def is_long(problem: Problem, idle_s: float) -> bool:
    """Whether ranks have been in a call for so long, or it is not known for how long."""
    return problem.waiting_s is None or problem.waiting_s >= idle_s


def _of_roots(named: set[int], problems: list[Problem], by_rank: Mapping[int, Dump]) -> Problem:
    started = [one for one in problems if one.kind == "never started"]
    waited = [one for one in problems if one.kind in ("missing", "no dump")]
    # That for which most wait tells most.
    chosen = max(started or waited, key=lambda one: len(one.waiting))
    told = {rank for one in problems for rank in one.ranks}
    return _standing(replace(chosen, ranks=tuple(sorted(named & told))), by_rank)


def _standing(problem: Problem, by_rank: Mapping[int, Dump]) -> Problem:
    """A problem with what the named ranks are in."""
    found = {
        rank: _in_words(by_rank[rank].calls, problem.group)
        for rank in problem.ranks
        if rank in by_rank
    }
    return replace(problem, found=found)


def _in_words(calls: Iterable[Call], group: str) -> str:
    standing = [call for call in calls if call.state != "done"]
    if not standing:
        return "in no collective"
    elsewhere = [call for call in standing if call.group != group] or standing
    # Of gloo's none is started: that of the last is the least likely to have ended.
    started = (call for call in elsewhere if call.state == "started")
    return f"in {_call_in_words(next(started, elsewhere[-1]))}"


def _call_in_words(call: Call) -> str:
    number = "" if call.message else f" {call.seq}"
    return f"{call.op}{number} of {call.description or f'group {call.group}'}"


def _reached(rank: int, waits: Mapping[int, set[int]]) -> set[int]:
    """Whom a rank waits for, and whom these do."""
    met: set[int] = set()
    todo = set(waits.get(rank, ()))
    while todo:
        one = todo.pop()
        if one not in met:
            met.add(one)
            todo |= waits.get(one, set())
    return met


def _of_circle(
    circle: list[int], problems: Iterable[Problem], by_rank: Mapping[int, Dump]
) -> Problem:
    """Ranks that wait for each other; those that stand where the fewest do are the odd ones."""
    places: dict[int, Problem] = {}
    for problem in problems:
        for rank in problem.waiting:
            if rank in circle:
                places.setdefault(rank, problem)
    counts = Counter((one.group, one.seq) for one in places.values())
    fewest = counts.most_common()[::-1]
    odd = circle
    if len(fewest) > 1 and fewest[0][1] < fewest[1][1]:
        odd = [rank for rank, one in places.items() if (one.group, one.seq) == fewest[0][0]]
    chosen = places[odd[0]]
    found = {rank: _in_words(by_rank[rank].calls, "") for rank in circle if rank in by_rank}
    return replace(
        chosen,
        kind="wrong order",
        ranks=tuple(sorted(odd)),
        waiting=tuple(rank for rank in circle if rank not in odd),
        found=found,
    )
