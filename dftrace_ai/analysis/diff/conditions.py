"""What a comparison of two runs is asked for: `compute.step p50 > +5%`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, get_args

import numpy as np

from dftrace_ai.analysis.diff.model import Judged
from dftrace_ai.analysis.why.statistics import Figure, difference, steps_needed
from dftrace_ai.conditions import near, written
from dftrace_ai.errors import ConfigError
from dftrace_ai.wording import counted, in_short

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dftrace_ai.analysis.diff.sampling import SampledRun
    from dftrace_ai.analysis.reading.event_columns import Integers, Label
    from dftrace_ai.analysis.why.statistics import Difference
    from dftrace_ai.conditions import Written

__all__ = ["Condition", "conditions_of", "judged"]

Asked = Literal["p50", "p90", "p95", "p99", "mean", "self", "count"]
"""What is asked of a name: a figure of its time in a step with all that lies inside, the median
of its own time, or how many there are in a step."""

STEP: Final = "step"
"""What the whole step is called."""

SIGNS: Final = frozenset({">", ">=", "<", "<="})
FIGURE: Final = re.compile(r"(?:\s+(\w+))?")
LIMIT: Final = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))\s*(%|ns|us|ms|s|)")
NS: Final = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}


@dataclass(frozen=True)
class Condition:
    """Something that may have become of a run.

    Attributes:
        text: as it was given.
        what: ``step``, a category, or category and name with a dot between.
        asked: the figure.
        above: it is met above the limit; else below.
        limit: in percent of the first run, in nanoseconds, or a number.
        unit: ``%``, ``ns``, or empty.
        added: the limit is for what is added to the first run, and not for the second by itself.
    """

    text: str
    what: str
    asked: Asked
    above: bool
    limit: float
    unit: str
    added: bool


def conditions_of(texts: Iterable[str]) -> tuple[Condition, ...]:
    """Read conditions.

    Args:
        texts: such as ``compute.step p50 > +5%``: what it is about, in double quotes where it
            has spaces; a figure, by default ``p50``; ``>``, ``>=``, ``<`` or ``<=``; and a
            limit. With ``%``, or with a sign, the limit is for what is added.

    Raises:
        ConfigError: one is none.

    Example::

        (condition,) = conditions_of(["compute.step p50 > +5%"])
        assert (condition.limit, condition.unit, condition.added) == (5.0, "%", True)
    """
    return tuple(_condition(text) for text in texts)


def _condition(text: str) -> Condition:
    parts = written(text)
    limit = LIMIT.fullmatch(parts.value) if parts and parts.sign in SIGNS else None
    about = _about(parts) if parts else None
    if parts is None or limit is None or about is None:
        raise ConfigError(
            f"--fail-if {in_short(text)} is not accepted; accepted: a name, a figure, > or < and "
            "a limit, such as 'compute.step p50 > +5%'"
        )
    what, asked = about
    if asked not in get_args(Asked):
        raise ConfigError(
            f"--fail-if {in_short(text)}: there is no figure {in_short(asked)}; there are: "
            f"{', '.join(get_args(Asked))}"
        )
    number, unit = limit.groups()
    if unit != "%" and bool(unit) == (asked == "count"):
        wanted = "% or no unit" if asked == "count" else "%, ns, us, ms or s"
        raise ConfigError(f"--fail-if {in_short(text)}: the limit of {asked} has {wanted}")
    return Condition(
        text=text.strip(),
        what=what,
        asked=asked,  # type: ignore[arg-type]
        above=parts.sign.startswith(">"),
        limit=float(number) * NS.get(unit, 1.0),
        unit="ns" if unit in NS else unit,
        added=unit == "%" or number[0] in "+-",
    )


def _about(parts: Written) -> tuple[str, str] | None:
    """Return the name that a condition is about, and the figure; None where there is more."""
    name, behind = parts.name, parts.behind
    if not parts.quoted:
        name = name.split()[0]
        behind = parts.name.removeprefix(name)
    figure = FIGURE.fullmatch(behind)
    return (name, figure[1] or "p50") if figure else None


def judged(
    conditions: Sequence[Condition], before: SampledRun, after: SampledRun, silence: str
) -> tuple[Judged, ...]:
    """Return what became of conditions; `silence` is why the runs cannot be compared."""
    return tuple(_judged(condition, before, after, silence) for condition in conditions)


def _judged(condition: Condition, before: SampledRun, after: SampledRun, silence: str) -> Judged:
    if silence:
        return Judged(condition.text, None, unit=condition.unit, why=silence)
    _check_known(condition, before, after)
    asked = condition.asked
    figure: Figure = "p50" if asked == "self" else "mean" if asked == "count" else asked
    for run in (before, after):
        if len(run) < steps_needed(figure):
            why = f"{counted(len(run), 'steady step')}, {figure} needs {steps_needed(figure)}"
            return Judged(condition.text, None, unit=condition.unit, why=why)
    found = difference(_values(condition, before), _values(condition, after), figure)
    value, low, high = _held_against(condition, found)
    met = low > condition.limit if condition.above else high < condition.limit
    if not math.isfinite(value):
        return Judged(condition.text, met, unit=condition.unit)
    return Judged(condition.text, met, value, low, high, condition.unit)


def _held_against(condition: Condition, found: Difference) -> tuple[float, float, float]:
    """Return what is held against the limit, and its interval."""
    if condition.unit == "%":
        if found.before:
            of = 100 / found.before
            return found.added * of, found.low * of, found.high * of
        # What was not there before is more by any percentage.
        more = math.inf if found.added else 0.0
        return more, more, more
    if condition.added:
        return found.added, found.low, found.high
    # The limit is for the second run, whose share of the error is at most all of it.
    return found.after, found.before + found.low, found.before + found.high


def _check_known(condition: Condition, before: SampledRun, after: SampledRun) -> None:
    labels = before.labels | after.labels
    names = {STEP, *(label.cat for label in labels), *map(_dotted, labels)}
    if condition.what not in names:
        meant = near(condition.what, names)
        hint = f"; did you mean {in_short(meant)}?" if meant else ""
        raise ConfigError(
            f"--fail-if {in_short(condition.text)}: neither run has a category or name "
            f"{in_short(condition.what)}{hint}"
        )


def _values(condition: Condition, run: SampledRun) -> Integers:
    """Return what a condition is about, by step."""
    what = condition.what
    if what == STEP:
        return np.ones(len(run)) if condition.asked == "count" else run.step_ns
    places = list(enumerate(run.places))
    named = [at for at, place in places if _dotted(place.label) == what]
    if not named:
        # Spans of a category may lie inside of each other, so its time is their own.
        of_category = [at for at, place in places if place.label.cat == what]
        return run.count(of_category) if condition.asked == "count" else run.own(of_category)
    if condition.asked == "count":
        return run.count(named)
    if condition.asked == "self":
        return run.own(named)
    # Within itself it would count twice.
    return run.whole(at for at in named if run.places[at].label not in run.places[at].path[:-1])


def _dotted(label: Label) -> str:
    return f"{label.cat}.{label.name}"
