"""What each rank, host, stage, coordinate and kind of work does to the time of a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from dftrace_ai.analysis.whatif.model import Figures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.whatif.runs import Run
    from dftrace_ai.analysis.whatif.work import Work

MANY_RANKS: Final = 256
"""Of more, only those with the greatest excess are worked out one by one."""


class Subject(NamedTuple):
    """Somebody, or some work, that a run is worked out with or without."""

    dimension: str  # "rank", "host", "kind", or one of the layout
    value: int | str
    ranks: Integers | None  # a mask; None for a kind
    operations: Integers  # a mask
    slowdown_only: bool


@dataclass
class AllFigures:
    """Figures by dimension and value."""

    by: dict[str, dict[int | str, Figures]] = field(default_factory=dict)

    def add(self, subject: Subject, figures: Figures) -> None:
        """Keep the figures of one."""
        self.by.setdefault(subject.dimension, {})[subject.value] = figures

    def numbered(self, dimension: str) -> dict[int, Figures]:
        """Return the figures of a dimension with numbers, in their order."""
        found = self.by.get(dimension, {})
        return {int(value): found[value] for value in sorted(found, key=int)}

    def named(self, dimension: str) -> dict[str, Figures]:
        """Return the figures of a dimension with names, the slowest first."""
        found = sorted(self.by.get(dimension, {}).items(), key=lambda one: str(one[0]))
        found.sort(key=lambda one: -one[1].slowdown)
        return {str(value): figures for value, figures in found}


def figures_of(
    run: Run,
    work: Work,
    ideal_ns: int,
    ranks: Integers,
    progress: Callable[[int, int], None] | None,
) -> AllFigures:
    """Work out the run with each rank, host, coordinate and kind of work alone, and without it."""
    subjects = list(_subjects(run, ranks))
    count = sum(1 if one.slowdown_only else 3 for one in subjects)
    if progress is not None:
        progress(0, count)
    asked: list[tuple[int, str]] = []

    def variants() -> Iterator[Integers]:
        for at, subject in enumerate(subjects):
            mine = subject.operations
            asked.append((at, "slowdown"))
            yield np.where(mine, work.times, work.ideal)
            if subject.slowdown_only:
                continue
            asked.append((at, "recovered"))
            yield np.where(mine, work.ideal, work.times)
            if subject.ranks is not None:
                others = without(work, subject.ranks, subject.dimension)
                if others is not None:
                    asked.append((at, "without"))
                    yield others

    told = None if progress is None else lambda done: progress(min(done, count), count)
    times = run.times_ns(variants(), told)
    lost = run.replay_ns - ideal_ns
    figures: list[dict[str, float]] = [{} for _ in subjects]
    for (at, what), time in zip(asked, times, strict=True):
        figures[at][what] = {
            "slowdown": time / max(ideal_ns, 1),
            "recovered": (run.replay_ns - time) / lost if lost > 0 else 0.0,
            "without": run.replay_ns / max(time, 1),
        }[what]
    found = AllFigures()
    for subject, values in zip(subjects, figures, strict=True):
        found.add(
            subject,
            Figures(values["slowdown"], values.get("recovered"), values.get("without")),
        )
    _estimate_others(run, found)
    return found


def without(work: Work, out: Integers, dimension: str = "") -> Integers | None:
    """Return what operations take when some ranks work no longer than comparable ones."""
    # Of the same stage, if every stage has some that are not meant and two ranks at least.
    of_stage = np.bincount(work.stage)
    left = np.bincount(work.stage[~out], minlength=len(of_stage))
    by_stage = dimension != "pp" and of_stage.min() >= 2 and bool((left > 0).all())
    return work.without(out, by_stage=by_stage)


def _subjects(run: Run, ranks: Integers) -> Iterator[Subject]:
    places = run.gathered.places
    one = run.operations
    for at in ranks.tolist():
        mask = np.arange(len(places)) == at
        yield Subject("rank", places[at].rank, mask, one.rank == at, False)
    many = len(places) > MANY_RANKS
    hosts = sorted({place.host for place in places})
    if len(hosts) > 1:
        for host in hosts:
            mask = np.array([place.host == host for place in places])
            worst = not many or bool(mask[ranks].any())
            yield Subject("host", host, mask, mask[one.rank], not worst)
    layouts = [dict(place.layout) for place in places]
    for dimension in dict.fromkeys(name for layout in layouts for name in layout):
        values = sorted({layout[dimension] for layout in layouts if dimension in layout})
        # Where each coordinate is a rank of its own, ranks say it.
        if 1 < len(values) < len(places) or (dimension == "pp" and len(values) > 1):
            for value in values:
                mask = np.array([layout.get(dimension) == value for layout in layouts])
                yield Subject(dimension, value, mask, mask[one.rank], False)
    for number, kind in enumerate(one.kinds):
        mask = one.kind == number
        if mask.any():
            yield Subject("kind", kind, None, mask, False)


def _estimate_others(run: Run, found: AllFigures) -> None:
    """Give ranks that were not worked out the least slowdown of what they are in."""
    places = run.gathered.places
    known = found.by.get("rank", {})
    for place in places:
        if place.rank in known:
            continue
        parts: list[tuple[str, int | str]] = [("host", place.host), *place.layout]
        there = [found.by.get(dimension, {}).get(value) for dimension, value in parts]
        around = [figures.slowdown for figures in there if figures is not None]
        known[place.rank] = Figures(min(around, default=1.0))
    found.by["rank"] = known
