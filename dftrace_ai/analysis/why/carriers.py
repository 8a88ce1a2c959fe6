"""For each finding the line of the program that carries it, by samples of stacks.

Loaded late: most traces hold none.
"""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from dftrace_ai.analysis.lines.carrying import NOT_LET_RUN, Carrier, NotRun, let_run, wilson
from dftrace_ai.analysis.lines.rank_stacks import WORK, more_than
from dftrace_ai.analysis.lines.words import carrier_text, phase_name, place_text
from dftrace_ai.analysis.texts import few, time_text
from dftrace_ai.analysis.why.findings.patterns import rhythm_of
from dftrace_ai.analysis.why.findings.shares import HOST_PARTS, LONG_ITEM
from dftrace_ai.analysis.why.model import START_UP, DriftSince, FindingLine, Input, figures_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from dftrace_ai.analysis.lines.carrying import Sampled, Silence
    from dftrace_ai.analysis.lines.rank_stacks import FunctionTimes, More, RankStacks
    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.steps import Part
    from dftrace_ai.analysis.why.evidence import Evidence
    from dftrace_ai.analysis.why.model import Finding, Kind

# By kind, of which parts of the steps a finding is, and what they are called together.
OF_PARTS: Final[Mapping[Kind, tuple[Part, ...]]] = {
    "communication-bound": ("comm",),
    "transfer-bound": ("transfer",),
    "optimizer-heavy": ("optimizer",),
    "other-heavy": ("other",),
    "not-annotated": ("none",),
    "host-bound": HOST_PARTS,
}
# Phases of fewer samples are not listed.
LEAST_LISTED: Final = 0.02
# A rank is in a function for so much of a step longer than the others.
LEAST_MORE: Final = 0.1
LATER, EARLIER = 2 / 3, 1 / 3


class _Found(NamedTuple):
    """What carries a finding, and of what that is a share."""

    carrier: Carrier | NotRun | Silence
    phase: str


def with_line(finding: Finding, evidence: Evidence, stacks: RankStacks) -> tuple[FindingLine, ...]:
    """Return the line that carries a finding; nothing for kinds that no line can."""
    found = _by_parts(finding, evidence, stacks) or _by_more(finding, evidence, stacks)
    return () if found is None else (_line(found),)


def all_lines(stacks: RankStacks) -> tuple[FindingLine, ...]:
    """Return the lines that carry the phases of a rank, or why none does, the longest first."""
    phases = [(sampled, phase_name(phase)) for phase, sampled in stacks.phases()]
    total = sum(len(sampled.samples) for sampled, _ in phases)
    some = [one for one in phases if len(one[0].samples) >= LEAST_LISTED * total]
    some.sort(key=lambda one: -len(one[0].samples))
    return tuple(_line(_Found(stacks.carrier(sampled), name)) for sampled, name in some)


def _line(found: _Found) -> FindingLine:
    if isinstance(found.carrier, Carrier):
        return FindingLine(found.phase, carrier_text(found.carrier, found.phase), found.carrier)
    if isinstance(found.carrier, NotRun):
        came, promised = found.carrier
        told = f"the process itself was not let run: {came} of {promised:,} samples came"
        return FindingLine(found.phase, told)
    return FindingLine(found.phase, silence=found.carrier)


def _by_parts(finding: Finding, evidence: Evidence, stacks: RankStacks) -> _Found | None:
    """Return what carries a part of all steps, or what lies beside them."""
    kind = finding.kind
    if kind == "input-bound":
        return _of_input(finding, evidence, stacks)
    if parts := OF_PARTS.get(kind):
        name = "the time in which the GPU has nothing to do" if kind == "host-bound" else ""
        sampled = stacks.of_parts(*parts, steps=evidence.used)
        return _Found(stacks.carrier(sampled), name or phase_name(parts[0]))
    of: dict[Kind, tuple[Callable[[], Sampled], str]] = {
        "checkpoint-bound": (lambda: stacks.of_parts("checkpoint"), phase_name("checkpoint")),
        "evaluation-heavy": (lambda: stacks.of_parts("evaluation"), "evaluation"),
        "between-steps": (stacks.between_steps, "the time between steps"),
        "start-up-heavy": (
            lambda: stacks.before(int(evidence.steps.end_ns[0])),
            "the time before the second step",
        ),
    }
    if kind not in of:
        return None
    take, name = of[kind]
    return _Found(stacks.carrier(take()), name)


def _of_input(finding: Finding, evidence: Evidence, stacks: RankStacks) -> _Found:
    """Return what carries the waiting for data: work on it, or else the waiting itself."""
    if finding.cause == START_UP:
        sampled = stacks.of_parts("wait", "data", steps=evidence.steps.first)
        return _Found(stacks.carrier(sampled), "what leads to a first batch")
    if finding.cause == "slow-item":
        figures = figures_of(finding, Input)
        slow = stacks.of_work("item", least_ns=LONG_ITEM * figures["median_ns"])
        waits = slow is not None and let_run(slow.samples) < 1 / 2
        return _Found(NOT_LET_RUN if waits else stacks.carrier(slow), "these items")
    work = [(stacks.of_work(role), phase_name(role)) for role in WORK]
    some = [(sampled, name) for sampled, name in work if sampled is not None]
    if some and finding.cause != "idle-workers":
        # Reading files lies within items, as a rule.
        sampled, name = max(some, key=lambda one: len(one[0].samples))
        return _Found(stacks.carrier(sampled), name)
    return _Found(stacks.carrier_of_wait(evidence.used), phase_name("wait"))


