"""Findings of other packages: what they are given, what is taken of it, and what they cannot break.

An entry point of the group `dftrace_ai.findings` is a function: it gets a `JudgedRun` and returns a
`PluginFinding`, several of them, or None. See docs/guide/plug-ins.md.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from itertools import islice
from typing import TYPE_CHECKING, Final, get_args

from dftrace_ai.analysis.thresholds import Confidence, Severity
from dftrace_ai.analysis.why.model import PluginFinding, Verdict
from dftrace_ai.config import values
from dftrace_ai.config.settings import SETTINGS
from dftrace_ai.config.sources import settings_given
from dftrace_ai.errors import ConfigError
from dftrace_ai.wording import briefly, in_short, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.metadata import EntryPoint

    from dftrace_ai.analysis.reading import TraceSet

GROUP: Final = "dftrace_ai.findings"
"""The entry-point group of other packages: a name, and the function that judges."""

ALL: Final = "all"
TEXT_LETTERS: Final = 1000
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
    points = sorted(entry_points(group=GROUP), key=lambda one: (one.name, _package(one)))
    if not points:
        return verdict
    found: list[PluginFinding] = []
    faults: list[str] = []
    try:
        wanted, without = _named()
    except (ConfigError, ValueError, TypeError, OverflowError) as error:
        note = f"no plug-in was asked: {briefly(error)}"
        return replace(verdict, notes=(note, *verdict.notes))
    for point in points:
        if point.name in without or (wanted and not {ALL, point.name} & wanted):
            continue
        try:
            # What it prints is not part of what the command prints, which may be JSON.
            with contextlib.redirect_stdout(sys.stderr):
                judged = JudgedRun(copy.deepcopy(verdict), traces)
                found += list(_taken(point.load()(judged), point))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is, the verdict stands
            faults.append(f"the plug-in {point.name} of {_package(point)} failed: {briefly(error)}")
    return replace(verdict, of_plugins=tuple(found), notes=(*faults, *verdict.notes))


def _named() -> tuple[frozenset[str], frozenset[str]]:
    given, _ = settings_given(None, os.environ, {})
    row = SETTINGS["plugins"]
    text = row.taken(given["plugins"].value) if "plugins" in given else row.default
    return values.named(str(text))


def _package(point: EntryPoint) -> str:
    """Return the distribution that brings it, with its version."""
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.value


def _taken(told: object, point: EntryPoint) -> Iterator[PluginFinding]:
    """Yield what a function has returned, named; a TypeError or ValueError for what is none."""
    several = told if isinstance(told, Iterable) else (told,)
    each = [*islice(several, MOST_FINDINGS + 1)] if told is not None else []
    if len(each) > MOST_FINDINGS:
        raise ValueError(f"it returned more than {MOST_FINDINGS} findings")
    for one in each:
        if not isinstance(one, PluginFinding):
            raise TypeError(f"it returned {in_short(one)}, which is no PluginFinding")
        if one.severity not in get_args(Severity) or one.confidence not in get_args(Confidence):
            raise ValueError(f"severity {one.severity!r} or confidence {one.confidence!r}")
        texts = {name: _line(getattr(one, name)) for name in ("what", "because", "next")}
        if not texts["what"]:
            raise ValueError("it returned a finding that says nothing")
        if not isinstance(one.evidence, dict):
            raise TypeError(f"its evidence {in_short(one.evidence)} is no dict")
        yield PluginFinding(
            **texts,
            severity=one.severity,
            confidence=one.confidence,
            evidence=json.loads(json.dumps(one.evidence, allow_nan=False)),
            name=point.name,
            package=_package(point),
        )


def _line(text: object) -> str:
    if not isinstance(text, str):
        raise TypeError(f"{in_short(text)} is no text")
    line = shortened(" ".join(text.split()), TEXT_LETTERS)
    return line.encode("utf-8", "replace").decode()
