"""What is said of a verdict on dumps, in lines of text, and the same as JSON has it.

Apart from `judging`, which decides: here is how it is said.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from dftrace_ai.live.dumps.judging import Problem  # noqa: TC001 - pydantic evaluates them
from dftrace_ai.live.stuck import Finding  # noqa: TC001
from dftrace_ai.live.stuck import Verdict as LiveVerdict  # noqa: TC001
from dftrace_ai.live.verdict_words import standing_text
from dftrace_ai.live.wording import age_text, ranges_text
from dftrace_ai.wording import counted, escaped, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dftrace_ai.live.dumps.beside import OwnTraces
    from dftrace_ai.live.dumps.flight_dumps import Dumps
    from dftrace_ai.live.dumps.judging import Verdict

MOST_RANKS_TOLD: Final = 8
MOST_GROUPS_TOLD: Final = 4


@dataclass(frozen=True)
class DumpsRead:
    """Which dumps were read.

    Attributes:
        ranks: whose they are.
        versions: those of their form.
        damaged: how many of their entries could not be read.
        skipped: files that were passed over, with the reason.
    """

    ranks: tuple[int, ...]
    versions: tuple[str, ...]
    damaged: int
    skipped: tuple[str, ...]


@dataclass(frozen=True)
class DumpsReport:
    """What `dftrace stuck DUMPS... --json` prints.

    Attributes:
        stuck: something holds the job up.
        dumps: which were read.
        verdict: what holds it up; of kind ``none`` where nothing does.
        problems: what was found in each process group.
        no_dump: ranks of these groups without a dump.
        too_old: ranks whose dump was written before others came to the call that they are in.
        guessed: what the groups are called of which nobody says who is in them, so that more
            ranks without a dump may be.
        standing: in which spans the named ranks stand, by spools and traces beside the dumps.
        live: the verdict on the processes whose spools are there; None without any.
        kind: ``dftrace stuck``, by which it is known.
        format: version of that.
    """

    stuck: bool
    dumps: DumpsRead
    verdict: Problem
    problems: tuple[Problem, ...]
    no_dump: tuple[int, ...]
    too_old: tuple[int, ...]
    guessed: tuple[str, ...]
    standing: tuple[Finding, ...]
    live: LiveVerdict | None
    kind: Literal["dftrace stuck"] = "dftrace stuck"
    format: Literal[2] = 2


def report_of(dumps: Dumps, verdict: Verdict, own: OwnTraces) -> DumpsReport:
    """Put together what is known."""
    read = dumps.by_rank.values()
    is_stuck = verdict.cause.kind != "none" or (own.verdict is not None and own.verdict.stuck)
    return DumpsReport(
        stuck=is_stuck,
        dumps=DumpsRead(
            tuple(dumps.by_rank),
            tuple(sorted({dump.version for dump in read})),
            sum(dump.damaged for dump in read),
            tuple(dumps.skipped),
        ),
        verdict=verdict.cause,
        problems=verdict.problems,
        no_dump=verdict.no_dump,
        too_old=verdict.too_old,
        guessed=verdict.guessed,
        standing=tuple(
            own.standing[rank]
            for rank in {**dict.fromkeys(verdict.cause.ranks), **dict.fromkeys(verdict.no_dump)}
            if rank in own.standing
        ),
        live=own.verdict,
    )


def report_lines(report: DumpsReport) -> Iterator[tuple[str, str]]:
    """Return what to print for a report: lines, each with a style."""
    cause = report.verdict
    if cause.kind == "none":
        ranks = counted(len(report.dumps.ranks), "rank")
        yield f"nothing hangs by the dumps of {ranks}", "green"
        for one in report.problems:
            if one.kind in ("under way", "not done everywhere"):
                yield _shown(f"  {_sentence(one)}: too short for a hang, see --idle"), ""
    else:
        yield _shown(_sentence(cause)), "bold red"
        yield from ((_shown(f"  {line}"), "") for line in _details(report))
    if report.no_dump and cause.kind != "no dump":
        yield f"no dump of {_ranks(report.no_dump)}", "yellow"
        yield from ((_shown(f"  {line}"), "") for line in _stands(report, report.no_dump, {}))
    if report.too_old and cause.kind != "no dump":
        of = f"the dump of {_ranks(report.too_old)}"
        yield f"{of} was written before others came to what they are in: take newer ones", "yellow"
    if report.guessed:
        names = ", ".join(report.guessed[:MOST_GROUPS_TOLD])
        if len(report.guessed) > MOST_GROUPS_TOLD:
            names += f" and {len(report.guessed) - MOST_GROUPS_TOLD:,} more"
        guess = f"who is in {names} is guessed, by the dumps"
        yield _shown(f"{guess}: more ranks may be, which traces beside these tell"), "yellow"
    if report.dumps.damaged:
        yield f"of the dumps' entries {report.dumps.damaged:,} could not be read", "yellow"


def _sentence(cause: Problem) -> str:
    """The verdict in one sentence."""
    who, are = _ranks(cause.ranks), "is" if len(cause.ranks) == 1 else "are"
    have = "has" if len(cause.ranks) == 1 else "have"
    call, told = _call(cause), _others(cause)
    if cause.kind.startswith("mismatched"):
        return _different(cause, who, have, call)
    if cause.kind == "missing":
        return f"{who} {have} not come to {call}{told}"
    if cause.kind == "never started":
        return f"{who} {have} called {call}, and what is before it has not ended{told}"
    if cause.kind == "no dump":
        since = " since the others came" if cause.found else ""
        return f"{who} {have} left no dump{since}, and all others are in {call}{_for(cause)}"
    if cause.kind == "wrong order":
        return f"{_ranks((*cause.ranks, *cause.waiting))} wait for each other: {_places(cause)}"
    if cause.kind == "not done everywhere":
        return f"{call} has ended, but not on {who}{_for(cause)}"
    return f"{who} {are} in {call}{_for(cause)}, and on none it has ended"


_WITH: Final = {"mismatched size": " with other sizes", "mismatched dtype": " with other types"}


def _different(cause: Problem, who: str, have: str, call: str) -> str:
    with_other = _WITH.get(cause.kind, "")
    if not cause.usual:
        told = list(cause.found.items())[:MOST_RANKS_TOLD]
        texts = ", ".join(f"rank {rank} {text}" for rank, text in told)
        where = call if with_other else f"call {cause.seq} of {_group(cause)}"
        return f"{who} have called {where} each{with_other or ' another way'}: {texts}"
    mine = ", ".join(sorted(set(cause.found.values()))[:MOST_RANKS_TOLD])
    if not with_other:
        return f"{who} {have} called {mine} where the others have called {call}"
    return f"{who} {have} called {call}{with_other}: {mine}, the others {cause.usual}"


def _places(cause: Problem) -> str:
    by_place: dict[str, list[int]] = defaultdict(list)
    for rank in (*cause.ranks, *cause.waiting):
        if rank in cause.found:
            by_place[cause.found[rank]].append(rank)
    places = list(by_place.items())[:MOST_RANKS_TOLD]
    return ", ".join(f"{_ranks(ranks)} {place}" for place, ranks in places)


def _call(cause: Problem) -> str:
    number = f" {cause.seq}" if cause.seq else ""
    return f"{cause.op}{number} of {_group(cause)} ({counted(len(cause.group_ranks), 'rank')})"


def _group(cause: Problem) -> str:
    return cause.description or f"group {cause.group}"


def _for(cause: Problem) -> str:
    return f" for {age_text(cause.waiting_s)}" if cause.waiting_s is not None else ""


def _others(cause: Problem) -> str:
    """Who waits in the call."""
    if not cause.waiting:
        return ", which the others are done with"
    named = len(cause.waiting) + len(cause.ranks) < len(cause.group_ranks) or not cause.seq
    who = _ranks(cause.waiting) if named or len(cause.waiting) == 1 else "the others"
    have = "has" if len(cause.waiting) == 1 else "have"
    return f", {who} {have} been in it{_for(cause)}"


def _ranks(ranks: Iterable[int]) -> str:
    numbers = sorted(set(ranks))
    return f"rank{'s' if len(numbers) > 1 else ''} {ranges_text(numbers)}"


def _details(report: DumpsReport) -> Iterator[str]:
    cause = report.verdict
    told = {} if cause.kind.startswith("mismatched") or cause.kind == "wrong order" else cause.found
    yield from _stands(report, cause.ranks, told)
    if cause.where:
        yield f"it was called at {cause.where}"


def _stands(report: DumpsReport, ranks: Iterable[int], told: dict[int, str]) -> Iterator[str]:
    """What each of some ranks is in, by the dumps and by our spools and traces."""
    own = {one.rank: one for one in report.standing}
    same: dict[str, list[int]] = defaultdict(list)
    for rank in ranks:
        texts = [told[rank]] if rank in told else []
        texts += [standing_text(own[rank])] if rank in own else []
        if texts:
            same["; ".join(texts)].append(rank)
    for text, some in list(same.items())[:MOST_RANKS_TOLD]:
        yield f"{_ranks(some)} {text}"
    if len(same) > MOST_RANKS_TOLD:
        rest = sum(len(some) for some in list(same.values())[MOST_RANKS_TOLD:])
        yield f"{counted(rest, 'more rank')} elsewhere: --json has all"


def _shown(text: str) -> str:
    return escaped(shortened(text, 2000))
