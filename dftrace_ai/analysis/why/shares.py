"""Findings that are a share of every step: input, communication, copies, optimizer, idle time."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from dftrace_ai.analysis.why.input_causes import cause_of_input
from dftrace_ai.analysis.why.statistics import BatchSums

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dftrace_ai.analysis.steps import Part
    from dftrace_ai.analysis.why.evidence import Evidence
    from dftrace_ai.analysis.why.model import Finding, Kind

__all__ = ["compute_bound", "share_findings"]

# Where the GPU is idle while the host is in one of these, the host is the reason.
HOST_PARTS: Final[tuple[Part, ...]] = (
    *("forward", "backward", "optimizer", "compute", "launch", "other", "none"),
)
# Of the limit: what at least the median step has in no span.
TYPICAL: Final = 0.75
# As much would be a finding, were it annotated.
MOST_NOT_ANNOTATED: Final = 0.10


def share_findings(evidence: Evidence) -> Iterator[Finding]:
    """Yield what costs every step too much.

    From few steps only what is critical, with low confidence.

    Args:
        evidence: of a rank.
    """
    for finding in _all(evidence):
        if not evidence.is_short:
            yield finding
        elif finding.severity == "critical":
            yield replace(finding, confidence="low")


def _all(evidence: Evidence) -> Iterator[Finding]:
    limits, sums, sure = evidence.limits, evidence.sums, evidence.confidence
    waiting = evidence.finding(
        "input-bound", limits["input"], sums.share("wait", "data"), confidence=sure
    )
    if waiting:
        cause = cause_of_input(evidence)
        yield replace(
            waiting,
            cause=cause.name,
            confidence=sure if cause.name or sure == "low" else "medium",
            evidence=cause.figures,
        )
    single: tuple[tuple[Kind, str, Part], ...] = (
        ("communication-bound", "comm", "comm"),
        ("transfer-bound", "transfer", "transfer"),
        ("optimizer-heavy", "optimizer", "optimizer"),
    )
    for kind, limit, part in single:
        # What the share is, is known; waiting for other ranks inside of it would be another cause.
        unsure = part == "optimizer" and evidence.hides_comm
        find = evidence.finding
        if unsure:
            find = partial(find, ranks_unseen=evidence.rank.process.world_size - 1)
        share = sums.share(part)
        finding = find(kind, limits[limit], share, confidence="low" if unsure else sure)
        if finding:
            yield finding
    other = _other_heavy(evidence)
    if other:
        yield other
    idle = _host_bound(evidence) if evidence.signals.gpu else _not_annotated(evidence)
    if idle:
        yield idle


def _other_heavy(evidence: Evidence) -> Finding | None:
    # To Kineto nearly all is other work that is neither an operation nor a kernel.
    if evidence.rank.process.source != "annotated":
        return None
    used, limit = evidence.used, evidence.limits["other"]
    sums = BatchSums.of({"other": evidence.other_ns[used]}, evidence.time[used])
    return evidence.finding(
        "other-heavy",
        limit,
        sums.share("other"),
        confidence=evidence.confidence,
        spans=evidence.longest_others,
    )


def _host_bound(evidence: Evidence) -> Finding | None:
    share = evidence.sums.share(*HOST_PARTS)
    limit = evidence.limits["host"]
    return evidence.finding("host-bound", limit, share, confidence=evidence.confidence)


def _not_annotated(evidence: Evidence) -> Finding | None:
    limit = evidence.limits["not-annotated"]
    used = evidence.used
    unnamed = evidence.unnamed_ns[used]
    typical = np.median(unnamed / evidence.time[used])
    if typical < TYPICAL * limit.warning:
        return None
    signals = evidence.signals
    lacking = [name for name in ("forward", "backward", "optimizer") if not getattr(signals, name)]
    # Neither has every loop a loader, nor every stage of a pipeline that has one.
    if not signals.loader and evidence.has_loader and not _is_waited_for(evidence):
        lacking.insert(0, "the loader")
    if evidence.hides_comm:
        lacking.append("communication")
    return evidence.finding(
        "not-annotated",
        limit,
        BatchSums.of({"none": unnamed}, evidence.time[used]).share("none"),
        confidence="low" if lacking else evidence.confidence,
        lacking=lacking,
    )


def _is_waited_for(evidence: Evidence) -> bool:
    return any(bool(rank.process.spans.has("wait").any()) for rank in evidence.job.ranks)


def compute_bound(evidence: Evidence) -> Finding | None:
    """Return that nothing that is annotated is in the way of computation, where it is so.

    Args:
        evidence: of a rank for which nothing else was found.
    """
    parts: tuple[Part, ...] = ("forward", "backward", "optimizer", "compute")
    share = evidence.sums.share(*(("gpu",) if evidence.signals.gpu else parts))
    used = evidence.used
    idle = float(evidence.unnamed_ns[used].sum() / evidence.time[used].sum())
    if evidence.hides_comm or evidence.is_short:
        return None
    if max(idle, evidence.between) > MOST_NOT_ANNOTATED:
        return None
    limit = evidence.limits["compute"]
    found = evidence.finding("compute-bound", limit, share, confidence=evidence.confidence)
    return found and replace(found, severity="info")
