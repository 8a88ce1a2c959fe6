"""From judged ranks to the verdict on their job: what holds for at least half of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from dftrace_ai.analysis.endings import breaks_off, ends_told, fewer_steps, quiet_end
from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.reading.reach import utc_text
from dftrace_ai.analysis.reading.trace_end import are_whole
from dftrace_ai.analysis.reading.unranked import unranked_told
from dftrace_ai.analysis.steps import Job
from dftrace_ai.analysis.steps.elsewhere import made_elsewhere
from dftrace_ai.analysis.steps.measuring import STEP_PARTS
from dftrace_ai.analysis.texts import MOST_RANKS, few
from dftrace_ai.analysis.thresholds import Abstention
from dftrace_ai.analysis.why.judging import judged_of
from dftrace_ai.analysis.why.late_ranks import WHOM, LateRanks, late_ranks_of
from dftrace_ai.analysis.why.model import (
    LIMITS,
    Finding,
    Input,
    NotAnnotated,
    PartTime,
    Verdict,
    figures_of,
)
from dftrace_ai.analysis.why.of_ranks import OfRank, told_of_ranks, waits
from dftrace_ai.analysis.why.sentences import in_words
from dftrace_ai.analysis.why.words import range_text
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from dftrace_ai.analysis.executors import Spread
    from dftrace_ai.analysis.reading import TraceSet
    from dftrace_ai.analysis.reading.identity import Owner, Owners
    from dftrace_ai.analysis.reading.trace_set import TracePaths
    from dftrace_ai.analysis.steps.job import JobFacts
    from dftrace_ai.analysis.thresholds import Confidence, Limits
    from dftrace_ai.analysis.why.judging import JudgedRank, JudgedSteps, Others
    from dftrace_ai.analysis.why.model import Kind

NO_STEPS: Final = (
    "no steps were found: no loop over a loader that trains (ai.dataloader.fetch.iter), no "
    "ai.pipeline.step, no step numbers (ai.update) and no two optimizer steps (ai.compute.step)"
)
NONE_LEFT: Final = "no steps were found that can be judged: the traces are not whole"
# Behind the path of a torn file, in what is told of it.
BEHIND_PATH: Final = ": torn: "
# Of all processors so many percent are in use by others than this job where a host is crowded.
OTHERS_PERCENT: Final = 40.0
# What is lost of a rank, and how.
LOST: Final = (("event", "that were dropped"), ("span", "without an end"))
# Of which it is less sure what made them, where other programs are on the machine.
UNSURE_IN_CROWDS: Final[tuple[Kind, ...]] = (
    *("periodic", "slower-and-slower", "slower-since", "two-kinds"),
    *("slow-warm-up", "slow-loop-start", "slow-step"),
)
# What takes no time of processors.
SURE_IN_CROWDS: Final[tuple[Kind, ...]] = ("memory-creep", "compute-bound")


def why(paths: TracePaths, limits: Limits | None = None, spread: Spread | None = None) -> Verdict:
    """Judge a run by its traces.

    Args:
        paths: files and directories, as for `open_traces`.
        limits: from which shares on something is a finding, see `limits_of`; by default
            `LIMITS`.
        spread: who reads the ranks; by default this process, one after the other.

    Returns:
        The verdict, with what other packages find; with too little to say, why it is silent.

    Raises:
        TraceError: a path is missing or is no trace, or nothing can be read.

    Example::

        verdict = why(["out/"])
        if verdict.findings:
            print(verdict.findings[0].what, verdict.findings[0].next)
    """
    from dftrace_ai.analysis.why.plugged_in import with_plugins

    traces = open_traces(paths)
    return with_plugins(judge_traces(traces, limits, spread), traces)


def judge_traces(
    traces: TraceSet, limits: Limits | None = None, spread: Spread | None = None
) -> Verdict:
    """Judge a run by its files; as `why`, without asking other packages."""
    limits = LIMITS if limits is None else limits
    job = Job(traces)
    if spread is None:
        judged = judged_of(job, limits)
    else:
        judged = judged_of((), limits)
        for part in made_elsewhere(job, partial(judged_of, limits=limits), spread):
            judged.merge(part)
    verdict = verdict_of(judged.ranks, judged.others, traces, job.facts, limits)
    return replace(verdict, notes=(*(spread.left_out if spread else ()), *verdict.notes))


def verdict_of(
    judged: Iterable[JudgedRank],
    others: Others,
    traces: TraceSet,
    facts: JobFacts,
    limits: Limits,
) -> Verdict:
    """Return the verdict on a job."""
    job = _JudgedJob(judged, others, traces)
    verdict = _verdict(job, facts, limits, [*_ends_told(job, facts, traces)])
    marks = [*others.marks, *(rank.nonfinite for rank in job.ranks if rank.nonfinite)]
    first = min(marks, key=lambda mark: mark.at_ns).told if marks else None
    if job.names:
        verdict = _of_processes(verdict, job.names)
        first = first and replace(first, rank=None)
    skipped = tuple(f"skipped: {file}" for file in traces.skipped)
    return replace(
        verdict,
        notes=(*verdict.notes, *skipped),
        began_at=utc_text(facts.reach.began_ns),
        length_ns=facts.reach.length_ns,
        nonfinite=first,
        limits={name: (limit.warning, limit.critical) for name, limit in limits.items()},
    )


class _JudgedJob:
    """All ranks in their order, and what they show together."""

    def __init__(self, judged: Iterable[JudgedRank], others: Others, traces: TraceSet) -> None:
        self.ranks = sorted(judged, key=lambda rank: rank.order)
        # One of which it is not known which rank it is hides nothing of the others.
        owners = traces.owners
        unranked = [rank for rank in self.ranks if owners.all[rank.order[1]].header.rank is None]
        self.left_out: list[str] = []
        if len(self.ranks) - len(unranked) > max(1, len(unranked)):
            self.ranks = [rank for rank in self.ranks if rank not in unranked]
            some = (owners.all[rank.order[1]] for rank in unranked)
            self.left_out = unranked_told(owners, some)
        numbers = Counter(rank.number for rank in self.ranks)
        # Where they say no rank, or the same one: by the place at which each is told apart.
        self.names: dict[int, str] = {}
        if len(numbers) < len(self.ranks):
            pids = Counter(rank.order[2] for rank in self.ranks)
            for at, rank in enumerate(self.ranks):
                number, owner, pid = rank.order
                is_rank = number > 0 and numbers[number] == 1
                name = pid if pid and pids[pid] == 1 else traces.owners.labels[owner]
                self.names[at] = f"rank {number}" if is_rank else f"process {name}"
            self.ranks = [
                replace(rank, order=(at, *rank.order[1:])) for at, rank in enumerate(self.ranks)
            ]
        self.has_loader = any(rank.signs.loader for rank in self.ranks)
        self._waits = any(rank.signs.waits for rank in self.ranks)
        self._others_have_items = others.items
        self.breaks_off = len(self.ranks) > 1 and breaks_off(traces.owners)
        self._of_host = Counter(rank.host for rank in self.ranks)
        self.torn = [owner for owner in owners.all if _is_torn(owner, owners)]
        self.judged = [*self._judged()]
        # Of which a tear has left too little.
        lost = {owner.header.rank for owner in self.torn if not self.names}
        self.lost_ranks = lost - {rank.number for rank, _ in self.judged} - {None}

    def _judged(self) -> Iterator[tuple[JudgedRank, JudgedSteps]]:
        # A few steps of a torn one tell of no others.
        judged = [(rank, rank.steps) for rank in self.ranks if rank.steps and rank.steps.is_judged]
        torn = {owner.number for owner in self.torn}
        is_long = any(not steps.is_short for _, steps in judged)
        for rank, steps in judged:
            if not (is_long and steps.is_short and rank.order[1] in torn):
                yield rank, steps

    def late_ranks(self, judged: Sequence[OfRank]) -> LateRanks:
        """Return which ranks the others wait for."""
        partials = [rank.partial for rank in self.ranks if rank.partial is not None]
        # Processes of one number, or without any, are not to be told apart.
        if len(partials) < 2 or len({one.place.rank for one in partials}) < len(self.ranks):
            return LateRanks()
        by_number = {one.number: one.steps for one in judged}
        return late_ranks_of(partials, by_number, breaks_off=self.breaks_off)

    def beside_lost(self, late: LateRanks, judged: Sequence[OfRank]) -> LateRanks:
        # Ranks may wait for those of which too little is left.
        wait = any(waits(one) for of in judged for one in of.findings)
        if not self.lost_ranks or not (late.found or wait):
            return late
        return late._replace(unsure=(_may_be_late(self.lost_ranks),))

    def completed(self, rank: JudgedRank, steps: JudgedSteps, limits: Limits) -> OfRank:
        """Return the findings of a rank as they are beside what the other processes show."""
        others = self._others_percent(rank)
        findings: list[Finding] = []
        for finding in steps.findings:
            if finding.kind == "input-bound":
                findings.append(self._of_input(rank, finding))
            elif finding.kind == "not-annotated":
                findings += self._not_annotated(steps, finding, limits)
            else:
                findings.append(finding)
        if others is not None:
            findings = [_in_a_crowd(finding) for finding in findings]
        of_rank = tuple(replace(finding, rank=rank.number) for finding in findings)
        return OfRank(rank.number, steps, of_rank, others)

    def is_crowded(self, found: Sequence[OfRank]) -> bool:
        """Return whether ranks have to wait for processors: for other programs, or each other."""
        others = sum(one.others_percent is not None for one in found)
        places = [rank.partial.place for rank in self.ranks if rank.partial is not None]
        return 2 * others > len(found) or any(
            one.cpus is not None and self._of_host[one.host] > one.cpus for one in places
        )

    def host_notes(self, found: Iterable[OfRank]) -> Iterator[str]:
        """Yield what is known of each host by its ranks: the figure of the one in the middle."""
        hosts = {rank.number: rank.host for rank in self.ranks}
        used: dict[str, dict[int, float]] = defaultdict(dict)
        waited: dict[str, dict[int, float]] = defaultdict(dict)
        for one in found:
            if one.others_percent is not None:
                used[hosts[one.number]][one.number] = one.others_percent
            if one.steps.disk_waiting:
                waited[hosts[one.number]][one.number] = one.steps.disk_waiting

        def of(ranks: Iterable[int]) -> str:
            return f"the host of ranks {few(ranks)}" if len(self._of_host) > 1 else "the host"

        for percents in used.values():
            middle = f"{np.median([*percents.values()]):.0f} %"
            yield f"other programs used {middle} of the processors of {of(percents)} meanwhile"
        for counts in waited.values():
            middle = f"{np.median([*counts.values()]):.1f}"
            yield f"{middle} processors of {of(counts)} waited for disks meanwhile (I/O wait)"

    def rank_notes(self, found: Sequence[OfRank], known: Collection[str]) -> Iterator[str]:
        """Yield what is to be told of ranks, and of which where it is not of all."""
        ranks: dict[str, list[int]] = defaultdict(list)
        # Who reads samples comes upon the end of a torn file as well.
        torn = {note.partition(BEHIND_PATH)[0] for note in known if BEHIND_PATH in note}
        for one in found:
            for note in {*one.steps.notes}.difference(known):
                path, tear, _ = note.partition(BEHIND_PATH)
                if not tear or path not in torn:
                    ranks[note].append(one.number)
        for note, of in ranks.items():
            yield f"{note}{self._named(of)}"

    def lost(self) -> Iterator[str]:
        """Yield what was lost of ranks."""
        lost = {one.number: one.steps.lost for one in self.ranks if one.steps is not None}
        for at, (noun, how) in enumerate(LOST):
            of = {number: counts[at] for number, counts in lost.items() if counts[at]}
            if of:
                yield f"{counted(sum(of.values()), noun)} {how}{self._named([*of])}"

    def _named(self, ranks: Sequence[int]) -> str:
        """Return which ranks these are, where they are not all of them and are known by number."""
        if self.names or len(ranks) == len(self.ranks):
            return ""
        return f" (rank{'s' if len(ranks) > 1 else ''} {few(ranks)})"

    def _of_input(self, rank: JudgedRank, finding: Finding) -> Finding:
        figures = Input(**figures_of(finding, Input))
        if "ranks_of_host" in figures:
            figures["ranks_of_host"] = self._of_host[rank.host]
        if "items_told" in figures:
            # It may not be known for whom these are.
            figures["items_told"] = rank.signs.items or self._others_have_items
        return replace(finding, evidence=figures)

    def _not_annotated(
        self, steps: JudgedSteps, finding: Finding, limits: Limits
    ) -> Iterable[Finding]:
        figures = NotAnnotated(**figures_of(finding, NotAnnotated))
        # Neither has every loop a loader, nor every stage of a pipeline that has one.
        if steps.misses_loader and self.has_loader and not self._waits:
            figures["lacking"] = ["the loader", *figures["lacking"]]
            figures["by_auto"] = False
            finding = replace(finding, confidence="low", evidence=figures)
        elif figures["by_auto"] and steps.unnamed_is_little:
            if steps.is_short:
                return
            # What a framework does for each step is much of small ones, and nobody's to annotate.
            finding = replace(finding, severity="info")
        yield finding

    def _others_percent(self, rank: JudgedRank) -> float | None:
        """Return how much of a rank's host others used; None where they left enough, or unknown."""
        crowd = rank.crowd
        if crowd is None:
            return None
        if any(one.host == rank.host and one.header.rank in self.lost_ranks for one in self.torn):
            return None  # what these used is not known
        used = [
            one.mean(crowd.low_ns, crowd.high_ns)
            for other in self.ranks
            if other.host == rank.host
            for one in other.used
        ]
        known = [percent for percent in used if percent is not None]
        if len(known) < len(used):
            return None  # what it used is not known
        others = crowd.percent - sum(known) / crowd.cpus
        return others if others >= OTHERS_PERCENT else None