def _by_more(finding: Finding, evidence: Evidence, stacks: RankStacks) -> _Found | None:
    """Return what has most of what some steps take more than others."""
    kind, steady = finding.kind, evidence.steady.mask
    if kind == "slow-step":
        return _of_slow_steps(evidence, stacks)
    if kind == "periodic":
        rhythm = rhythm_of(evidence)
        if rhythm is None:
            return None
        slow = _mask(evidence, rhythm.members)
        return _more(stacks, slow, evidence.single & ~slow)
    if kind in {"slower-since", "slower-and-slower"}:
        return _of_drift(finding, evidence, stacks)
    if kind == "two-kinds":
        median = np.median(evidence.time[evidence.used])
        slow = evidence.used & (evidence.time > median * 1.2)
        return _more(stacks, slow, evidence.used & ~slow)
    if kind == "slow-warm-up":
        slow = np.arange(len(steady)) < evidence.steady.warm_up
        return _more(stacks, slow, steady)
    if kind == "slow-loop-start":
        slow = evidence.beginnings.members
        return _more(stacks, slow, steady & ~slow)
    return None


def _mask(evidence: Evidence, steps: Integers) -> Integers:
    mask = np.zeros(len(evidence.time), bool)
    mask[steps] = True
    return mask


def _more(stacks: RankStacks, slow: Integers, usual: Integers) -> _Found:
    return _Found(stacks.carrier_of_more(slow, usual), "what these steps take more")


def _of_slow_steps(evidence: Evidence, stacks: RankStacks) -> _Found:
    """Return what all single slow steps have, or else the slowest that a line carries."""
    slow, usual = evidence.isolated, evidence.steady.mask & ~evidence.isolated
    pooled = _more(stacks, slow, usual)
    places = np.flatnonzero(slow)
    if isinstance(pooled.carrier, Carrier) or len(places) < 2:
        return pooled
    for place in places[np.argsort(-evidence.time[places], kind="stable")].tolist():
        carrier = stacks.carrier_of_more(_mask(evidence, np.array([place])), usual)
        if isinstance(carrier, Carrier):
            return _Found(carrier, f"what step {int(evidence.steps.number[place])} takes more")
    return pooled


def _of_drift(finding: Finding, evidence: Evidence, stacks: RankStacks) -> _Found:
    used = np.flatnonzero(evidence.used)
    if finding.kind == "slower-since":
        since = figures_of(finding, DriftSince)["step"]
        late = evidence.used & (evidence.steps.number >= since)
        return _Found(stacks.carrier_of_more(late, evidence.used & ~late), "what they take longer")
    late = _mask(evidence, used[int(LATER * len(used)) :])
    early = _mask(evidence, used[: int(EARLIER * len(used))])
    return _Found(stacks.carrier_of_more(late, early), "what the last steps take longer")


def line_of_late_rank(
    number: int,
    late: Collection[int],
    late_ns: float,
    functions: Mapping[int, FunctionTimes | None],
) -> tuple[tuple[FindingLine, ...], str]:
    """Return what a late rank does longer than the others, in one line; nothing where unknown.

    It tells of all late ranks that do it. Where they alone do, and half of its lateness or more is
    there, also what to try next.
    `late_ns` is how much longer than the others it works in a step, on average.
    """
    own = functions.get(number)
    others = [one for of, one in functions.items() if of not in late and one is not None]
    if own is None or not own.steps:
        return (), ""
    step_ns = own.samples * own.period_ns / own.steps
    more = more_than(own, others, LEAST_MORE * step_ns)
    if more is None:
        return (), ""
    only = "" if more.others_ns else " only"
    theirs = time_text(more.others_ns) if more.others_ns else "0"
    alike = _late_alike(more, {number, *late}, functions)
    who, are = (f"rank {number}", "is") if len(alike) < 2 else (f"ranks {few(alike)}", "are")
    own_ns = fmean(alike.values())
    place = place_text(more.name, more.file, more.line)
    alone = not more.others_ns and 2 * more.own_ns >= late_ns
    following = f"Why {who} alone {are} in {place}." if alone else ""
    text = f"on {who}{only}: {place} {time_text(own_ns)} a step, {theirs} on the others"
    of = own.functions[more.name, more.file]
    # Workers may be in it for longer than the thread that trains takes for its steps.
    hits = min(of.samples, own.samples)
    share = hits / own.samples, *wilson(hits, own.samples)
    carrier = Carrier(more.name, more.file, more.line, *share, own.samples)
    return (FindingLine(f"steps of rank {number}", text, carrier),), following


def _late_alike(
    more: More, late: Collection[int], functions: Mapping[int, FunctionTimes | None]
) -> dict[int, float]:
    """Return the late ranks that surely are in a function for longer than others, and how long."""
    alike: dict[int, float] = {}
    for number in sorted(late):
        of = functions.get(number)
        if of is None or not of.steps:
            continue
        own_ns, error = of.ns((more.name, more.file))
        if own_ns - error > more.others_ns:
            alike[number] = own_ns
    return alike
