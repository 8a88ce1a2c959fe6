"""Verdicts of made runs, and what may be said of a run from which something was left out."""

from __future__ import annotations

import tempfile
from pathlib import Path

from analysis.why.made_runs import CLEAN, PLANTED, Training

from dftrace_ai.analysis.why import Finding, Verdict, why

SHAPES = {"periodic", "slow-step", "slow-warm-up", "slower-and-slower", "slower-since"}
SHAPES |= {"slow-loop-start", "two-kinds", "between-steps"}


def verdict_of(training: Training, seed: int, without: str = "") -> Verdict:
    with tempfile.TemporaryDirectory() as folder:
        return why([training.write(Path(folder), seed, without)])


def label(finding: Finding) -> str:
    """Kind and cause, the latter where it is one that a plant names."""
    named = (
        finding.kind == "input-bound" or finding.kind in SHAPES or finding.kind == "memory-creep"
    )
    return f"{finding.kind}/{finding.cause if named else ''}"


def found(verdict: Verdict) -> list[str]:
    """What was found, without what is told for information: that nothing is in the way, or that it
    is rather the machine."""
    return [label(finding) for finding in verdict.findings if finding.severity != "info"]


def training_of(name: str) -> Training:
    return CLEAN[name] if name in CLEAN else PLANTED[name][1]


def wrong_without(name: str, verdict: Verdict) -> list[str]:
    """What is said of a run from which a category was left out, and is not so.

    True are what was planted, that time is in no span, and shapes of such time or of what may be
    an evaluation, told with low confidence.
    """
    planted = "" if name in CLEAN else PLANTED[name][0].partition("/")[0]
    wrong = []
    for finding in verdict.findings:
        if finding.kind in {planted, "not-annotated", "between-steps"}:
            continue
        if finding.kind in SHAPES and finding.severity == "info":
            continue
        if finding.kind == "compute-bound" and planted in {
            *("", "start-up-heavy", "memory-creep", "evaluation-heavy"),
        }:
            continue  # true of the steps
        unsure = finding.confidence == "low"
        told = finding.cause == "none" or finding.evidence.get("untold_evaluation")
        if finding.kind in SHAPES and unsure and told:
            continue
        wrong.append(label(finding))
    return wrong