def _may_be_late(ranks: Collection[int | None]) -> Abstention:
    numbers = few(rank for rank in ranks if rank is not None)
    if len(ranks) > 1:
        why = f"ranks {numbers}, whose traces are torn, may be late"
    else:
        why = f"rank {numbers}, whose trace is torn, may be late"
    return Abstention(WHOM, why)


def _is_torn(owner: Owner, owners: Owners) -> bool:
    is_rank = owner.is_last and owner.header.rank is not None and owners.employer(owner) is None
    return is_rank and not owner.files[-1].end.whole


def _in_a_crowd(finding: Finding) -> Finding:
    """Return a finding of a host that others kept busy: what took long may be theirs."""
    sure: Confidence = "low" if finding.kind in UNSURE_IN_CROWDS else finding.confidence
    if sure == "high" and finding.kind not in SURE_IN_CROWDS:
        sure = "medium"
    return replace(finding, confidence=sure)


def _after_the_crowd(finding: Finding, judged: Sequence[OfRank]) -> Finding:
    """Return a finding; its advice begins with the others where they crowded most of its ranks."""
    # By how much others crowd all of its hosts nobody is later than the others.
    if finding.kind in SURE_IN_CROWDS or finding.late_ranks:
        return finding
    others = [one.others_percent for one in judged if one.number in finding.ranks]
    crowds = [percent for percent in others if percent is not None]
    if not crowds or 2 * len(crowds) < len(others):
        return finding
    first = f"Others use {np.median(crowds):.0f} % of the processors: train without them first."
    return replace(finding, next=f"{first} {finding.next}".rstrip())


