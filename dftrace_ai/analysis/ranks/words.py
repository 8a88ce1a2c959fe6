"""A verdict on ranks in sentences, and in fifteen lines."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from dftrace_ai.analysis.ranks.model import LIMITS, bubble_share, is_in_one_span
from dftrace_ai.analysis.ranks.partials import GARBAGE, NOT_ANNOTATED
from dftrace_ai.analysis.texts import (
    ARGUMENT_LETTERS,
    bytes_text,
    few,
    in_lines,
    note_rows,
    percent,
    time_text,
)
from dftrace_ai.analysis.thresholds import silences, sureness
from dftrace_ai.wording import counted, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from dftrace_ai.analysis.ranks.model import (
        Evidence,
        Excess,
        Finding,
        Kind,
        RanksSeen,
        RanksVerdict,
    )
    from dftrace_ai.analysis.ranks.partials import Place

TITLES: Final[dict[Kind, tuple[str, str]]] = {
    "worker": ("ONE SLOW RANK", "SLOW RANKS"),
    "node": ("SLOW NODE", "SLOW NODES"),
    "stage": ("SLOW STAGE", "SLOW STAGES"),
    "stage or worker": ("SLOW STAGE OR RANK", "SLOW STAGES OR RANKS"),
    "bursts": ("ONE RANK PAUSES", "SOME RANKS PAUSE"),
    "split": ("TWO KINDS OF RANKS", "TWO KINDS OF RANKS"),
    "pauses": ("PAUSES", "PAUSES"),
    "data": ("UNEVEN DATA", "UNEVEN DATA"),
    "jitter": ("JITTER", "JITTER"),
    "once": ("ONE RANK WAS LATE ONCE", "ONE RANK WAS LATE ONCE"),
    "bubble": ("PIPELINE BUBBLE", "PIPELINE BUBBLE"),
    "link": ("SLOW LINK", "SLOW LINK"),
    "memory": ("MEMORY UNEVEN", "MEMORY UNEVEN"),
}
MOST_BESIDE: Final = 3
# Of the first of these, where it costs much.
ROWS_BESIDE: Final = frozenset({"its own", "their own", "costs", "do next"})
# Of fewer not even that is told.
FEWEST_STEPS: Final = 5
# Cheaper ones are told to a tenth of a percent.
CHEAP: Final = 0.1
# Spans by the beginning of their category; what to look at first where they take longer.
NEXT_OF_SPANS: Final = {
    "dataloader": "its loader: the workers, the storage and the CPUs of {place}; then its data",
    "data": "its data: what it reads, and from where; then the CPUs and the storage of {place}",
    "checkpoint": "what it saves beside the others: share it out, or save asynchronously",
    NOT_ANNOTATED: "what it does in no span: annotate it, or open one of its steps in dftrace view",
}
IN_ONE_SPAN: Final = (
    "what {ranks} {does} in {span} and the others do not: hooks, other data; then the machine: "
    "clocks and temperature of {place}"
)
OF_A_STAGE: Final = "what {stages} {stages_do} in {span} and the others do not"
# So many steps as far apart from each other are a rhythm.
FEWEST_IN_RHYTHM: Final = 4
# Of more steps the first are named.
MOST_STEPS: Final = 3
# Less than so many times as fast is as fast.
NOTABLE: Final = 1.005
# Of what others wait, so much is all of it.
NEARLY_ALL: Final = 0.95
UNNAMED: Final = {NOT_ANNOTATED: "time in no span", GARBAGE: "garbage collection"}
NEXT_OF_GARBAGE: Final = (
    "call gc.freeze() after setting up, and gc.collect() on all ranks in the same steps; dftrace "
    "view shows collections as host/gc"
)
# A pipeline waits for so much of the time beyond its bubble.
MUCH: Final = LIMITS["cost"].warning
NEXT_OF_MESSAGES: Final = "dftrace ranks --table tells how long messages take"
NEXT: Final[dict[Kind, str]] = {
    "stage": "move layers from {stages} to the others",
    "stage or worker": "the machine of {ranks} first; if it is as the others', move layers away",
    "node": "the machine: clocks and temperature of {hosts}, other jobs on it",
    "worker": "the machine: clocks and temperature of {place}; then the data of {ranks}",
    "bursts": "what {ranks} alone {does} {then}: saving, logging, evaluating; do it on all ranks, "
    "or asynchronously",
    "split": "what {ranks} have and the others have not: device, host, threads, data",
    "pauses": "what stops a rank {then}: saving, logging, other load on its host",
    "data": "deal out the data by length, so that each rank has as much to do in a step",
    "jitter": "cores for each rank of its own, and threads pinned to them",
    "once": "what {ranks} did in step {step}: dftrace view --steps {step}:{behind}; saving, "
    "evaluation, garbage collection, its loader",
    "bubble": "more micro-batches a step: {more}; or a schedule in which a rank has several "
    "stages, as ScheduleInterleaved1F1B",
    "link": "the network card and the cable between {ranks}",
    "memory": "what {ranks} {holds} beside the others: caches, logs, the state of rank 0",
}


class Sentences(NamedTuple):
    """What is found, and what to try."""

    what: str
    next: str


def named(ranks: Sequence[int], places: Mapping[int, Place]) -> str:
    """Return ranks as a sentence has them, with the host of a single one of several hosts."""
    if not ranks:
        return ""
    if len(ranks) != 1:
        return f"ranks {few(ranks)}"
    host = places[ranks[0]].host if ranks[0] in places else ""
    hosts = {place.host for place in places.values()}
    return f"rank {ranks[0]}" + (f" on {host}" if host and len(hosts) > 1 else "")


def sentences_of(finding: Finding, places: Mapping[int, Place], steps: int) -> Sentences:
    """Return what is said of a finding, in so many judged steps."""
    what = _WHAT[finding.kind](finding, places, steps)
    return Sentences(what[0].upper() + what[1:], _next(finding, places))


def _next(finding: Finding, places: Mapping[int, Place]) -> str:
    text = NEXT[finding.kind]
    step = next(iter(finding.evidence.step_numbers), 0)
    if finding.kind in {"worker", "bursts", "split"} and finding.name:
        category = finding.name.partition("/")[0]
        text = NEXT_OF_SPANS.get(category, text)
        if finding.kind != "worker" and category == NOT_ANNOTATED:
            text = NEXT[finding.kind]
        elif text == NEXT["worker"] and is_in_one_span(finding.evidence.excess):
            text = IN_ONE_SPAN
    if finding.kind == "stage" and is_in_one_span(finding.evidence.excess):
        text = f"{OF_A_STAGE}; or {text}"
    if finding.kind == "worker" and (second := _next_of_second(finding.evidence.excess)):
        text = f"{text}; and {second}"
    if finding.kind == "jitter" and finding.evidence.mostly is not None:
        text = f"{text}; and what rank {finding.evidence.mostly} does beside the others"
    if finding.name == GARBAGE:
        text = NEXT_OF_GARBAGE
    if (finding.evidence.beyond or 0.0) >= MUCH:
        first, then = NEXT_OF_MESSAGES, text
        if (finding.evidence.beyond or 0.0) < finding.cost:
            first, then = then, first
        text = f"{first}; {then}"
    is_one = len(finding.ranks) == 1
    return text.format(
        more=more_passes(finding.evidence.stages or 1, finding.evidence.passes or 1),
        span=span_text(finding.name),
        second=span_text(finding.evidence.excess[1].name) if finding.evidence.excess[1:] else "",
        then=_when(finding.evidence),
        step=step,
        behind=step + 1,
        ranks=f"rank {finding.ranks[0]}" if is_one else "those ranks",
        does="does" if is_one else "do",
        holds="holds" if is_one else "hold",
        stages_do="does" if len(finding.stages) == 1 else "do",
        place=_place(finding.ranks, places),
        hosts=_all_of("host", finding.hosts),
        stages=_all_of("stage", finding.stages),
    )


def _next_of_second(excess: Sequence[Excess]) -> str:
    """Return what to look at in the second span, where that is other work than in the first."""
    if len(excess) < 2:
        return ""
    first, second = (NEXT_OF_SPANS.get(one.name.partition("/")[0], "") for one in excess[:2])
    if first == second:
        return ""
    return second or "what {ranks} {does} in {second}"


def _when(figures: Evidence) -> str:
    """Return in which steps something happens, and how to see one of them."""
    steps = figures.step_numbers
    if not steps:
        return "now and then"
    view = f"dftrace view --steps {steps[0]}:{steps[0] + 1} shows"
    apart = {after - before for before, after in pairwise(steps)}
    if len(steps) >= FEWEST_IN_RHYTHM and len(apart) == 1 and (every := apart.pop()) > 1:
        return f"every {every:,} steps ({view} step {steps[0]:,})"
    first = ", ".join(f"{step:,}" for step in steps[:MOST_STEPS])
    more = (figures.steps or len(steps)) - min(len(steps), MOST_STEPS)
    return f"in steps {first}{f' and {more:,} more' if more > 0 else ''} ({view} the first)"


def bubble_text(stages: int, passes: int) -> str:
    """Return what makes a bubble, and how much it is: of even work, whoever does it how fast."""
    each = "" if passes == 1 else " each"
    return (
        f"while the pipeline fills and drains: {stages} stages with {passes:,} forward "
        f"{'pass' if passes == 1 else 'passes'}{each} in a step make "
        f"{percent(bubble_share(stages, passes))}"
    )


def more_passes(stages: int, passes: int) -> str:
    """Return what would be left of a bubble with more micro-batches."""
    twice, more = (percent(bubble_share(stages, times * passes)) for times in (2, 4))
    return f"twice as many leave {twice} of it idle, four times as many {more}"


def _place(ranks: Sequence[int], places: Mapping[int, Place]) -> str:
    """Return where a rank runs: ``node3 (local rank 1)``."""
    place = places.get(ranks[0]) if len(ranks) == 1 else None
    if place is None or not place.host:
        return "where it runs" if len(ranks) == 1 else "where they run"
    local = "" if place.local_rank is None else f" (local rank {place.local_rank})"
    return place.host + local


def _all_of(noun: str, names: Sequence[object]) -> str:
    return f"{noun}{'' if len(names) == 1 else 's'} {', '.join(map(str, names))}"


def _slowest(finding: Finding, who: str, *, several: bool) -> str:
    figures = finding.evidence
    by = f"by {time_text(finding.late_ns)} of {time_text(figures.step_ns)}"
    by += ", now more and now less" if figures.varies else ""
    verb = "are" if several else "is"
    if figures.beside or figures.beside_ranks:
        who = f"{_but_for(figures)}, {who}"
    if figures.beside_turns:
        who = f"but for what comes by turns, {who}"
    if finding.since is not None:
        when = f"since step {finding.since:,} {who} {verb}"
    else:
        when = f"{who} {'were' if several else 'was'}"
    return f"{when} the slowest in {percent(finding.last_share)} of the steps, {by}."


def once_text(ranks: Sequence[int], *, turns: bool) -> str:
    """Return that something is so once nobody is late by turns, or some ranks are late no more."""
    if turns:
        return " once nobody is late by turns"
    be = "are" if len(ranks) > 1 else "is"
    return f" once {named(ranks, {})} {be} as fast as the others" if ranks else ""


def _once_text(figures: Evidence) -> str:
    return once_text(figures.beside_ranks, turns=figures.beside_turns)


def _first(figures: Evidence) -> str:
    """Return what has to be mended before something is so, as a sentence begins."""
    once = _once_text(figures).lstrip()
    return f"{once}, " if once else ""


def _but_for(figures: Evidence) -> str:
    """Return which steps and ranks figures are not of, since these are told by themselves."""
    numbers = " and ".join(f"{step:,}" for step in figures.beside)
    steps = f"{'steps' if len(figures.beside) > 1 else 'step'} {numbers}" if numbers else ""
    return f"but for {' and '.join(filter(None, (named(figures.beside_ranks, {}), steps)))}"


def _worker(finding: Finding, places: Mapping[int, Place], _: int) -> str:
    several = len(finding.ranks) > 1
    return _slowest(finding, named(finding.ranks, places), several=several)


def _node(finding: Finding, _: Mapping[int, Place], __: int) -> str:
    several = len(finding.hosts) > 1
    ranks = f" ({named(finding.ranks, {})})"
    return _slowest(finding, _all_of("host", finding.hosts) + ranks, several=several)


def _stage(finding: Finding, _: Mapping[int, Place], __: int) -> str:
    several = len(finding.stages) > 1
    ranks = f" ({named(finding.ranks, {})})"
    return _slowest(finding, _all_of("stage", finding.stages) + ranks, several=several)


def _bursts(finding: Finding, places: Mapping[int, Place], steps: int) -> str:
    count = finding.evidence.steps or 0
    return (
        f"{named(finding.ranks, places)} kept the others waiting in {count:,} of {steps:,} steps, "
        f"for {time_text(finding.late_ns)} on average."
    )


def _split(finding: Finding, places: Mapping[int, Place], _: int) -> str:
    others = [rank for rank in sorted(places) if rank not in finding.ranks]
    by = f"{time_text(finding.late_ns)} of {time_text(finding.evidence.step_ns)}"
    since = "" if finding.since is None else f"since step {finding.since:,} "
    apart = finding.evidence.beside or finding.evidence.beside_ranks
    since += f"{_but_for(finding.evidence)}, " if apart else ""
    return (
        f"{since}{named(finding.ranks, places)} work {by} longer in a step than "
        f"{named(others, places)}, which are as many."
    )


def _once(finding: Finding, places: Mapping[int, Place], _: int) -> str:
    figures = finding.evidence
    step = next(iter(figures.step_numbers), 0)
    when = f"once, in step {step:,}" if figures.steps == 1 else f"twice, longest in step {step:,}"
    return (
        f"{named(finding.ranks, places)} kept the others waiting {when}, for "
        f"{time_text(finding.late_ns)}; the usual step takes {time_text(figures.step_ns)}."
    )


def _pauses(finding: Finding, _: Mapping[int, Place], steps: int) -> str:
    figures = finding.evidence
    count = figures.steps or 0
    in_steps = f"in {count:,} of {steps:,} steps " if count else ""
    by = f", {counted(figures.ranks_hit, 'rank')} by turns" if figures.ranks_hit else ""
    told = f"all waited for one that paused{by}: {_cost(finding.cost)} of the time."
    return f"{_first(figures)}{in_steps}{told}"


def _data(finding: Finding, _: Mapping[int, Place], __: int) -> str:
    correlation = finding.evidence.correlation
    how = (
        "" if correlation is None else f": its forward and backward go together ({correlation:.2f})"
    )
    return (
        f"{_first(finding.evidence)}{_cost(finding.cost)} of the time all wait for the one with "
        f"most to do, {_by_turns(finding)}{how}."
    )


def _jitter(finding: Finding, _: Mapping[int, Place], __: int) -> str:
    figures = finding.evidence
    ranks, cores = figures.ranks_of_host, figures.cpus
    crowd = (
        f": {ranks} ranks share {counted(cores, 'core')}"
        if cores and ranks and ranks > cores
        else ""
    )
    return (
        f"{_first(figures)}{_cost(finding.cost)} of the time all wait for the slowest, "
        f"{_by_turns(finding)}{crowd}."
    )


def _by_turns(finding: Finding) -> str:
    """Return who is last, where it is another one from step to step."""
    mostly = finding.evidence.mostly
    if mostly is None:
        return "now this rank and now that"
    return f"rank {mostly} in {percent(finding.last_share)} of the steps"


def _bubble(finding: Finding, _: Mapping[int, Place], __: int) -> str:
    figures = finding.evidence
    told = bubble_text(figures.stages or 1, figures.passes or 1)
    beyond = figures.beyond or 0.0
    more = f" Another {_cost(beyond)} they wait for messages, or for each other."
    return (
        f"{_cost(finding.cost)} of the time all ranks wait {told}.{more if beyond >= MUCH else ''}"
    )


def _link(finding: Finding, places: Mapping[int, Place], _: int) -> str:
    figures = finding.evidence
    call = _call(figures.collective or "", figures.group or "")
    took, others = (time_text(ns or 0) for ns in (figures.transfer_ns, figures.usual_ns))
    return f"{call} of {named(finding.ranks, places)} takes {took}, of others alike {others}."


def _memory(finding: Finding, places: Mapping[int, Place], _: int) -> str:
    figures = finding.evidence
    verb = "hold" if len(finding.ranks) > 1 else "holds"
    return (
        f"{named(finding.ranks, places)} {verb} {bytes_text(figures.peak_bytes or 0)}, the others "
        f"{bytes_text(figures.usual_bytes or 0)}."
    )


_WHAT: Final = {
    "worker": _worker,
    "node": _node,
    "stage": _stage,
    "stage or worker": _stage,
    "bursts": _bursts,
    "split": _split,
    "pauses": _pauses,
    "data": _data,
    "jitter": _jitter,
    "once": _once,
    "bubble": _bubble,
    "link": _link,
    "memory": _memory,
}


def _cost(share: float) -> str:
    return f"{100 * share:.{0 if share >= CHEAP else 1}f} %"


def _call(name: str, group: str) -> str:
    return f"{name} of group {shortened(group, ARGUMENT_LETTERS)}" if group else name


def title(kind: Kind, count: int, since: int | None) -> str:
    """Return what stands above a finding of so many ranks, of a node or stage so many of these."""
    return TITLES[kind][count > 1] if since is None else f"SLOW SINCE STEP {since:,}"


def title_of(finding: Finding) -> str:
    """Return what stands above a finding."""
    among = finding.hosts or finding.stages or finding.ranks
    return title(finding.kind, len(among), finding.since)


def verdict_lines(verdict: RanksVerdict) -> list[str]:
    r"""Return what `dftrace ranks` prints.

    Args:
        verdict: of a job.

    Example::

        print(*verdict_lines(ranks(["out/"])), sep="\n")
    """
    return in_lines(_head(verdict), _rows(verdict))


def _head(verdict: RanksVerdict) -> Iterator[str]:
    if verdict.findings:
        first = verdict.findings[0]
        yield f"{title_of(first)}  {sureness(first)}"
        yield from (first.what, "")
    elif verdict.verdict == "abstained":
        yield "NO VERDICT"
    else:
        yield "NOBODY IS LATE"
        if verdict.slowest is not None:
            slowest = verdict.slowest
            of = f"The slowest of {verdict.ranks.seen:,}"
            yield f"{of}, rank {slowest.rank}, costs {_cost(slowest.share)}."
            yield ""


def _rows(verdict: RanksVerdict) -> Iterator[tuple[str, str]]:
    if verdict.findings:
        missing = bool(verdict.ranks.missing)
        yield from first_rows(verdict.findings[0], missing=missing)
        for at, other in enumerate(verdict.findings[1 : 1 + MOST_BESIDE]):
            yield "also", f"{other.what} {sureness(other)}"
            # Of two causes each is told with its cost; what else there is comes after these.
            if at == 0 and other.severity != "info":
                yield from (
                    row for row in first_rows(other, missing=missing) if row[0] in ROWS_BESIDE
                )
    elif verdict.collectives:
        dearest = max(verdict.collectives, key=lambda row: row.wait_share)
        text = f"{_cost(dearest.wait_share)} of the steps, in {_call(dearest.name, dearest.group)}"
        # Of few steps it is told who comes last, which is no verdict yet.
        first = next(iter(dearest.root), None)
        if verdict.verdict == "abstained" and first and verdict.steps.steady >= FEWEST_STEPS:
            text += f"; {percent(first.share)} of it for rank {first.rank}"
        yield "waits", text
    yield from silences(verdict.abstained)
    yield from note_rows(verdict.running, verdict.notes)
    yield "judged", judged_text(verdict)
    if verdict.unseen:
        yield "unseen", "; ".join(verdict.unseen)


def first_rows(finding: Finding, *, missing: bool) -> Iterator[tuple[str, str]]:
    """Yield what shows a finding, its cost, what to try; ranks that are `missing` may be late."""
    figures = finding.evidence
    excess = figures.excess
    if excess and finding.ranks and finding.kind != "memory":
        yield ("its own" if len(finding.ranks) == 1 else "their own"), excess_text(excess)
    elif excess:
        yield (
            "mostly",
            ", ".join(f"in {span_text(one.name)} ({percent(one.part)} of it)" for one in excess),
        )
    if finding.cost:
        once = _once_text(figures)
        be = "then be" if once else "be"
        be += " at most" if missing else ""
        faster = f"; without it the run would {be} {finding.without:.3g} times as fast"
        is_much = finding.without >= NOTABLE
        apart = f" {_but_for(replace(figures, beside_ranks=()))}" if figures.beside else ""
        time = f"the time{apart}{once}"
        if not once and finding.severity != "info" and finding.cost < LIMITS["cost"].warning:
            time += " by itself, for others are as late"
        yield "costs", f"{_cost(finding.cost)} of {time}{faster if is_much else ''}"
    if finding.since is not None:
        yield "since", f"step {finding.since:,} (before: like the others)"
    if (waiting := figures.waited_in) is not None:
        most = "" if waiting.part >= NEARLY_ALL else ", most of it"
        where = f"{most} in {_call(waiting.name, waiting.group)}" if waiting.name else ""
        yield "others", f"wait {time_text(waiting.ns)} a step{where}"
    yield "do next", finding.next


def excess_text(excess: Iterable[Excess]) -> str:
    """Return in which spans something is longer, and how much of it is in each."""
    told = [
        f"{span_text(one.name)} {time_text(one.ns)} longer than the others' "
        f"({percent(one.part)} of it)"
        for one in excess
    ]
    return ", ".join(told)


def span_text(name: str) -> str:
    """Return a span by its name alone, which is what people call it."""
    if name in UNNAMED:
        return UNNAMED[name]
    return shortened(name.rpartition("/")[2], ARGUMENT_LETTERS)


def without_trace(seen: RanksSeen) -> str:
    """Return which ranks have no trace that can be judged."""
    missing = f"{len(seen.missing):,} of {counted(seen.world, 'rank')}"
    return f"{missing} have no trace that can be judged: {few(seen.missing)}"


def judged_text(verdict: RanksVerdict) -> str:
    """Return what was judged: steps, ranks, collectives, and how far clocks agree."""
    steps, ranks = verdict.steps, verdict.ranks
    of = f" of {ranks.world:,}" if ranks.missing else ""
    told = f"{counted(steps.steady, 'step')} of {counted(ranks.seen, 'rank')}{of}"
    count = sum(row.count for row in verdict.collectives)
    told += f", {counted(count, 'collective')}" if count else ""
    clocks = verdict.clocks
    if clocks.hosts > 1 and clocks.uncertainty_ns is not None and not clocks.unjoined:
        within = time_text(clocks.uncertainty_ns)
        told += f"; clocks of {clocks.hosts:,} hosts agree within {within}"
    return told
