"""From traces to a verdict: each rank by itself, then what holds for at least half of them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

import numpy as np

from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.reading.indexed.clocks import hours_text
from dftrace_ai.analysis.reading.indexed.reach import utc_text
from dftrace_ai.analysis.steps import measure, read_job
from dftrace_ai.analysis.steps.measuring import STEP_PARTS
from dftrace_ai.analysis.steps.steady import steady_of
from dftrace_ai.analysis.why.counters import is_crowded, memory_creep
from dftrace_ai.analysis.why.evidence import FEWEST_STEPS, Evidence, signals_of
from dftrace_ai.analysis.why.figures import COMMUNICATION_BOUND, Communication
from dftrace_ai.analysis.why.limits import LIMITS
from dftrace_ai.analysis.why.loops import loop_findings
from dftrace_ai.analysis.why.model import (
    Abstention,
    Finding,
    PartTime,
    SlowStep,
    StepFacts,
    Verdict,
)
from dftrace_ai.analysis.why.phases import phase_findings, start_note
from dftrace_ai.analysis.why.ranking import explained, one_of_input, ranked
from dftrace_ai.analysis.why.sentences import in_words
from dftrace_ai.analysis.why.shapes import drift_of, pattern_findings, two_kinds_of
from dftrace_ai.analysis.why.shares import compute_bound, share_findings
from dftrace_ai.analysis.why.statistics import BatchSums
from dftrace_ai.analysis.why.unseen import unseen_of
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence

    from dftrace_ai.analysis.reading import TraceSet
    from dftrace_ai.analysis.steps import Job, Rank, Steps
    from dftrace_ai.analysis.why.limits import Limits
    from dftrace_ai.trace_format.json_types import JsonObject

__all__ = ["judge", "judge_traces", "why"]

SHOWN_STEPS: Final = 3
# Whom the others wait for waits less than so much of what they do.
LATE: Final = 0.5
NO_STEPS: Final = (
    "no steps were found: no loop over a loader (ai.dataloader.fetch.iter), no ai.pipeline.step, "
    "no step numbers (ai.update) and no optimizer (ai.compute.step)"
)


def why(paths: Iterable[str | os.PathLike[str]], limits: Limits | None = None) -> Verdict:
    """Judge a run by its traces.

    Args:
        paths: files and directories, as for `open_traces`.
        limits: from which shares on something is a finding, see `limits_of`; by default
            `LIMITS`.

    Returns:
        The verdict; with too little to say, why it is silent.

    Raises:
        TraceError: a path is missing or is no trace, or nothing can be read.

    Example::

        verdict = why(["out/"])
        if verdict.findings:
            print(verdict.findings[0].what, verdict.findings[0].next)
    """
    traces = open_traces(paths)
    return judge_traces(traces, read_job(traces), limits)


def judge_traces(
    traces: TraceSet,
    job: Job,
    limits: Limits | None = None,
    steps: Sequence[Steps | None] | None = None,
) -> Verdict:
    """Judge a run that was read already; as `why`.

    Args:
        traces: its files.
        job: what `read_job` made of them.
        limits: as for `why`.
        steps: of each rank, as `measure` returns them; None where nobody has measured them.
    """
    verdict = judge(job, LIMITS if limits is None else limits, steps)
    skipped = tuple(f"skipped: {file}" for file in traces.skipped)
    return replace(
        verdict,
        notes=(*verdict.notes, *skipped),
        began_at=utc_text(job.reach.began_ns),
        length_ns=job.reach.length_ns,
    )


@dataclass(frozen=True, repr=False)
class _Judged:
    """What was found out of a rank; no evidence where it has no steps."""

    number: int
    evidence: Evidence | None
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    start_note: str = ""
    sums: BatchSums | None = None


def judge(job: Job, limits: Limits, steps: Sequence[Steps | None] | None = None) -> Verdict:
    """Judge a run by its processes; as `why`.

    Args:
        job: the processes.
        limits: from which shares on something is a finding.
        steps: as for `judge_traces`.
    """
    measured = [measure(rank.process) for rank in job.ranks] if steps is None else steps
    judged = [
        _judge_rank(job, rank, found, limits)
        for rank, found in zip(job.ranks, measured, strict=True)
    ]
    found = [one for one in judged if one.sums is not None and one.evidence is not None]
    shown = found[0] if found else next((one for one in judged if one.evidence), None)
    if shown is None or shown.evidence is None:
        return Verdict(
            "abstained",
            ranks=len(judged),
            abstained=(Abstention("run", NO_STEPS),),
            notes=job.notes,
            limits=_plain(limits),
        )
    common, rare, speakers = _of_ranks(found)
    if common:
        # The steps that are shown are of a rank for which the verdict holds.
        shown = next(one for one in found if one.number == speakers[common[0].kind])
    common = [_with_late_ranks(finding, found) for finding in common]
    of_ranks = [note for one in found for note in one.notes]
    start = [shown.start_note] if shown.start_note else []
    # Of the notes few are shown: what times cannot be comes first.
    notes = dict.fromkeys([*job.notes[: job.first_notes], *of_ranks, *start, *job.notes])
    evidence = shown.evidence
    assert evidence is not None  # noqa: S101 - `found` has evidence
    enough = bool(found)
    abstained = _abstentions(evidence, enough=enough)
    verdict = common[0].kind if common else ("none" if _is_enough(found) else "abstained")
    return Verdict(
        verdict,
        rank=shown.number,
        ranks=len(judged),
        steps=_step_facts(evidence),
        parts=_parts(
            [one for one in found if not common or one.number in common[0].ranks] or [shown]
        ),
        findings=tuple(in_words(finding, evidence) for finding in common),
        of_some_ranks=tuple(in_words(finding, evidence) for finding in rare),
        slowest=_slowest(evidence) if enough else (),
        abstained=abstained,
        unseen=unseen_of(evidence),
        notes=tuple(notes),
        limits=_plain(limits),
    )


def _is_enough(found: Sequence[_Judged]) -> bool:
    return any(
        one.evidence is not None and not one.evidence.is_short and not one.evidence.gpu_told
        for one in found
    )


def _plain(limits: Limits) -> dict[str, tuple[float, float | None]]:
    return {name: (limit.warning, limit.critical) for name, limit in limits.items()}


def _judge_rank(job: Job, rank: Rank, steps: Steps | None, limits: Limits) -> _Judged:
    number = rank.process.number
    if steps is None:
        return _Judged(number, None)
    evidence = Evidence(
        rank,
        job,
        steps,
        steady_of(steps),
        signals_of(rank, steps),
        limits,
        crowded=is_crowded(job, rank.process, steps),
    )
    if len(evidence.steady) < FEWEST_STEPS or rank.process.clock.places:
        return _Judged(number, evidence)
    notes: list[str] = []
    findings = one_of_input([*share_findings(evidence), *loop_findings(evidence)])
    if not evidence.is_short:
        findings += phase_findings(evidence)
        findings += pattern_findings(evidence)
        more = (drift_of(evidence), two_kinds_of(evidence), memory_creep(evidence))
        findings += [finding for finding in more if finding]
        findings = explained(findings, limits)
        if not findings:
            compute = compute_bound(evidence)
            findings += [compute] if compute else []
    if evidence.crowded:
        notes.append("other programs kept the processors of the host busy meanwhile")
    waits = sum(process.waits for process in (rank.process, *rank.workers))
    if waits:
        times = counted(waits, "time")
        notes.append(f"threads waited {times} for a full spool; durations hold those waits")
    start = "" if evidence.is_short else start_note(evidence)
    return _Judged(number, evidence, tuple(findings), tuple(notes), start, evidence.sums)


def _of_ranks(
    judged: Sequence[_Judged],
) -> tuple[list[Finding], list[Finding], dict[str, int]]:
    """Return the findings of at least half of the ranks, those of fewer, and whose each is."""
    by_kind: dict[str, list[tuple[Finding, int]]] = defaultdict(list)
    for one in judged:
        for finding in one.findings:
            by_kind[finding.kind].append((finding, one.number))
    common: list[Finding] = []
    rare: list[Finding] = []
    speakers: dict[str, int] = {}
    for kind, found in by_kind.items():
        # The one in the middle stands for all.
        found.sort(key=lambda pair: -pair[0].share)
        finding, number = found[(len(found) - 1) // 2]
        speakers[kind] = number
        middle = replace(finding, ranks=tuple(sorted(rank for _, rank in found)))
        (common if 2 * len(found) >= len(judged) else rare).append(middle)
    if any(finding.kind != "compute-bound" for finding in common):
        common = [finding for finding in common if finding.kind != "compute-bound"]
    rare = [finding for finding in rare if finding.kind != "compute-bound"]
    return ranked(common), ranked(rare), speakers


def _with_late_ranks(finding: Finding, judged: Sequence[_Judged]) -> Finding:
    """Return the finding; of communication with the ranks that the others wait for."""
    if finding.kind != COMMUNICATION_BOUND.kind:
        return finding
    shares = {one.number: one.sums.share("comm").share for one in judged if one.sums is not None}
    waiting = float(np.median([shares[rank] for rank in finding.ranks]))
    late = sorted(rank for rank, share in shares.items() if share < LATE * waiting)
    if not late:
        return finding
    told = Communication(**COMMUNICATION_BOUND.of(finding), late_ranks=late)
    # What is said of waiting, and the parts below it, are of those who wait.
    ranks = tuple(rank for rank in finding.ranks if rank not in late)
    return replace(finding, evidence=cast("JsonObject", told), ranks=ranks)


def _step_facts(evidence: Evidence) -> StepFacts:
    steps, steady = evidence.steps, evidence.steady
    used = evidence.used
    return StepFacts(
        found_by=steps.found_by,
        count=len(steps),
        steady=len(steady),
        warm_up=steady.warm_up,
        accumulation=steps.accumulation,
        median_ns=int(steady.median_ns),
        mean_ns=int(np.mean(evidence.time[used] if used.any() else evidence.time)),
        scale_ns=int(steady.scale_ns),
    )


def _parts(judged: Sequence[_Judged]) -> dict[str, PartTime]:
    all_sums = [one.sums for one in judged if one.sums is not None]
    ranks = [one.evidence.steps for one in judged if one.evidence is not None]
    if not all_sums:
        all_sums = [BatchSums.of(steps.parts, np.maximum(steps.time_ns, 1)) for steps in ranks]
    sums = BatchSums.merged(all_sums)
    parts: dict[str, PartTime] = {}
    for part in STEP_PARTS:
        share = sums.share(part)
        parts[part] = PartTime(
            round(share.share, 6),
            round(share.low, 6),
            round(share.high, 6),
            sum(int(steps.parts[part].sum()) for steps in ranks),
            sum(steps.hidden_ns.get(part, 0) for steps in ranks),
        )
    return parts


def _slowest(evidence: Evidence) -> tuple[SlowStep, ...]:
    chosen = np.flatnonzero(evidence.steady.mask)
    order = chosen[np.argsort(-evidence.time[chosen], kind="stable")][:SHOWN_STEPS]
    starts, ts_us = evidence.steps.start_ns, evidence.rank.process.ts_us
    return tuple(
        SlowStep(
            *(int(evidence.steps.number[at]), ts_us(int(starts[at])), int(evidence.time[at])),
            **vars(evidence.steps.marks.beside(at)),
        )
        for at in order.tolist()
    )


def _abstentions(evidence: Evidence, *, enough: bool) -> tuple[Abstention, ...]:
    steady = counted(len(evidence.steady), "steady step")
    clock = evidence.rank.process.clock
    if clock.places:
        back = f"its times go back by {hours_text(clock.ns)}: the clock was set while it ran"
        return (Abstention("run", back),)
    if not enough:
        return (Abstention("run", f"{steady}, at least {FEWEST_STEPS} are needed"),)
    found: list[Abstention] = []
    if evidence.is_short:
        found.append(
            Abstention(
                "all but clear shares of a step",
                f"{steady}, {evidence.limits['steps'].warning:g} are needed for the rest",
            )
        )
    if evidence.gpu_told:
        found.append(Abstention("what the GPU does", evidence.gpu_told))
    if evidence.hides_comm:
        found.append(
            Abstention(
                "compute-bound",
                f"{evidence.rank.process.world_size} ranks, and no communication is annotated",
            )
        )
    return tuple(found)
