"""Findings that are a share of every step: input, communication, copies, optimizer, idle time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

import numpy as np

from dftrace_ai.analysis.why.figures import (
    COMMUNICATION_BOUND,
    COMPUTE_BOUND,
    HOST_BOUND,
    INPUT_BOUND,
    NOT_ANNOTATED,
    OPTIMIZER_HEAVY,
    OTHER_HEAVY,
    TRANSFER_BOUND,
    Communication,
    Input,
    NoFigures,
    NotAnnotated,
    Optimizer,
    Others,
)
from dftrace_ai.analysis.why.input_causes import cause_of_input
from dftrace_ai.analysis.why.statistics import BatchSums

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dftrace_ai.analysis.steps import Part
    from dftrace_ai.analysis.why.evidence import Evidence
    from dftrace_ai.analysis.why.model import Finding
    from dftrace_ai.trace_format.json_types import JsonObject

__all__ = ["compute_bound", "share_findings"]

# Where the GPU is idle while the host is in one of these, the host is the reason.
HOST_PARTS: Final[tuple[Part, ...]] = (
    *("forward", "backward", "optimizer", "compute", "launch", "other", "none"),
)
# Of the limit: what at least the median step has in no span.
TYPICAL: Final = 0.75
# So much of what is in no span has to be in the steps that are told as having most of it.
MOST_OF_IT: Final = 0.9
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
        INPUT_BOUND, limits["input"], sums.share("wait", "data"), Input(), confidence=sure
    )
    if waiting:
        cause = cause_of_input(evidence)
        yield replace(
            waiting,
            cause=cause.name,
            confidence=sure if cause.name or sure == "low" else "medium",
            evidence=cast("JsonObject", cause.figures),
        )
    # What the optimizer's share is, is known; waiting for other ranks inside of it would be another
    # cause.
    hidden = evidence.rank.process.world_size - 1 if evidence.hides_comm else 0
    others = (
        evidence.finding(
            *(COMMUNICATION_BOUND, limits["comm"], sums.share("comm"), Communication()),
            confidence=sure,
        ),
        evidence.finding(
            *(TRANSFER_BOUND, limits["transfer"], sums.share("transfer"), NoFigures()),
            confidence=sure,
        ),
        evidence.finding(
            *(OPTIMIZER_HEAVY, limits["optimizer"], sums.share("optimizer")),
            Optimizer(ranks_unseen=hidden),
            confidence="low" if hidden else sure,
        ),
        _other_heavy(evidence),
        _idle(evidence),
    )
    yield from (finding for finding in others if finding)


def _other_heavy(evidence: Evidence) -> Finding | None:
    # To Kineto nearly all is other work that is neither an operation nor a kernel.
    if evidence.rank.process.source != "annotated":
        return None
    used, limit = evidence.used, evidence.limits["other"]
    sums = BatchSums.of({"other": evidence.other_ns[used]}, evidence.time[used])
    return evidence.finding(
        OTHER_HEAVY,
        limit,
        sums.share("other"),
        Others(spans=evidence.longest_others),
        confidence=evidence.confidence,
    )


def _idle(evidence: Evidence) -> Finding | None:
    if evidence.gpu_told:
        return None
    return _host_bound(evidence) if evidence.signals.gpu else _not_annotated(evidence)


def _host_bound(evidence: Evidence) -> Finding | None:
    share = evidence.sums.share(*HOST_PARTS)
    limit = evidence.limits["host"]
    return evidence.finding(HOST_BOUND, limit, share, NoFigures(), confidence=evidence.confidence)


def _not_annotated(evidence: Evidence) -> Finding | None:
    limit = evidence.limits["not-annotated"]
    used = evidence.used
    unnamed = evidence.unnamed_ns[used]
    # Of what only some steps have a shape may tell more.
    typical = float(np.median(unnamed / evidence.time[used])) >= TYPICAL * limit.warning
    largest = np.cumsum(np.sort(unnamed)[::-1])
    bursts = 0 if typical else int(np.searchsorted(largest, MOST_OF_IT * largest[-1])) + 1
    signals = evidence.signals
    lacking = [name for name in ("forward", "backward", "optimizer") if not getattr(signals, name)]
    # Neither has every loop a loader, nor every stage of a pipeline that has one.
    if not signals.loader and evidence.has_loader and not _is_waited_for(evidence):
        lacking.insert(0, "the loader")
    if evidence.hides_comm:
        lacking.append("communication")
    by_auto = evidence.signals.by_auto and not lacking
    found = evidence.finding(
        NOT_ANNOTATED,
        limit,
        BatchSums.of({"none": unnamed}, evidence.time[used]).share("none"),
        NotAnnotated(lacking=lacking, by_auto=by_auto, bursts=bursts),
        confidence="low" if lacking else evidence.confidence,
    )
    # What a framework does for each step is much of small ones, and nobody's to annotate.
    if found and by_auto and typical and np.median(unnamed) < evidence.bound_ns("not-annotated-ms"):
        return replace(found, severity="info")
    return found


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
    if evidence.hides_comm or evidence.is_short or evidence.gpu_told:
        return None
    if max(idle, evidence.between) > MOST_NOT_ANNOTATED:
        return None
    limit = evidence.limits["compute"]
    sure = evidence.confidence
    found = evidence.finding(COMPUTE_BOUND, limit, share, NoFigures(), confidence=sure)
    return found and replace(found, severity="info")
