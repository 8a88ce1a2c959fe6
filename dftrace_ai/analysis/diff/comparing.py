"""From the traces of two runs to what became slower, faster, new and gone, and of conditions.

Apart from the face of the folder, which is names alone.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, get_args

import numpy as np

from dftrace_ai.analysis.diff.model import Change, Diff, GrownLine, Judged, Row, RunFacts
from dftrace_ai.analysis.diff.sampling import Sampling
from dftrace_ai.analysis.reading import TraceSet, open_traces
from dftrace_ai.analysis.robust_statistics import LONG, Figure, alike, difference, steps_needed
from dftrace_ai.analysis.steps import Job
from dftrace_ai.analysis.texts import time_text
from dftrace_ai.conditions import near, written
from dftrace_ai.errors import ConfigError
from dftrace_ai.wording import counted, in_short

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence

    from dftrace_ai.analysis.diff.model import Kind, Measure
    from dftrace_ai.analysis.diff.sampled_run import Path, Place, SampledRun
    from dftrace_ai.analysis.reading.event_columns import Integers, Label
    from dftrace_ai.analysis.robust_statistics import Difference
    from dftrace_ai.analysis.steps import Part
    from dftrace_ai.conditions import Written

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


# Two runs of one program differ by so much without any reason that stands in a trace.
LEAST_CHANGE: Final = 0.02
# What takes less of a step cannot make it slower.
LEAST_OF_STEP: Final = 0.005
# Of what runs differ by that is told for itself.
MOST_OF_IT: Final = 0.5
# Of less there is no median.
FEWEST_WITH: Final = 5
# The median is that of what is in nearly every step.
NEARLY_EVERY: Final = 0.9

# Of more places with one name it is not asked which two are most alike.
MOST_PRODUCT: Final = 40_000

# Rows in this order; within it by what they add or save.
TOLD_FIRST: Final[tuple[Kind, ...]] = (
    *("slower", "new", "faster", "gone", "unsure", "same", "small"),
)


def diff(
    before: str | os.PathLike[str] | TraceSet,
    after: str | os.PathLike[str] | TraceSet,
    conditions: Sequence[Condition] = (),
) -> Diff:
    """Compare the steps of two runs by their traces.

    Args:
        before: a file or directory of the first run, or its traces where they are open.
        after: of the second.
        conditions: what is judged beside, see `conditions_of`.

    Returns:
        What became of it; with too little to say, why it is silent.

    Raises:
        TraceError: a path is missing or is no trace, or nothing can be read.
        ConfigError: a condition names what neither run has.

    Example::

        found = diff("out/before", "out/after")
        for row in found.names:
            if row.change.kind == "slower":
                print(row.cat, row.name, row.change.added_ns, row.change.low_ns)
    """
    notes: list[str] = []
    return compare(read_run(before, notes), read_run(after, notes), conditions, notes)


def read_run(path: str | os.PathLike[str] | TraceSet, notes: list[str]) -> SampledRun:
    """Return the steps of a run; what a reader has to know of its traces is added to the notes."""
    traces = path if isinstance(path, TraceSet) else open_traces([path])
    name = traces.run or str(path)
    job, sampling = Job(traces), Sampling()
    for member in job:
        sampling.add(member)
        del member
    notes += [f"skipped: {file}" for file in traces.skipped]
    notes += job.facts.notes
    if sampling.lost:
        lost = counted(sampling.lost, "event")
        notes.append(f"{name}: LOST {lost}: what is missing is in no row")
    return sampling.run(name)


def compare(
    before: SampledRun,
    after: SampledRun,
    conditions: Sequence[Condition] = (),
    notes: Iterable[str] = (),
) -> Diff:
    """Compare two runs.

    Args:
        before: the first.
        after: the second.
        conditions: what is judged beside.
        notes: what a reader has to know of the traces.
    """
    facts = before.facts, after.facts
    silence = _silence(*facts)
    found = judged(conditions, before, after, silence)
    if silence:
        return Diff(
            "abstained",
            *facts,
            step=None,
            conditions=found,
            abstained=silence,
            notes=tuple(notes),
        )
    comparison = _Comparison(before, after)
    step = comparison.of_steps()
    return Diff(
        _VERDICTS.get(step.kind, "none"),
        *facts,
        step=step,
        categories=comparison.by_label(whole_categories=True),
        names=comparison.by_label(whole_categories=False),
        tree=comparison.by_place(),
        rows_left_out=before.left_out + after.left_out,
        conditions=found,
        notes=(*notes, *_notes(before, after, step)),
        lines=_lines(before, after, step),
    )


def _lines(before: SampledRun, after: SampledRun, step: Change) -> tuple[GrownLine, ...]:
    """Return the line that surely has half of what steps take longer or shorter."""
    if step.kind not in _VERDICTS or before.functions is None or after.functions is None:
        return ()
    # Late: most traces hold no samples of stacks.
    from dftrace_ai.analysis.lines.rank_stacks import more_than
    from dftrace_ai.analysis.lines.words import place_text

    old, new = before.functions, after.functions
    long, short = (new, old) if step.kind == "slower" else (old, new)
    more = more_than(long, [short], MOST_OF_IT * abs(step.added_ns))
    if more is None:
        return ()
    called = more.name, more.file
    times = old.ns(called)[0], new.ns(called)[0]
    in_a, in_b = (time_text(ns) if ns else "none" for ns in times)
    text = f"most of it lies in {place_text(*called, more.line)}: {in_a} a step in A, {in_b} in B"
    return (GrownLine(*called, more.line, *times, more.low_ns, text),)


_VERDICTS: Final[dict[Kind, Literal["slower", "faster"]]] = {"slower": "slower", "faster": "faster"}


def _silence(facts: RunFacts, facts_after: RunFacts) -> str:
    """Return why two runs cannot be compared; empty where they can."""
    for run in (facts, facts_after):
        if not run.steps:
            return f"{run.path}: no steps were found"
    for run in (facts, facts_after):
        if run.judged < steps_needed("p50"):
            steady = counted(run.judged, "steady step")
            return f"{run.path}: {steady}, {steps_needed('p50')} are needed"
    return ""


def _notes(before: SampledRun, after: SampledRun, step: Change) -> Iterable[str]:
    if before.is_same(after):
        yield "A and B are one and the same run"
    alone = max(before.facts.ranks, after.facts.ranks) < 2
    slow, fast = (
        _own_parts(run, alone=alone)
        for run in ((after, before) if step.added_ns > 0 else (before, after))
    )
    if step.kind in {"slower", "faster"} and alike(slow, fast):
        yield f"all parts of a step are {step.kind} alike, as on another or a busier machine"
    old, new = (float(np.median(run.step_ns)) for run in (before, after))
    if (
        step.measure == "mean"
        and (new - old) * step.added_ns < 0
        and abs(new - old) >= LEAST_CHANGE * old
    ):
        yield (
            f"the median step went the other way: {time_text(old)} in A, {time_text(new)} in B; a "
            "few steps take most of the time"
        )
    yield from _on_long_steps(before.step_ns, after.step_ns)
    first, second = before.facts, after.facts
    if first.found_by != second.found_by:
        yield (
            f"steps were found by {first.found_by} in the first run, and by {second.found_by} in "
            "the second: they may not be the same stretches"
        )
    if first.ranks != second.ranks:
        yield f"{counted(first.ranks, 'rank')} in the first run, {second.ranks:,} in the second"


def _on_long_steps(*runs: Integers) -> Iterable[str]:
    """Yield what a few long steps cost, where it is most of what two runs differ by."""
    long = [np.flatnonzero(run > LONG * np.median(run)) for run in runs]
    lost = [float((run[at] - np.median(run)).sum()) for run, at in zip(runs, long, strict=True)]
    means = [float(run.mean()) for run in runs]
    added = means[1] - means[0]
    of_long = lost[1] / len(runs[1]) - lost[0] / len(runs[0])
    if abs(added) >= LEAST_CHANGE * means[0] and of_long / added >= MOST_OF_IT:
        told = (
            f"{len(at)} of {len(run):,} in {letter} took {time_text(ns)} more than the median"
            for letter, run, at, ns in zip("AB", runs, long, lost, strict=True)
        )
        yield f"long steps make most of the difference: {', '.join(told)}"


def _own_parts(run: SampledRun, *, alone: bool) -> dict[Part, float]:
    """Return the parts of a step that are a rank's own: who waits for another is as slow."""
    return {part: ns for part, ns in run.parts.items() if part != "comm" or alone}