def _ends_told(job: _JudgedJob, facts: JobFacts, traces: TraceSet) -> Iterator[str]:
    """Yield that ranks have fewer steps than others, how they ended, and none for long."""
    yield from job.left_out
    steps = {rank.number: rank.steps for rank in job.ranks if rank.steps is not None}
    if not job.names:
        yield from fewer_steps({number: one.facts.count for number, one in steps.items()})
    if steps and facts.reach.length_ns is not None:
        last = max(steps.values(), key=lambda one: one.last_ns)
        times = (last.last_ns, facts.reach.last_ns, facts.reach.length_ns, last.facts.mean_ns)
        quiet = quiet_end(traces.owners, *times)
        if quiet:
            yield quiet
            return
    if len(steps) > 1 and not job.names:
        yield from ends_told(traces.owners)


def _verdict(job: _JudgedJob, facts: JobFacts, limits: Limits, ends: Sequence[str]) -> Verdict:
    steps = [(rank, rank.steps) for rank in job.ranks if rank.steps is not None]
    found = [job.completed(rank, of_rank, limits) for rank, of_rank in job.judged]
    if not steps:
        return Verdict(
            "abstained",
            ranks=len(job.ranks),
            abstained=(Abstention("run", NO_STEPS if are_whole(facts.notes) else NONE_LEFT),),
            notes=facts.notes,
        )
    shown = found[0] if found else job.completed(*steps[0], limits)
    late = job.beside_lost(job.late_ranks(found), found)
    common, rare = told_of_ranks(found, late, crowded=job.is_crowded(found))
    if common:
        # What is shown of steps is of the rank of which the figures of the verdict are.
        shown = next(one for one in found if one.number == common[0].rank)
    of_ranks = [*job.host_notes(found), *job.rank_notes(found, facts.notes)]
    # Of the notes few are shown: what times cannot be comes first, then that something could not be
    # read, which may be why a rank has fewer steps.
    notes = dict.fromkeys(
        [
            *facts.notes[: facts.first_notes + 1],
            *ends,
            *facts.notes,
            *of_ranks,
            *shown.steps.start_notes,
        ]
    )
    enough = any(one.steps.is_whole for one in found)
    by_number: dict[int | None, JudgedSteps] = {one.number: one.steps for one in found}

    def told(findings: Iterable[Finding]) -> tuple[Finding, ...]:
        worded = (
            finding if finding.what else in_words(finding, by_number[finding.rank])
            for finding in findings
        )
        return tuple(_after_the_crowd(finding, found) for finding in worded)

    return Verdict(
        common[0].kind if common else ("none" if enough and not late.unsure else "abstained"),
        rank=shown.number,
        ranks=len(job.ranks),
        steps=shown.steps.facts,
        parts=_parts(shown.steps),
        findings=told(common),
        of_some_ranks=told(rare),
        slowest=shown.steps.slowest,
        abstained=(*shown.steps.abstained, *late.unsure),
        unseen=(
            *(line for line, of_loader in shown.steps.unseen if job.has_loader or not of_loader),
            *job.lost(),
        ),
        notes=tuple(notes),
        lines=shown.steps.lines,
    )


