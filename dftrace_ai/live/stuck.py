"""Ranks that wait for too long, those that died, and what else is not as on the others of a job."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from enum import IntEnum
from statistics import median, median_high, median_low
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from dftrace_ai.live.jobs import is_replaced, jobs_of, ranks_alive
from dftrace_ai.live.model import NS, HiddenProcess, ThreadStack, WaitedFor, place_text
from dftrace_ai.live.told import ToldHost, told_hosts
from dftrace_ai.live.wording import age_text
from dftrace_ai.trace_format.names_and_phases import COLLECTIVES, own_category

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dftrace_ai.live.jobs import Job
    from dftrace_ai.live.model import RankStatus, Snapshot, ThreadStatus


# Ranks of a healthy job are at different places for a moment, and a step apart.
PATIENCE_S = 1.0
STEPS_APART = 2

# Fewer say nothing about what is usual.
LEAST_RANKS = 4
# A rate so many times the usual spread from the median is unusual, where it also differs in itself.
SPREADS = 5.0
LEAST_DIFFERENCE = 0.2
# The spread of a normal distribution by its median absolute deviation.
NORMAL_MAD = 1.4826


@dataclass(frozen=True)
class Finding:
    """A thread that is stuck, a process that died, or a rank that the stuck ones may wait for.

    Attributes:
        what: ``stuck``, ``dead``, ``goes on`` (a rank that is not stuck while others
            wait in a collective) or ``missing`` (a rank that has no process).
        label: what people call the process: ``rank 3``.
        rank: its rank; None where unknown.
        pid: its id; None for a missing rank.
        host: its host; None for a missing rank.
        worker: it is a worker of its rank.
        thread: name of the thread; empty for the main thread.
        path: open spans, outermost first, each as category and name.
        category: that of the innermost open span; empty when none is open, and in the
            body of a loop, outside of all that is annotated there.
        moved_ns: when the thread last recorded something or opened a span,
            nanoseconds since 1970; of a dead process its last sign of life.
        quiet_s: seconds since then.
        epoch, step: newest values of these arguments in the process; None where unknown.
        cause: why it is likely to be what the others wait for; empty if it is not.
        stands_in, stands_s: where its Python stands and for how long, by ``lines_hz``.
        told_s: of a process of another host, seconds since it told of itself; a dead one may live.
        kernel: how the kernel has the thread: ``sleeps in futex_wait_queue``; empty where unknown.
        exit_status: by which a process ended that others may wait for; None where unknown.
        stacks: of all threads of its process, where they are asked for and known.
    """

    what: Literal["stuck", "dead", "goes on", "missing"]
    label: str
    rank: int | None
    pid: int | None = None
    host: str | None = None
    worker: bool = False
    thread: str = ""
    path: tuple[str, ...] = ()
    category: str = ""
    moved_ns: int = 0
    quiet_s: float = 0.0
    epoch: int | None = None
    step: int | None = None
    cause: str = ""
    stands_in: str = ""
    stands_s: float = 0.0
    told_s: float | None = None
    kernel: str = ""
    exit_status: int | None = None
    stacks: tuple[ThreadStack, ...] = ()

    @property
    def place(self) -> str:
        """Where it is: ``comm.all_reduce``, ``the body of dataloader.fetch``; empty for no span."""
        return place_text(self.path[-1]) if self.path else ""


def finding_of(
    what: Literal["stuck", "dead", "goes on"], process: RankStatus, thread: ThreadStatus | None
) -> Finding:
    """Return the finding on a thread of a process, or on a process without any."""
    path = thread.place if thread else []
    waits = thread if what != "dead" else None
    quiet_s = process.quiet_s(waits) if waits else process.dead_s()
    return Finding(
        what=what,
        label=process.label,
        rank=process.rank,
        pid=process.pid,
        host=process.host,
        worker=process.worker,
        thread="" if thread is None or thread.tid == process.pid else thread.name,
        path=tuple(span.label for span in path),
        category=(own_category(path[-1].name, path[-1].cat) or "") if path else "",
        moved_ns=process.seen_ns - (round(quiet_s * 1e9) if waits else 0),
        quiet_s=quiet_s,
        epoch=process.epoch,
        step=process.step,
        stands_in=thread.stands_in if thread else "",
        stands_s=thread.stands_s(process.seen_ns) if thread else 0.0,
        told_s=process.told_s,
        kernel=thread.kernel_words if waits and thread else "",
    )


@dataclass(frozen=True)
class JobVerdict:
    """What is wrong with one job.

    Attributes:
        name: stem of its traces, and its run.
        runs: the runs of its ranks, hexadecimal digits.
        stuck: something of it is stuck, or one of its ranks died while others live.
        processes: how many of its processes were looked at.
        alive: how many of these live.
        quietest_s: the longest time that a thread of theirs with an open span has
            recorded nothing.
        findings: the stuck, the dead, and who else the stuck may wait for.
        waited_for: the ranks that others of their host wait for, now or over the window.
    """

    name: str
    runs: tuple[str, ...]
    stuck: bool
    processes: int
    alive: int
    quietest_s: float
    findings: tuple[Finding, ...]
    waited_for: tuple[WaitedFor, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """What is wrong with the jobs of a snapshot.

    Attributes:
        stuck: something is.
        limit_s: seconds of quiet from which on a thread counts as stuck.
        jobs: each job by itself.
        hidden: processes of other hosts, of which nothing is known.
        told: other hosts, whose processes are known by the files that they write.
        problems: spools that could not be read.
        kind: ``dftrace verdict``, by which its JSON is known.
        format: version of that.
    """

    stuck: bool
    limit_s: float
    jobs: tuple[JobVerdict, ...]
    hidden: tuple[HiddenProcess, ...]
    problems: tuple[str, ...]
    told: tuple[ToldHost, ...] = ()
    kind: Literal["dftrace verdict"] = "dftrace verdict"
    format: Literal[1] = 1


# Data-parallel wrappers reduce the gradients inside of it, where no span shows.
BACKWARD = "compute.backward"


class Waiting(IntEnum):
    """Whether one who is in a span waits for the other ranks; who does so least is looked at."""

    SURELY = 0
    PERHAPS = 1
    NOT = 2


def waiting_in(category: str, label: str) -> Waiting:
    """Return what a span means for who is in it: its category, empty for none, and label."""
    if category == COLLECTIVES:
        return Waiting.SURELY
    backward = label == BACKWARD or label.startswith(f"{BACKWARD}.")
    return Waiting.PERHAPS if backward else Waiting.NOT


def waiting_of(process: RankStatus) -> Waiting:
    """Return whether a rank waits: in any of its threads, since gradients may be reduced in one."""
    return min(
        (waiting_in(t.place[-1].cat, t.place[-1].label) for t in process.threads if t.place),
        default=Waiting.NOT,
    )


def waiting_at(one: Finding) -> Waiting:
    """Return whether the thread of a finding waits."""
    return waiting_in(one.category, one.path[-1] if one.path else "")


# Ranks that came to a collective closer together than this came together.
TOGETHER_S = 1.0

OPTIMIZER = "compute.step"

# In it ranks wait until all have come, and it is no collective.
JOINING = "comm.init_process_group"


def with_causes(
    found: Sequence[Finding], processes: Sequence[RankStatus], hidden: Sequence[HiddenProcess]
) -> list[Finding]:
    """Say which findings are likely to be what the others wait for; who goes on comes behind them.

    Ranks in a collective wait for those that are not in it, and so may ranks in a backward pass,
    which reduces the gradients: for one that died or is missing, for one that is stuck elsewhere,
    or for one that goes on elsewhere. When all wait in the same way, the one is named that is at an
    earlier step, in another collective than most, or came last.
    """
    findings = [replace(one, cause=_death(one)) if one.what == "dead" else one for one in found]
    waiting = _Waiters(findings)
    if not waiting.findings:
        return findings
    findings += _missing(processes, hidden, waiting.place)
    findings = _stuck_elsewhere(findings, waiting)
    if not any(one.cause for one in findings):
        findings += _going_on(findings, processes, waiting)
    # Of whom nobody knows yet whether he has come, none of those who have is the one.
    alive = [one for one in processes if one.state == "alive" and not one.worker]
    all_known = all(waiting.knows(one.seen_ns, one.told_s) for one in alive)
    if all_known and not any(one.cause for one in findings):
        findings = _last_of_all(findings, waiting.findings)
    return findings


def _death(one: Finding) -> str:
    return "it died" if one.told_s is None else "it may have died"


# Host, rank and pid: all that tells a process of a job from the others.
_Process: TypeAlias = tuple[str | None, int | None, int | None]


class _Waiters:
    """The ranks that are stuck, by how surely they wait for others.

    `findings` tell where they wait: in collectives, or in backward passes if nobody is in one.
    """

    def __init__(self, found: Iterable[Finding]) -> None:
        self._ranks: dict[_Process, Waiting] = {}
        stuck = [one for one in found if one.what == "stuck"]
        for one in stuck:
            # A worker waits for nobody; any thread of a rank may.
            at = Waiting.NOT if one.worker else waiting_at(one)
            self._ranks[_process(one)] = min(at, self.of(one))
        ranks = [self.of(one) for one in stuck if not one.worker]
        most = min(ranks, default=Waiting.NOT)
        self.least = max(ranks, default=Waiting.NOT)
        self.findings = [
            one
            for one in stuck
            if not one.worker and waiting_at(one) == most and most is not Waiting.NOT
        ]
        places = Counter(one.place for one in self.findings).most_common(1)
        self.place = places[0][0] if places else ""
        self._came_ns = max((one.moved_ns for one in self.findings), default=0)

    def knows(self, seen_ns: int, told_s: float | None) -> bool:
        """Whether a look at a process tells where it is since these wait, and not before."""
        return told_s is None or seen_ns >= self._came_ns

    def of(self, one: Finding) -> Waiting:
        """How surely the process of a finding waits."""
        return self._ranks.get(_process(one), Waiting.NOT)

    def is_waited_for(self, one: Finding) -> bool:
        """Whether a rank waits less surely than others that are stuck."""
        if not self.knows(one.moved_ns + round(one.quiet_s * NS), one.told_s):
            return False
        return self.of(one) == self.least and any(at < self.least for at in self._ranks.values())

    def have_passed(self, one: Finding) -> bool:
        """Whether a rank has left behind it what the others are in: the optimizer comes later."""
        if one.place != OPTIMIZER or one.step is None:
            return False
        at = (one.epoch or 0, one.step)
        return all(
            waiting_at(other) is Waiting.PERHAPS
            and other.step is not None
            and (other.epoch or 0, other.step) <= at
            for other in self.findings
        )


def _process(one: Finding | RankStatus) -> _Process:
    # In containers the first process of each is 1, and hosts may be called alike.
    return one.host, one.rank, one.pid


def _starters(processes: Sequence[RankStatus]) -> set[_Process]:
    """Return those that have started ranks, and are none."""
    return {(one.host, None, one.parent_pid) for one in processes if one.rank is not None}


def _missing(
    processes: Sequence[RankStatus], hidden: Sequence[HiddenProcess], place: str
) -> list[Finding]:
    sizes = {process.world_size for process in processes if process.world_size is not None}
    starters = _starters(processes)
    known = {process.rank for process in processes if _process(process) not in starters}
    known |= {process.rank for process in hidden}
    # Of which ranks the hidden processes are is not always known.
    if len(sizes) != 1 or None in known:
        return []
    (size,) = sizes
    # A made-up size would make a list of any length.
    if size - len(known) > len(known) + 1024:
        return []
    # One that has not come to the beginning may not have begun to record either.
    cause = "it never came" if place == JOINING else "no process of it is there"
    return [
        Finding("missing", f"rank {rank}", rank, cause=cause)
        for rank in range(size)
        if rank not in known
    ]


def _stuck_elsewhere(found: Sequence[Finding], waiting: _Waiters) -> list[Finding]:
    elsewhere = {
        one.rank: one.place
        for one in found
        if one.what == "stuck"
        and not one.worker
        and waiting.is_waited_for(one)
        and not waiting.have_passed(one)
    }
    findings = []
    for one in found:
        cause = one.cause
        if one.what == "stuck" and waiting.is_waited_for(one):
            if not one.worker:
                if not waiting.have_passed(one):
                    cause = f"the others wait for it in {waiting.place}"
            elif one.rank is not None and one.rank in elsewhere:
                cause = f"rank {one.rank} waits for it in {elsewhere[one.rank]}"
        findings.append(one if cause == one.cause else replace(one, cause=cause))
    return findings


def _going_on(
    found: Sequence[Finding], processes: Sequence[RankStatus], waiting: _Waiters
) -> list[Finding]:
    known = {_process(one) for one in found} | _starters(processes)
    elsewhere = [
        replace(
            finding_of("goes on", process, process.main),
            cause=f"the others wait for it in {waiting.place}",
        )
        for process in processes
        if process.state == "alive"
        and not process.worker
        and waiting.knows(process.seen_ns, process.told_s)
        and _process(process) not in known
        and waiting_of(process) > waiting.least
    ]
    return [one for one in elsewhere if not waiting.have_passed(one)]


def _last_of_all(found: Sequence[Finding], waiting: Sequence[Finding]) -> list[Finding]:
    if len(waiting) < 2:
        return list(found)
    cause = _earlier_step(waiting) or _other_place(waiting) or _came_last(waiting)
    return [replace(one, cause=cause.get(id(one), one.cause)) for one in found]


def _earlier_step(waiting: Sequence[Finding]) -> dict[int, str]:
    at = {id(one): (one.epoch or 0, one.step) for one in waiting if one.step is not None}
    if len(at) < len(waiting) or min(at.values()) == max(at.values()):
        return {}
    first, usual = min(at.values()), median_high(at.values())
    if first == usual:
        return {}
    return {
        one: f"it is at step {first[1]:,}, the others at {usual[1]:,}"
        for one, position in at.items()
        if position == first
    }


def _other_place(waiting: Sequence[Finding]) -> dict[int, str]:
    (place, count), *others = Counter(one.place for one in waiting).most_common()
    if not others or 2 * count <= len(waiting):
        return {}
    return {id(one): f"the others are in {place}" for one in waiting if one.place != place}


def _came_last(waiting: Sequence[Finding]) -> dict[int, str]:
    # Who began the backward pass last has not come last to the collective in it.
    if any(waiting_at(one) is not Waiting.SURELY for one in waiting):
        return {}
    *_, before, last = sorted(waiting, key=lambda one: one.moved_ns)
    late_s = (last.moved_ns - before.moved_ns) / NS
    if late_s < TOGETHER_S:
        return {}
    return {id(last): f"it came last, {age_text(late_s)} after the others"}


def find_stuck(snapshot: Snapshot, limit_s: float = 60.0) -> Verdict:
    """Find threads that have been in a span for too long, and what they are likely to wait for.

    A thread is stuck when it has an open span and has for longer than the limit
    neither recorded anything nor opened a span. A rank that died is a finding while
    others of its job live.

    Args:
        snapshot: what the processes are doing.
        limit_s: seconds; a span that may last longer needs a higher limit.

    Returns:
        The verdict, job by job.

    Example::

        verdict = find_stuck(snapshot(["out"]), limit_s=120)
        for job in verdict.jobs:
            print([finding.label for finding in job.findings if finding.cause])
    """
    jobs = tuple(_judged(job, snapshot, limit_s) for job in jobs_of(snapshot))
    return Verdict(
        stuck=any(job.stuck for job in jobs),
        limit_s=limit_s,
        jobs=jobs,
        hidden=tuple(snapshot.hidden),
        problems=tuple(snapshot.problems),
        told=told_hosts(snapshot.processes),
    )


def _judged(job: Job, snapshot: Snapshot, limit_s: float) -> JobVerdict:
    alive = [process for process in job.processes if process.state == "alive"]
    dead = [one for one in job.processes if one.state == "dead" and not is_replaced(one, alive)]
    waiting = [(process, thread) for process in alive for thread in process.threads if thread.place]
    stuck = [
        finding_of("stuck", process, thread)
        for process, thread in waiting
        if process.quiet_s(thread) > limit_s
    ]
    found = [*(finding_of("dead", process, process.main) for process in dead), *stuck]
    return JobVerdict(
        name=job.name,
        runs=tuple(job.runs),
        # In a job without anyone alive nobody waits.
        stuck=bool(stuck) or bool(alive and any(not process.worker for process in dead)),
        processes=len(job.processes),
        alive=len(alive),
        quietest_s=max((process.quiet_s(thread) for process, thread in waiting), default=0.0),
        findings=tuple(with_causes(found, job.processes, snapshot.hidden) if stuck else found),
        waited_for=tuple(one for one in snapshot.waited_for if one.run in job.runs),
    )


class Mark(NamedTuple):
    """Why a process is not as the others."""

    word: str
    """``dead``, ``silent``, ``unwritable``, ``waited for``, ``elsewhere``, ``behind``, ..."""
    detail: str
    """The same with figures, for a wide screen."""


def judge(snapshot: Snapshot) -> dict[tuple[str, str], list[Mark]]:
    """Find the processes that differ from the others of their job.

    Args:
        snapshot: what the processes are doing.

    Returns:
        For each process, by its identity, why it differs; nothing for most of them.
        ``dead``: it has died. ``silent``: it is of another host, and has told nothing for so long
        that it may have died. ``unwritable``: its trace cannot be written. ``drops``: it has lost
        events. And of ranks, not of their workers: ``waited for``: in collectives, by the others
        of its host. ``elsewhere``: it has been for a second where most are not. ``behind``: two
        steps or more behind the median. ``slow`` or ``busy``: it records unusually few or many
        events a second.

    Example::

        for process in found.processes:
            print(process.label, [mark.word for mark in judge(found)[process.identity]])
    """
    marks: dict[tuple[str, str], list[Mark]] = {
        process.identity: _own_marks(process) for process in snapshot.processes
    }
    waited = {(one.run, one.host, one.rank): one for one in snapshot.waited_for if one.is_much}
    for job in jobs_of(snapshot):
        ranks = ranks_alive(job.processes)
        for rank in ranks:
            if rank.rank is not None and (one := waited.get((rank.run, rank.host, rank.rank))):
                told = f"{one.share:.0%} of {age_text(one.covered_s)}"
                marks[rank.identity].append(Mark("waited for", told))
        for rank, mark in (*_elsewhere(ranks), *_behind(ranks), *_unusual(ranks)):
            marks[rank.identity].append(mark)
    return marks


def _own_marks(process: RankStatus) -> list[Mark]:
    marks = []
    if process.state == "dead" and process.told_s is not None:
        marks.append(Mark("silent", f"told nothing for {age_text(process.told_s)}"))
    elif process.state == "dead":
        marks.append(Mark("dead", "dead"))
    if process.write_error:
        marks.append(Mark("unwritable", f"trace: {process.write_error}"))
    if process.dropped:
        marks.append(Mark("drops", f"{process.dropped:,} events lost"))
    return marks


def _since_s(rank: RankStatus) -> float:
    """Seconds since the innermost open span began."""
    return (rank.seen_ns - rank.place[-1].start_ns) / NS if rank.place else 0.0


def _elsewhere(ranks: Sequence[RankStatus]) -> list[tuple[RankStatus, Mark]]:
    places = {rank.identity: rank.place[-1].label if rank.place else "" for rank in ranks}
    if len(ranks) < 2:
        return []
    usual, count = Counter(places.values()).most_common(1)[0]
    if 2 * count <= len(ranks):
        # No place is that of most; but who waits for others is not the one to look at.
        waiting = _waiting(ranks)
        if 2 * len(waiting) < len(ranks) or max(map(_since_s, waiting), default=0.0) < PATIENCE_S:
            return []
        return [
            (rank, Mark("elsewhere", f"others in {place_text(waiting[0].place[-1].label)}"))
            for rank in ranks
            if rank not in waiting
        ]
    others = f"others in {place_text(usual)}" if usual else "others in no span"
    return [
        (rank, Mark("elsewhere", others))
        for rank in ranks
        if places[rank.identity] != usual and _quiet_s(rank) >= PATIENCE_S
    ]


def _waiting(ranks: Sequence[RankStatus]) -> list[RankStatus]:
    """Those that wait for others more surely than some do."""
    at = {rank.identity: waiting_of(rank) for rank in ranks}
    least = max(at.values())
    return [rank for rank in ranks if rank.place and at[rank.identity] < least]


def _quiet_s(rank: RankStatus) -> float:
    return _since_s(rank) if rank.place else rank.quiet_s(rank.main) if rank.main else 0.0


def _behind(ranks: Sequence[RankStatus]) -> list[tuple[RankStatus, Mark]]:
    at = {rank.identity: (rank.epoch or 0, rank.step) for rank in ranks if rank.step is not None}
    if len(at) < 2:
        return []
    epoch, step = median_low(at.values())
    marks = []
    for rank in ranks:
        if rank.identity not in at:
            continue
        own_epoch, own_step = at[rank.identity]
        # Steps of the epochs between are not known: at least those of the newest one.
        steps = step - own_step if own_epoch == epoch else step + 1
        if own_epoch <= epoch and steps >= STEPS_APART:
            least = "" if own_epoch == epoch else " or more"
            marks.append((rank, Mark("behind", f"{steps:,}{least} steps behind")))
    return marks


def _unusual(ranks: Sequence[RankStatus]) -> list[tuple[RankStatus, Mark]]:
    rates = {rank.identity: rank.events_per_s for rank in ranks if rank.events_per_s is not None}
    if len(rates) < LEAST_RANKS:
        return []
    usual = median(rates.values())
    spread = NORMAL_MAD * median(abs(rate - usual) for rate in rates.values())
    least = max(SPREADS * spread, LEAST_DIFFERENCE * usual)
    return [
        (rank, Mark("slow" if rate < usual else "busy", f"{rate / usual:.0%} of the usual events"))
        for rank in ranks
        if (rate := rates.get(rank.identity)) is not None and usual and abs(rate - usual) > least
    ]