class _Key(NamedTuple):
    """What a row is of."""

    cat: str
    name: str | None
    beside: bool


class _Comparison:
    """Makes the rows of two runs."""

    def __init__(self, before: SampledRun, after: SampledRun) -> None:
        self._runs = (before, after)
        self._step_ns = float(np.median(before.step_ns))

    def of_steps(self) -> Change:
        """Return what became of the time of a step."""
        before, after = self._runs
        times = before.step_ns, after.step_ns
        return self._first_sure([("median", *times), ("mean", *times)])

    def _first_sure(self, samples: Sequence[tuple[Measure, Integers, Integers]]) -> Change:
        """Return what became of something by the first way to measure it that says it for sure."""
        # The last way is the mean, and the others never say the opposite of it.
        mean = self._change(*samples[-1])
        changes = []
        for measure, before, after in samples:
            if min(len(before), len(after)) < FEWEST_WITH:
                continue
            change = self._change(measure, before, after)
            if _opposite(change, mean):
                continue
            if change.kind in _VERDICTS:
                return change
            changes.append(change)
        unsure = next((one for one in changes if one.kind == "unsure"), changes[0])
        # Where a few long steps outweigh all others, the time of a run is that of its mean.
        return mean if mean.kind == "unsure" and unsure.added_ns * mean.added_ns < 0 else unsure

    def _change(self, measure: Measure, before: Integers, after: Integers) -> Change:
        found = difference(before, after, "mean" if measure == "mean" else "p50")
        least = LEAST_CHANGE * found.before
        if measure != "each":
            least = max(least, LEAST_OF_STEP * self._step_ns)
        kind: Kind = "same"
        if abs(found.added) >= least and found.added:
            sure = found.low > 0 or found.high < 0
            kind = "unsure" if not sure else "slower" if found.added > 0 else "faster"
        return Change(kind, measure, *found)

    def by_label(self, *, whole_categories: bool) -> tuple[Row, ...]:
        """Return the rows of categories or names."""

        def key(place: Place) -> _Key:
            label = place.label
            return _Key(label.cat, None if whole_categories else label.name, place.beside)

        places: defaultdict[_Key, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        for side, run in enumerate(self._runs):
            for number, place in enumerate(run.places):
                places[key(place)][side].append(number)
        return _in_order(self._row(each, *of_both) for each, of_both in places.items())

    def by_place(self) -> tuple[Row, ...]:
        """Return the rows of places in the tree."""
        before, after = self._runs
        rows = []
        for old, new in _matched(before.places, after.places):
            there = None if old is None else before.places[old]
            here = there if new is None else after.places[new]
            assert here is not None  # noqa: S101 - a pair has one of both
            row = self._row(
                _Key(*here.label, here.beside),
                [] if old is None else [old],
                [] if new is None else [new],
            )
            if row is not None:
                elsewhere = (
                    None if there is None or there == here else tuple(map(_dotted, there.path))
                )
                rows.append(
                    replace(row, path=tuple(map(_dotted, here.path)), path_before=elsewhere)
                )
        return _in_order(rows)

    def _row(self, key: _Key, old: Sequence[int], new: Sequence[int]) -> Row | None:
        """Return a row; None for what is in no judged step of either run."""
        before, after = self._runs
        counts = before.count(old), after.count(new)
        times = before.own(old), after.own(new)
        if not (counts[0].any() or counts[1].any()):
            return None
        means = float(times[0].mean()), float(times[1].mean())
        if not (old and new):
            change = Change("gone" if old else "new", "mean", *means)
        elif max(means) < LEAST_OF_STEP * self._step_ns:
            change = Change("small", "mean", *means)
        else:
            change = self._first_sure(_samples(key, counts, times))
        of_counts = float(counts[0].mean()), float(counts[1].mean())
        path = tuple[str, ...]()
        return Row(*key[:2], path, None, key.beside, change, means[1] - means[0], *of_counts)


def _opposite(change: Change, mean: Change) -> bool:
    """Whether one says for sure what the other, by enough to be told, has the other way round."""
    return change.kind in _VERDICTS and mean.kind != "same" and change.added_ns * mean.added_ns < 0


def _samples(
    key: _Key, counts: tuple[Integers, Integers], times: tuple[Integers, Integers]
) -> list[tuple[Measure, Integers, Integers]]:
    """Return the ways to measure a row, that which a few odd steps turn last."""
    every = min(float((count > 0).mean()) for count in counts) >= NEARLY_EVERY
    if every and not key.beside:
        return [("median", *times), ("mean", *times)]
    # Other threads work ahead, in bursts; and what is rare is in some steps alone.
    some = [count > 0 for count in counts]
    each = [time[has] / count[has] for time, count, has in zip(times, counts, some, strict=True)]
    return [("each", each[0], each[1]), ("mean", *times)]


def _in_order(rows: Iterable[Row | None]) -> tuple[Row, ...]:
    order = {kind: number for number, kind in enumerate(TOLD_FIRST)}

    def place(row: Row) -> tuple[object, ...]:
        much = (order[row.change.kind], row.beside, -abs(row.mean_added_ns), -row.change.after_ns)
        return (*much, row.path, row.cat, row.name or "")

    return tuple(sorted((row for row in rows if row is not None), key=place))


class _Pair(NamedTuple):
    """Numbers of a place in both runs; None where one does not have it."""

    before: int | None
    after: int | None


def _matched(before: Sequence[Place], after: Sequence[Place]) -> list[_Pair]:
    """Return the places of two runs in pairs.

    Places that are called alike from the outside in are the same. Of the others those with the
    same name of their own are, those first whose surroundings have most names in common: so
    that one that was renamed, or put around others, hides none of these.
    """
    numbers = {place: number for number, place in enumerate(after)}
    pairs = [_Pair(at, numbers[place]) for at, place in enumerate(before) if place in numbers]
    known = [{pair.before for pair in pairs}, {pair.after for pair in pairs}]
    left: defaultdict[tuple[Label, bool], tuple[list[int], list[int]]]
    left = defaultdict(lambda: ([], []))
    for side, places in enumerate((before, after)):
        for number, place in enumerate(places):
            if number not in known[side]:
                left[place.label, place.beside][side].append(number)
    for ours, theirs in left.values():
        pairs += _by_surroundings(before, after, ours, theirs)
    return pairs


def _by_surroundings(
    before: Sequence[Place], after: Sequence[Place], ours: Sequence[int], theirs: Sequence[int]
) -> list[_Pair]:
    """Return places with one and the same name of their own in pairs, those most alike first."""
    if len(ours) * len(theirs) > MOST_PRODUCT:
        chances = list(zip(ours, theirs, strict=False))
    else:
        chances = [(one, other) for one in ours for other in theirs]
        chances.sort(
            key=lambda pair: (
                _alike(before[pair[0]].path, after[pair[1]].path),
                -pair[0],
                -pair[1],
            ),
            reverse=True,
        )
    found: list[_Pair] = []
    free, others = dict.fromkeys(ours), dict.fromkeys(theirs)
    for one, other in chances:
        if one in free and other in others:
            found.append(_Pair(one, other))
            del free[one], others[other]
    return [*found, *(_Pair(one, None) for one in free), *(_Pair(None, one) for one in others)]


def _alike(path: Path, other: Path) -> tuple[int, int]:
    """Return how many names two places have around them in common, also in a row from inside."""
    inside = 0
    while inside < min(len(path), len(other)) and path[-1 - inside] == other[-1 - inside]:
        inside += 1
    return len(set(path[:-1]) & set(other[:-1])), inside
