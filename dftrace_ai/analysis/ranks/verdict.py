"""From what ranks say to the verdict on their job: who is late, how sure that is, and silence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dftrace_ai._reader import release_free_memory
from dftrace_ai.analysis.executors import Processes
from dftrace_ai.analysis.executors.processes import beside
from dftrace_ai.analysis.ranks.collectives import collectives_of
from dftrace_ai.analysis.ranks.job import read_ranks
from dftrace_ai.analysis.ranks.judging import Judged
from dftrace_ai.analysis.ranks.lateness import lateness_of
from dftrace_ai.analysis.ranks.model import (
    LIMITS,
    ClocksSeen,
    Offset,
    RankShare,
    RanksVerdict,
    StepsSeen,
)
from dftrace_ai.analysis.ranks.own_work import steady_steps
from dftrace_ai.analysis.ranks.packing import PackedChunks
from dftrace_ai.analysis.ranks.partials import UNTOLD
from dftrace_ai.analysis.ranks.words import FEWEST_STEPS, without_trace
from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.reading.trace_end import are_whole
from dftrace_ai.analysis.texts import ARGUMENT_LETTERS, GPU_UNSEEN, time_text
from dftrace_ai.analysis.thresholds import Abstention
from dftrace_ai.wording import counted, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dftrace_ai.analysis.executors import Spread
    from dftrace_ai.analysis.ranks.clock_offsets import Clocks
    from dftrace_ai.analysis.ranks.collectives import Collectives
    from dftrace_ai.analysis.ranks.findings import Lateness, Silence
    from dftrace_ai.analysis.ranks.job import RanksOfJob
    from dftrace_ai.analysis.ranks.model import RanksSeen
    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.reading.trace_set import TracePaths
    from dftrace_ai.analysis.thresholds import Limits

# Steps of ranks: what is reckoned of fewer takes no longer than another process does to begin.
FEWEST_BESIDE: Final = 1_000_000


def ranks(
    paths: TracePaths, limits: Limits | None = None, spread: Spread | None = None
) -> RanksVerdict:
    """Judge which rank of a job is late.

    Args:
        paths: files and directories, as for `open_traces`.
        limits: from which costs on something is a finding, see `limits_of`; by default `LIMITS`.
        spread: who reads the ranks; by default this process.

    Returns:
        The verdict; with too little to say, why it is silent.

    Raises:
        TraceError: a path is missing or is no trace, nothing can be read, or traces are of
            two runs.

    Example::

        from dftrace_ai.analysis import ranks

        verdict = ranks(["out/"])
        for finding in verdict.findings:
            print(finding.ranks, finding.what, finding.next)
    """
    jobs = spread.executor.workers if spread and isinstance(spread.executor, Processes) else 1
    return judge_ranks(read_ranks(open_traces(paths), spread=spread), limits, jobs)


def judge_ranks(job: RanksOfJob, limits: Limits | None = None, processes: int = 1) -> RanksVerdict:
    """Judge which rank is late by what each says; as `ranks`.

    Where there is much to compare, and two `processes` may, another one does a part of it.
    """
    limits = LIMITS if limits is None else limits
    lateness, met = _reckoned(job, limits, processes)
    judged = Judged(job, lateness, limits, met.waited_in)
    why = _silence(job, lateness, judged.seen, limits)
    findings = () if why else judged.findings(met.links)
    slowest = None if why or lateness.slowest is None else RankShare(*lateness.slowest)
    return RanksVerdict(
        "abstained" if why else findings[0].kind if findings else "none",
        ranks=judged.seen,
        steps=StepsSeen(lateness.common, lateness.steady, lateness.step_ns),
        clocks=_clocks(met.clocks),
        findings=findings,
        slowest=slowest,
        collectives=met.table,
        by_rank=lateness.scores,
        unmatched=met.unmatched,
        abstained=(*why, *_silences(met)),
        unseen=tuple(_unseen(job, judged.seen, met)),
        notes=(*job.notes, *_jumps(met.clocks), *(() if why else judged.slight())),
        limits={name: (limit.warning, limit.critical) for name, limit in limits.items()},
    )


def _reckoned(job: RanksOfJob, limits: Limits, processes: int) -> tuple[Lateness, Collectives]:
    """Return what own work says of ranks, and where they meet."""
    # Of a thousand ranks what is free by now would lie beside what is made next.
    release_free_memory()
    if processes < 2 or not _is_large(job):
        lateness = lateness_of(job, limits)
        release_free_memory()
        return lateness, collectives_of(job, _or_all(lateness.judged))
    with beside(_lateness, (job, limits), job.files) as coming:
        met = collectives_of(job, _or_all(steady_steps(job)))
        return coming(), met


def _is_large(job: RanksOfJob) -> bool:
    """Return whether there is more to do than to begin a process, and it can be done in one."""
    are_packed = all(isinstance(one.chunks, PackedChunks) for one in job.ranks)
    return are_packed and sum(one.step_count for one in job.ranks) >= FEWEST_BESIDE


def _lateness(given: tuple[RanksOfJob, Limits]) -> Lateness:
    return lateness_of(*given)


def _or_all(steps: Integers) -> Integers | None:
    return steps if len(steps) else None


def _silence(
    job: RanksOfJob, lateness: Lateness, seen: RanksSeen, limits: Limits
) -> tuple[Abstention, ...]:
    """Return why there is no verdict; nothing where there is one."""
    why: Silence | str = lateness.abstains
    if why == "one rank":
        others = f"; {without_trace(seen)}" if seen.missing else ""
        alone = "one rank has a trace that can be judged, and nothing is there to compare it with"
        why = f"{alone}{others}"
    elif why == "no common steps":
        why = "the ranks have no step in common"
    elif not job.has_calls:
        how = "dftrace run records them, by hand ai.comm"
        how = how if are_whole(job.notes) else "the traces are not whole"
        why = f"no collectives were found, so that work cannot be told from waiting; {how}"
    elif why == "few steps":
        why = _too_few(job, lateness, limits["steps"].warning)
    elif why == "nobody waits":
        why = (
            "some ranks work longer, and nobody waits for them: what they wait in is not in "
            "these traces, or they go on by themselves"
        )
    return (Abstention("run", why),) if why else ()


def _too_few(job: RanksOfJob, lateness: Lateness, needed: float) -> str:
    steady, common = lateness.steady, lateness.common
    left_out = ""
    if steady < common:
        last = ", nor the last, in which the job broke off" if job.breaks_off else ""
        left_out = f" (of {common:,}: the warm-up is not judged{last})"
    told = f"{counted(steady, 'steady step')} that all ranks have{left_out}, {needed:g} are needed"
    if steady < FEWEST_STEPS:
        return told
    return f"{told}; --threshold steps={steady} judges these, with low confidence"


def _silences(met: Collectives) -> Iterator[Abstention]:
    """Yield what else is not said."""
    if met.all_enqueued:
        yield Abstention(
            "who is late on the GPU",
            "collectives end when they are enqueued here: this tells who launches late",
        )
    if met.left_out:
        names = ", ".join(shortened(group.name, ARGUMENT_LETTERS) for group in met.left_out[:3])
        yield Abstention(
            f"collectives of group {names}",
            "more than a twentieth of them contradict each other: its members are others than it "
            "tells, or clocks jumped",
        )
    if met.clocks.unjoined:
        hosts = ", ".join(met.clocks.unjoined[:3])
        why = next(one.told() for one in met.clocks.hosts if one.host in met.clocks.unjoined)
        yield Abstention(
            "who arrives last across hosts",
            f"it is not known how the clock of {hosts} stands to the others': {why}",
        )


def _jumps(clocks: Clocks) -> Iterator[str]:
    for one in clocks.hosts:
        if one.rank is not None:
            host = one.host.rpartition(", rank ")[0]
            yield (
                f"the times of rank {one.rank} are far from those of the other ranks of {host}: "
                "taken for a clock of its own"
            )
        if one.jumps_ns:
            by = ", ".join(time_text(abs(ns)) for ns in one.jumps_ns[:3])
            times = counted(len(one.jumps_ns), "time")
            yield f"the clock of {one.host} was set {times} while it ran, by {by}: taken out"
        if one.circle_ns:
            more = time_text(one.circle_ns)
            yield f"the clock of {one.host} differs by {more} by another way: believed no better"


def _unseen(job: RanksOfJob, seen: RanksSeen, met: Collectives) -> Iterator[str]:
    if seen.missing and seen.seen > 1:
        yield f"{without_trace(seen)}; the last may be one of them"
    if met.alone and seen.seen > 1:
        names = ", ".join(shortened(group.name, ARGUMENT_LETTERS) for group in met.alone[:3])
        more = f" and {len(met.alone) - 3:,} more" if len(met.alone) > 3 else ""
        yield (
            f"others of group {names}{more}, of which one member alone has a trace: what seems its "
            "own work may be waiting for them"
        )
    moving = [row for row in met.table if row.bytes and row.name != "barrier"]
    if moving and all(row.algbw_gbs is None for row in moving):
        yield "bandwidths (of collectives that are this short their ends are too uncertain)"
    if all(rank.peak_bytes == UNTOLD for rank in job.ranks):
        yield "memory (system_counters_s)"
    yield GPU_UNSEEN


def _clocks(clocks: Clocks) -> ClocksSeen:
    return ClocksSeen(
        hosts=len(clocks.hosts),
        uncertainty_ns=clocks.uncertainty_ns,
        offsets={
            one.host: Offset(
                one.offset_ns,
                one.ppm or 0.0,
                one.state,
                one.told(),
                one.typical_ns,
                one.certain_ns,
                one.shared,
                one.jumps_ns,
            )
            for one in clocks.hosts
            if one.offset_ns is not None
        },
        unjoined=tuple(clocks.unjoined),
    )
