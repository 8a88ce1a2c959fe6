"""Which place in the tree of one run is which in that of another."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dftrace_ai.analysis.diff.sampling import Path, Place
    from dftrace_ai.analysis.reading.event_columns import Label

__all__ = ["Pair", "matched"]

# Of more places with one name it is not asked which two are most alike.
MOST_PRODUCT: Final = 40_000


class Pair(NamedTuple):
    """Numbers of a place in both runs; None where one does not have it."""

    before: int | None
    after: int | None


def matched(before: Sequence[Place], after: Sequence[Place]) -> list[Pair]:
    """Return the places of two runs in pairs.

    Places that are called alike from the outside in are the same. Of the others those with the
    same name of their own are, those first whose surroundings have most names in common: so
    that one that was renamed, or put around others, hides none of these.

    Args:
        before: the places of the first run, each once.
        after: those of the second.

    Example::

        train, fit, forward = Label("", "train"), Label("", "fit"), Label("compute", "forward")
        old = [Place((train,), False), Place((train, forward), False)]
        new = [Place((fit,), False), Place((fit, forward), False)]
        assert matched(old, new) == [Pair(0, None), Pair(None, 0), Pair(1, 1)]
    """
    numbers = {place: number for number, place in enumerate(after)}
    pairs = [Pair(at, numbers[place]) for at, place in enumerate(before) if place in numbers]
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
) -> list[Pair]:
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
    found: list[Pair] = []
    free, others = dict.fromkeys(ours), dict.fromkeys(theirs)
    for one, other in chances:
        if one in free and other in others:
            found.append(Pair(one, other))
            del free[one], others[other]
    return [*found, *(Pair(one, None) for one in free), *(Pair(None, one) for one in others)]


def _alike(path: Path, other: Path) -> tuple[int, int]:
    """Return how many names two places have around them in common, also in a row from inside."""
    inside = 0
    while inside < min(len(path), len(other)) and path[-1 - inside] == other[-1 - inside]:
        inside += 1
    return len(set(path[:-1]) & set(other[:-1])), inside
