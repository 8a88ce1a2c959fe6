"""From the ranks of a job to how fast it would be with even work, or to why that is not said."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from dftrace_ai.analysis.ranks.clock_offsets import clocks_of
from dftrace_ai.analysis.ranks.job import RanksOfJob, read_ranks
from dftrace_ai.analysis.ranks.judging import ranks_seen
from dftrace_ai.analysis.ranks.lateness import lateness_of
from dftrace_ai.analysis.ranks.model import LIMITS, bubble_share
from dftrace_ai.analysis.ranks.partials import UNTOLD
from dftrace_ai.analysis.ranks.words import without_trace
from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.whatif.causes import (
    CALLED,
    MANY_RANKS,
    Once,
    cause_of,
    changes_of,
    dearest_links,
    excess_of,
    few_of,
    figures_of,
    late_once,
    shares_of,
    without,
)
from dftrace_ai.analysis.whatif.gathering import FEWEST_STEPS, TimesApartError, gather
from dftrace_ai.analysis.whatif.graph import CircleError
from dftrace_ai.analysis.whatif.model import (
    DEFAULT_LIMITS,
    Bubble,
    Cause,
    StepFigures,
    StepsJudged,
    Unjudged,
    WhatIf,
    Without,
)
from dftrace_ai.analysis.whatif.runs import Run, best_run, odd_steps
from dftrace_ai.analysis.whatif.words import in_words
from dftrace_ai.analysis.whatif.work import Work
from dftrace_ai.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dftrace_ai.analysis.ranks.clock_offsets import Clocks
    from dftrace_ai.analysis.ranks.findings import Late
    from dftrace_ai.analysis.ranks.partials import Place
    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.reading.trace_set import TracePaths
    from dftrace_ai.analysis.whatif.gathering import Gathered
    from dftrace_ai.analysis.whatif.model import CauseKind
    from dftrace_ai.analysis.whatif.runs import Run

MOST_ODD: Final = 0.1
MOST_LEFT_OUT: Final = 0.5
TRIES: Final = 3
"""Of a long run other steps are looked at where some are left out, of which more may be."""
MOST_NEGATIVE: Final = 0.01
NAMED: Final = 5
MOST_APART: Final = 0.02
"""Of a step: clocks that are known no better do not tell what waits for what."""
BELOW_A_BUBBLE: Final = frozenset({"none", "several", "jitter", "pauses"})
"""Which causes a bubble that costs more is told in place of."""
LEAST_BUBBLE: Final = 0.01
ALWAYS: Final[frozenset[CauseKind]] = frozenset(
    {"worker", "node", "stage", "stage or worker", "split"}
)
"""Which causes somebody in particular is in nearly every step."""
NS_PER_HOUR: Final = 3_600_000_000_000
# Beside these causes others may be late in every step, too; few that are alike are told one by one.
OF_SEVERAL: Final[frozenset[CauseKind]] = ALWAYS | {"several"}
EACH_STEP: Final = frozenset({"persistent", "since"})
ONE_BY_ONE: Final = 4


@dataclass(frozen=True, repr=False)
class Answer:
    """What is said of a job, and the run that it was worked out with.

    Attributes:
        result: what is said.
        run: with its graph; None where there is none.
        ideal: what each operation takes with even work; None where nothing is said.
        once: a step that a rank made far longer than all others are; None without any.
    """

    result: WhatIf
    run: Run | None = None
    ideal: Integers | None = None
    once: Once | None = None


def whatif(
    job: RanksOfJob | TracePaths,
    *,
    without: Sequence[Mapping[str, str]] = (),
    progress: Callable[[int, int], None] | None = None,
) -> WhatIf:
    """Tell how fast a job would be with even work, and what it loses its time by.

    Args:
        job: its ranks, or files and directories, as for `open_traces`.
        without: sets of ranks to be told of, see `whatif_of`.
        progress: called with how many variants of the run are worked out, and of how many.

    Raises:
        TraceError: a path is missing or is no trace, no rank can be read, or there are several
            runs.
        ConfigError: a set of ``without`` has no rank, or names an unknown dimension.

    Example::

        found = whatif(["out/"])
        if found.slowdown is not None:
            print(found.what, found.next)
    """
    ranks = job if isinstance(job, RanksOfJob) else read_ranks(open_traces(job))
    answer = whatif_of(ranks, clocks_of(ranks), without=without, progress=progress)
    known = (*answer.result.notes, *ranks.notes)
    return in_words(replace(answer.result, notes=known), LIMITS["cost"])


def whatif_of(
    job: RanksOfJob,
    clocks: Clocks,
    *,
    without: Sequence[Mapping[str, str]] = (),
    limits: Mapping[str, float] = DEFAULT_LIMITS,
    progress: Callable[[int, int], None] | None = None,
) -> Answer:
    """Tell how fast a job would be with even work, and what it loses its time by.

    Args:
        job: its ranks.
        clocks: of their hosts.
        without: sets of ranks, each as dimensions and values that all hold: ``{"rank": "17"}``,
            ``{"host": "node3"}``, ``{"pp": "3"}``, ``{"stage": "3"}``.
        limits: what is held against, see `DEFAULT_LIMITS`; others have the defaults.
        progress: called with how many variants of the run are worked out, and of how many.

    Raises:
        ConfigError: a set of ``without`` has no rank, or names an unknown dimension.
    """
    held = {**DEFAULT_LIMITS, **limits}
    sets = [(tuple(sorted(asked.items())), _chosen(job, asked)) for asked in without]

    def nothing(*reasons: Unjudged, gathered: Gathered | None = None) -> Answer:
        steps = None if gathered is None else _steps_judged(gathered, alone=False)
        return Answer(WhatIf(abstained=reasons, limits=held, ranks=len(job.ranks), steps=steps))

    if len(job.ranks) < 2:
        return nothing(Unjudged("one rank"))
    odd: frozenset[int] = frozenset()
    tries = 0
    while True:
        try:
            gathered = gather(job, clocks, odd)
        except TimesApartError as error:
            return nothing(Unjudged("clocks", names=error.hosts))
        run = _run_of(gathered, clocks, held)
        if isinstance(run, Unjudged):
            return nothing(run, gathered=gathered)
        more, tries = _to_be_left_out(run, held), tries + 1
        if not more or tries == TRIES:
            break
        odd |= more
    answer = _judged(run, len(odd), sets, held, progress)
    answer = replace(answer, result=_with_each(answer, job))
    once = answer.once
    if once is None:
        return answer
    # One step, however long, hides who is late in all the others.
    run = _run_of(gather(job, clocks, odd | {*once.steps}), clocks, held)
    rest = answer if isinstance(run, Unjudged) else _judged(run, len(odd), sets, held, progress)
    if rest.result.cause.kind not in ALWAYS or rest.result.cause.in_bursts:
        return answer
    steps = rest.result.steps
    told = None if steps is None else replace(steps, once=once.steps, once_rank=once.rank)
    return replace(rest, result=replace(_with_each(rest, job), steps=told))


def _with_each(answer: Answer, job: RanksOfJob) -> WhatIf:
    run = answer.run
    if run is None or answer.result.slowdown is None:
        return answer.result
    work = Work.of(run.operations, run.weighed.times, _stages(run.gathered.places))
    result = with_each(answer.result, job, run, work)
    if not job.missing:
        return result
    unseen = f"{without_trace(ranks_seen(job))}; were they as slow, no other would be worth as much"
    return replace(result, unseen=(*result.unseen, unseen))


def _run_of(gathered: Gathered | None, clocks: Clocks, held: Mapping[str, float]) -> Run | Unjudged:
    """Return the run as a graph, or why there is none."""
    count = 0 if gathered is None else len(gathered.numbers)
    if gathered is None or count < FEWEST_STEPS:
        return Unjudged("few steps", count)
    usual_ns = int(np.median(gathered.steps.end - gathered.steps.at))
    uncertainty_ns, apart = _uncertainty(clocks, usual_ns)
    if apart:
        return Unjudged("clocks", names=apart)
    if not (gathered.call_meeting != UNTOLD).any():
        return Unjudged("no collectives")
    if gathered.enqueued == len(gathered.calls.at):
        return Unjudged("enqueued")
    try:
        return best_run(gathered, uncertainty_ns, held["replay"])
    except CircleError as error:
        return Unjudged("circle", len(error.operations), tuple(error.names))


def _to_be_left_out(run: Run, held: Mapping[str, float]) -> frozenset[int]:
    """Return the numbers of steps with other operations, where the others are enough alone."""
    odd = odd_steps(run)
    some: Integers = np.asarray(odd.any(axis=0))
    enough = len(some) - some.sum() >= held["steps"] and some.mean() <= MOST_LEFT_OUT
    is_much = odd.mean() > MOST_ODD
    return frozenset(run.gathered.numbers[some].tolist() if is_much and enough else ())


def _uncertainty(clocks: Clocks, step_ns: int) -> tuple[int, tuple[str, ...]]:
    """Return how far clocks may be apart, and which hosts cannot be compared with the others."""
    # Where hosts of a pipeline meet in messages alone, these bound how far their clocks are apart.
    error, apart = 0, []
    for host in clocks.hosts:
        bounded = host.state == "bounded"
        far = (host.certain_ns if bounded else host.typical_ns) or 0
        if host.state == "not calibrated" or (bounded and far > MOST_APART * step_ns):
            apart.append(host.host)
        else:
            error = max(error, far)
    return error, tuple(dict.fromkeys(apart))


def _judged(
    run: Run,
    odd: int,
    sets: list[tuple[tuple[tuple[str, str], ...], Integers]],
    held: dict[str, float],
    progress: Callable[[int, int], None] | None,
) -> Answer:
    gathered, operations = run.gathered, run.operations
    places = gathered.places
    steps = run.counted
    base = WhatIf(
        form=operations.form,
        steps=replace(_steps_judged(gathered, alone=run.alone), odd=odd),
        ranks=len(places),
        operations=len(operations),
        measured_ns=run.measured_ns // steps,
        replay_ns=run.replay_ns // steps,
        replay_error=run.error,
        negative_transfers=run.weighed.negative,
        transfers=int(operations.is_comm.sum()),
        unmatched=int((gathered.call_meeting == UNTOLD).sum()),
        limits=held,
    )
    abstained = _unjudged(run, held)
    if any(one.what != "few steps" for one in abstained):
        return Answer(replace(base, abstained=tuple(abstained)), run)
    work = Work.of(operations, run.weighed.times, _stages(places))
    excess = excess_of(work)
    few_ranks = few_of(excess)
    changes = changes_of(work, few_ranks)
    ideal_ns, *with_change = run.times_ns([work.ideal, *changes])
    slowdown = run.replay_ns / max(ideal_ns, 1)
    if slowdown < 1 - held["replay"]:
        unlike = Unjudged("unlike work", slowdown)
        return Answer(replace(base, abstained=(*abstained, unlike)), run)
    shares = shares_of(run.replay_ns, ideal_ns, with_change)
    one_by_one = np.arange(len(places)) if len(places) <= MANY_RANKS else few_ranks
    figures = figures_of(run, work, ideal_ns, one_by_one, progress)
    by_rank, by_kind = figures.numbered("rank"), figures.named("kind")
    if abstained:
        cause = Cause("abstained")
    else:
        cause = cause_of(run, work, shares, excess, by_rank, held, slowdown)
    if cause.kind == "communication":
        dearest = [kind for kind in by_kind if kind.startswith("comm/")][:CALLED]
        links = dearest_links(run, work, ideal_ns, slowdown)
        # On one host there are no links: what now and then takes long there has not its processor.
        apart = len({place.host for place in places}) > 1
        if links or apart:
            cause = Cause(cause.kind, cause.share, kinds=links or tuple(dearest))
        else:
            cause = Cause("jitter", max(cause.share, shares.both))
    bubble = _bubble(run, work, ideal_ns)
    if bubble is not None and cause.kind in BELOW_A_BUBBLE and not cause.ranks:
        lost = max(1 - ideal_ns / max(run.replay_ns, 1), held["slowdown"] - 1)
        # By turns ranks lose now more and now less, whoever else uses their host.
        lost = LIMITS["cost"].warning if cause.kind == "jitter" else lost
        if bubble.share * ideal_ns / max(run.replay_ns, 1) >= lost:
            cause = Cause("bubble", bubble.share)
    if cause.kind == "jitter" and slowdown < held["jitter"]:
        cause = Cause("none")
    cause = replace(cause, without=_without_cause(run, work, cause))
    stages = figures.numbered("pp")
    layouts = {name for place in places for name, _ in place.layout} - {"pp"}
    lost = max(1 - ideal_ns / max(run.replay_ns, 1), 0.0)
    result = replace(
        base,
        slowdown=slowdown,
        cause=cause,
        bubble=bubble,
        shares=shares,
        ideal_ns=ideal_ns // steps,
        by_rank=by_rank,
        by_host=figures.named("host"),
        by_stage=stages,
        by_dimension={name: figures.numbered(name) for name in sorted(layouts & set(figures.by))},
        by_kind=by_kind,
        per_step=_per_step(run, work),
        without=tuple(_asked(run, work, asked, out) for asked, out in sets),
        together=_together(run, work, sets),
        waste_gpu_hours=lost
        * len(places)
        * run.measured_ns
        / steps
        * gathered.all_steps
        / NS_PER_HOUR,
        abstained=tuple(abstained),
    )
    return Answer(result, run, work.ideal, late_once(run, work))


def _bubble(run: Run, work: Work, ideal_ns: int) -> Bubble | None:
    """Return what a pipeline waits with even work; None where it waits as good as nothing."""
    if run.gathered.pipeline is None:
        return None
    stages, passes = run.gathered.pipeline
    rank = work.operations.rank[~work.operations.is_comm]
    busy = np.bincount(rank, work.ideal[~work.operations.is_comm]).max() / len(run.gathered.numbers)
    idle = max(1 - busy * run.counted / max(ideal_ns, 1), 0.0)
    share = min(idle, bubble_share(stages, passes))
    return Bubble(stages, passes, round(share, 6)) if share >= LEAST_BUBBLE else None


def _without_cause(run: Run, work: Work, cause: Cause) -> float | None:
    """Return how many times as fast a run would be without what the ranks of its cause have."""
    places = run.gathered.places
    out = np.array(
        [place.rank in cause.ranks or place.stage in cause.stages for place in places], bool
    )
    if not out.any() or out.all():
        return None
    times = without(work, out, "pp" if cause.stages else "")
    return None if times is None else run.replay_ns / max(run.time_ns(times), 1)


def _unjudged(run: Run, held: Mapping[str, float]) -> list[Unjudged]:
    """Return why nothing is said, or why no cause is named: few steps."""
    found: list[Unjudged] = []
    odd = odd_steps(run)
    if odd.mean() > MOST_ODD:
        worst = np.argsort(-odd.sum(0), kind="stable")[:NAMED]
        names = tuple(str(number) for number in sorted(run.gathered.numbers[worst].tolist()))
        found.append(Unjudged("structure", float(odd.mean()), names))
    transfers = max(int(run.operations.is_comm.sum()), 1)
    if run.weighed.truly_negative > MOST_NEGATIVE * transfers:
        found.append(Unjudged("negative transfers", run.weighed.truly_negative / transfers))
    if abs(run.error) > held["replay_most"]:
        found.append(Unjudged("replay", run.error))
    if len(run.gathered.numbers) < held["steps"]:
        found.append(Unjudged("few steps", len(run.gathered.numbers)))
    return found


def _per_step(run: Run, work: Work) -> tuple[StepFigures, ...]:
    counted, measured = run.measured_steps()
    replay = run.step_times(work.times).time_ns
    ideal = run.step_times(work.ideal).time_ns
    steps = len(run.gathered.numbers)
    at = work.operations.step[work.first] * work.ranks + work.rank
    own = np.bincount(at, work.own, steps * work.ranks).reshape(steps, work.ranks)
    late = own.argmax(1)
    return tuple(
        StepFigures(
            step=int(run.gathered.numbers[step]),
            measured_ns=int(measured[row]),
            ideal_ns=int(ideal[row]),
            slowdown=float(replay[row] / max(ideal[row], 1)),
            late=run.gathered.places[late[step]].rank,
        )
        for row, step in enumerate(counted.tolist())
    )


def _asked(run: Run, work: Work, asked: tuple[tuple[str, str], ...], out: Integers) -> Without:
    dimensions = {"pp" if name == "stage" else name for name, _ in asked}
    times = without(work, out, "pp" if "pp" in dimensions else "")
    time = run.replay_ns if times is None else run.time_ns(times)
    ranks = tuple(run.gathered.places[at].rank for at in np.flatnonzero(out).tolist())
    saved = (run.replay_ns - time) // run.counted
    return Without(asked, ranks, run.replay_ns / max(time, 1), saved)


def _together(
    run: Run, work: Work, sets: list[tuple[tuple[tuple[str, str], ...], Integers]]
) -> Without | None:
    """Return what it would be without all that was asked; None for one or none."""
    if len(sets) < 2:
        return None
    asked = tuple(pair for one, _ in sets for pair in one)
    return _asked(run, work, asked, np.logical_or.reduce([out for _, out in sets]))


def _chosen(job: RanksOfJob, asked: Mapping[str, str]) -> Integers:
    """Return the ranks that have all values, as a mask."""
    found = np.ones(len(job.ranks), bool)
    for dimension, value in asked.items():
        told = [_told(one.place, dimension) for one in job.ranks]
        if all(one is None for one in told):
            known = sorted({name for one in job.ranks for name, _ in one.place.layout})
            words = ", ".join(["rank", "host", *(["stage"] if "pp" in known else []), *known])
            raise ConfigError(
                f"--without {dimension}={value}: no rank tells its {dimension}; there are {words}"
            )
        found &= np.array([one == value for one in told])
    if not found.any():
        words = " ".join(f"{name}={value}" for name, value in asked.items())
        raise ConfigError(f"--without {words}: there is no such rank")
    return found


def _told(place: Place, dimension: str) -> str | None:
    if dimension == "rank":
        return str(place.rank)
    if dimension == "host":
        return place.host
    layout = dict(place.layout)
    told = layout.get("pp" if dimension == "stage" and "stage" not in layout else dimension)
    return None if told is None else str(told)


def _stages(places: Sequence[Place]) -> Integers:
    """Return the stage of each rank as an index; all 0 where not every rank tells it."""
    stages = [place.stage for place in places if place.stage is not None]
    if len(stages) < len(places):
        return np.zeros(len(places), np.int64)
    return np.unique(stages, return_inverse=True)[1].reshape(-1)


def _steps_judged(gathered: Gathered, *, alone: bool) -> StepsJudged:
    return StepsJudged(
        common=gathered.all_steps,
        judged=len(gathered.numbers),
        stretches=gathered.stretches,
        alone=alone,
        first=int(gathered.numbers[0]),
        last=int(gathered.numbers[-1]),
    )


def with_each(result: WhatIf, job: RanksOfJob, run: Run, work: Work) -> WhatIf:
    """Return a result with each of several that are late in every step, as `ranks` finds them."""
    if result.cause.kind not in OF_SEVERAL or result.cause.in_bursts:
        return result
    found = [
        late
        for late in lateness_of(job, scores=False).found
        if late.ranks and late.turn in EACH_STEP and late.kind != "memory"
    ]
    # What is so once another is mended comes behind that.
    found.sort(key=lambda late: -late.late_ns)
    parts = [part for late in found for part in _parts(late)]
    numbers = [place.rank for place in run.gathered.places]
    in_turn: list[Without] = []
    out = np.zeros(len(numbers), bool)
    for asked, ranks in parts:
        out |= np.isin(numbers, ranks)
        times = None if out.all() else without(work, out, asked[0])
        if times is None:
            return result
        time = run.time_ns(times)
        saved = (run.replay_ns - time) // run.counted
        in_turn.append(Without((asked,), ranks, run.replay_ns / max(time, 1), saved))
    if len(in_turn) < 2:
        return result
    result = replace(result, in_turn=tuple(in_turn))
    if len(found) < 2 or result.shares is None:
        return result
    ranks = tuple(sorted({rank for one in in_turn for rank in one.ranks}))
    cause = Cause("several", result.shares.rank, ranks=ranks, without=in_turn[-1].ratio)
    return replace(result, cause=cause)


def _parts(late: Late) -> Iterable[tuple[tuple[str, str], tuple[int, ...]]]:
    """Yield who is late by one cause, by what they are called, with their ranks."""
    if late.hosts and len(late.hosts) == 1:
        yield ("host", late.hosts[0]), late.ranks
    elif late.stages and len(late.stages) == 1:
        yield ("stage", str(late.stages[0])), late.ranks
    elif len(late.ranks) <= ONE_BY_ONE:
        yield from ((("rank", str(rank)), (rank,)) for rank in late.ranks)
    else:
        yield ("ranks", ", ".join(map(str, late.ranks))), late.ranks
