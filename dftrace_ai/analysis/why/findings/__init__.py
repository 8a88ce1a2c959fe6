"""The registry of findings: what `dftrace why` looks for, in this order, and the rules that do.

A new finding is a rule in a file of this folder and its kind in a row here. Its name stands in
`Kind` of `why/model.py`, with its limits and the type of its figures; its sentences in
`why/sentences.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from dftrace_ai.analysis.why.findings.counters import memory_creep
from dftrace_ai.analysis.why.findings.patterns import drift_of, pattern_findings, two_kinds_of
from dftrace_ai.analysis.why.findings.phases import loop_findings, phase_findings
from dftrace_ai.analysis.why.findings.shares import compute_bound, share_findings
from dftrace_ai.analysis.why.model import Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from dftrace_ai.analysis.why.evidence import Evidence
    from dftrace_ai.analysis.why.model import Kind

Asked = Literal["always", "of many steps", "where nothing is found"]


class Rule(NamedTuple):
    """A rule: the kinds that it can find, when it is asked, and what it yields, or None."""

    kinds: tuple[Kind, ...]
    asked: Asked
    look: Callable[[Evidence], Iterable[Finding] | Finding | None]


RULES: Final[tuple[Rule, ...]] = (
    Rule(
        (
            *("input-bound", "communication-bound", "transfer-bound", "optimizer-heavy"),
            *("other-heavy", "host-bound", "not-annotated"),
        ),
        "always",
        share_findings,
    ),
    Rule(("input-bound", "slow-loop-start", "between-steps"), "always", loop_findings),
    Rule(
        ("checkpoint-bound", "evaluation-heavy", "start-up-heavy", "slow-warm-up"),
        "of many steps",
        phase_findings,
    ),
    Rule(("periodic", "slow-step"), "of many steps", pattern_findings),
    Rule(("slower-and-slower", "slower-since"), "of many steps", drift_of),
    Rule(("two-kinds",), "of many steps", two_kinds_of),
    Rule(("memory-creep",), "of many steps", memory_creep),
    Rule(("compute-bound",), "where nothing is found", compute_bound),
)


def findings_of(evidence: Evidence, asked: Asked) -> Iterator[Finding]:
    """Yield what the rules find that are asked then."""
    for rule in RULES:
        if rule.asked == asked:
            findings = rule.look(evidence) or ()
            yield from (findings,) if isinstance(findings, Finding) else findings
