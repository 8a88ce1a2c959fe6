"""Findings of other packages: what they are given, what is taken of it, and what they cannot break.

An entry point of the group `dftrace_ai.findings` is a function: it gets a `JudgedRun` and returns a
`PluginFinding`, several of them, or None. See docs/guide/plug-ins.md.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, get_args

from dftrace_ai.analysis.plug_ins import Source, ask, each_of, line_of
from dftrace_ai.analysis.thresholds import Confidence, Severity
from dftrace_ai.analysis.why.model import PluginFinding, Verdict
from dftrace_ai.wording import in_short

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dftrace_ai.analysis.reading import TraceSet

GROUP: Final = "dftrace_ai.findings"
"""The entry-point group of other packages: a name, and the function that judges."""

MOST_FINDINGS: Final = 20


@dataclass(frozen=True)
class JudgedRun:
    """What a function of another package judges.

    Attributes:
        verdict: what `dftrace why` says itself: the `steps` (times in nanoseconds), their `parts`
            with the share of each, the `slowest`, the `findings`. It is a copy.
        traces: the files, for what is not in that, such as spans of your own; to read them takes as
            long again as the verdict.

    Example::

        def judge(run: JudgedRun) -> PluginFinding | None:
            wait = run.verdict.parts.get("wait")
            if wait is None or wait.low < 0.01:
                return None
            return PluginFinding(f"Our cache is cold: {wait.share:.0%} of the steps is waiting.")
    """

    verdict: Verdict
    traces: TraceSet


def with_plugins(verdict: Verdict, traces: TraceSet) -> Verdict:
    """Return a verdict with what other packages find; a fault costs its package's findings alone.

    Args:
        verdict: of a run.
        traces: what it was made of.
    """

    def judged(judge: Callable[[JudgedRun], object], source: Source) -> Iterator[PluginFinding]:
        return _taken(judge(JudgedRun(copy.deepcopy(verdict), traces)), source)

    found, faults = ask(GROUP, judged)
    return replace(verdict, of_plugins=tuple(found), notes=(*faults, *verdict.notes))


def _taken(told: object, source: Source) -> Iterator[PluginFinding]:
    """Yield what a function has returned, named; a TypeError or ValueError for what is none."""
    for one in each_of(told, PluginFinding, MOST_FINDINGS):
        if one.severity not in get_args(Severity) or one.confidence not in get_args(Confidence):
            raise ValueError(f"severity {one.severity!r} or confidence {one.confidence!r}")
        texts = {name: line_of(getattr(one, name)) for name in ("what", "because", "next")}
        if not texts["what"]:
            raise ValueError("it returned a finding that says nothing")
        if not isinstance(one.evidence, dict):
            raise TypeError(f"its evidence {in_short(one.evidence)} is no dict")
        yield PluginFinding(
            **texts,
            severity=one.severity,
            confidence=one.confidence,
            evidence=json.loads(json.dumps(one.evidence, allow_nan=False)),
            name=source.name,
            package=source.package,
        )
