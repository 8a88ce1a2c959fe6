"""Which finding comes first, and which ones another explains."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from dftrace_ai.analysis.why.figures import (
    INPUT_BOUND,
    NOT_ANNOTATED,
    SLOWER_AND_SLOWER,
    Also,
    Input,
)
from dftrace_ai.analysis.why.model import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dftrace_ai.analysis.why.limits import Limits
    from dftrace_ai.analysis.why.model import Finding, Kind
    from dftrace_ai.trace_format.json_types import JsonObject

__all__ = ["explained", "one_of_input", "ranked"]

# Workers make bursts of waits, a checkpoint every so often makes slow steps.
EXPLAINS: Final[dict[str, Kind]] = {
    "checkpoint": "checkpoint-bound",
    "wait": "input-bound",
    "data": "input-bound",
    "other": "other-heavy",
}
MOST_OF_IT: Final = 0.6
# Where a part of a step grew from below its limit, that it grew is the news. A wait that grew stays
# a finding of its own: what loads too slowly can be told. Parts have the names of their limits.
GREW: Final[dict[Kind, str]] = {
    "optimizer-heavy": "optimizer",
    "communication-bound": "comm",
    "transfer-bound": "transfer",
    "other-heavy": "other",
}
DRIFTS: Final[frozenset[Kind]] = frozenset({"slower-and-slower", "slower-since"})
SEVERITIES: Final = ("critical", "warning", "info")


def explained(findings: Iterable[Finding], limits: Limits) -> list[Finding]:
    """Return the findings without those that another one explains.

    Args:
        findings: of a rank.
        limits: from which shares on something is a finding.
    """
    found = list(findings)
    # By part of a step: its share at first.
    drifts = [finding for finding in found if finding.kind in DRIFTS and finding.cause]
    grown = {drift.cause: SLOWER_AND_SLOWER.of(drift)["shares"][0] for drift in drifts}

    def has_grown(finding: Finding) -> bool:
        part = GREW.get(finding.kind, "")
        return part in grown and grown[part] < limits[part].warning

    found = [finding for finding in found if not has_grown(finding)]
    beat = next((f.share for f in found if f.kind == "periodic" and f.cause == "other"), 0.0)

    def is_a_beat(finding: Finding) -> bool:
        # When it comes says more than how much it is.
        return finding.kind == "other-heavy" and beat >= MOST_OF_IT * finding.share

    found = [finding for finding in found if not is_a_beat(finding)]
    kinds = {finding.kind for finding in found}

    def is_explained(finding: Finding) -> bool:
        if finding.kind == "slow-step" and finding.cause == "checkpoint":
            return True  # saving takes its time, once as often
        # Of a change, of a beat and of bursts there are two kinds of steps, too.
        if finding.kind == "two-kinds" and kinds & {"periodic", *DRIFTS}:
            return True
        if finding.kind == "two-kinds" and finding.cause == "none":
            return "not-annotated" in kinds
        if finding.kind == "not-annotated" and NOT_ANNOTATED.of(finding)["bursts"]:
            return any(one.cause == "none" and one.kind != "two-kinds" for one in found)
        patterns = {"periodic", "slow-step", "slow-loop-start", "two-kinds"}
        return finding.kind in patterns and EXPLAINS.get(finding.cause) in kinds

    return [finding for finding in found if not is_explained(finding)]


def one_of_input(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings with one of the input at most: the larger, the other is beside it.

    Args:
        findings: of a rank.
    """
    found = list(findings)
    of_input = sorted((f for f in found if f.kind == "input-bound"), key=lambda f: -f.cost)
    if len(of_input) < 2:
        return found
    first, second = of_input[:2]
    also = Also(
        cause=second.cause,
        share=second.share,
        low=second.low,
        high=second.high,
        share_of=second.share_of,
        confidence=second.confidence,
    )
    both = replace(first, evidence=cast("JsonObject", Input(**INPUT_BOUND.of(first), also=also)))
    return [both, *(finding for finding in found if finding.kind != "input-bound")]


def ranked(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings by severity, what is sure first, then by cost, then the more special.

    Where ranks wait for others, what these do in no span comes behind it.

    Args:
        findings: in any order.
    """
    found = list(findings)
    waiting = {rank for one in found if one.kind == "communication-bound" for rank in one.ranks}
    return sorted(
        found,
        key=lambda finding: (
            SEVERITIES.index(finding.severity),
            finding.confidence == "low",
            finding.kind == "not-annotated" and bool(waiting - {*finding.ranks}),
            -finding.cost,
            KINDS.index(finding.kind),
        ),
    )