def _of_processes(verdict: Verdict, names: Mapping[int, str]) -> Verdict:
    """Return a verdict on processes that are not to be told apart by ranks: by their numbers."""

    def told(finding: Finding) -> Finding:
        of, most = finding.ranks, len(names)
        chosen = [names[one] for one in of[:MOST_RANKS]]
        more = f" and {len(of) - MOST_RANKS:,} more" if len(of) > MOST_RANKS else ""
        some = "" if len(of) == most else f": {', '.join(chosen)}{more}"
        shares = range_text(finding)
        who = f"On {'all' if len(of) == most else f'{len(of)} of'} {most} processes{shares}{some}."
        if len(of) > 1 and finding.rank is not None:
            who += f" The figures are of {names[finding.rank]}."
        return replace(finding, what=f"{finding.what} {who}", ranks=(), rank=None)

    shown = "" if verdict.rank is None or verdict.steps is None else names[verdict.rank]
    note = f"{len(names):,} processes train that say no rank, or the same one" + (
        f": the steps of {shown} are shown" if shown else ""
    )
    return replace(
        verdict,
        rank=None,
        findings=tuple(map(told, verdict.findings)),
        of_some_ranks=tuple(map(told, verdict.of_some_ranks)),
        notes=(note, *verdict.notes),
    )


def _parts(judged: JudgedSteps) -> dict[str, PartTime]:
    parts: dict[str, PartTime] = {}
    for part in STEP_PARTS:
        share, low, high = judged.sums.share(part)
        ns, hidden_ns = judged.ns[part]
        parts[part] = PartTime(round(share, 6), round(low, 6), round(high, 6), ns, hidden_ns)
    return parts
