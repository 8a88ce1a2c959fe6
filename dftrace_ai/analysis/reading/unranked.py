"""Processes that train, and of which it is not known which rank of their job they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dftrace_ai.analysis.reading.identity import Owner, Owners

NAMED: Final = 8


def unranked_told(owners: Owners, some: Iterable[Owner]) -> list[str]:
    """Return a line on those that are left out where the ranks of a job are compared."""
    names = [_named(owner, owners.labels[owner.number]) for owner in some]
    if not names:
        return []
    named = ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")
    count = "a process" if len(names) == 1 else f"{len(names):,} processes"
    return [f"{count} with steps and no rank of the job: left out: {named}"]


def _named(owner: Owner, label: str) -> str:
    said = owner.files[0].said
    return label if said.rank is None else f"{label}, rank {said.rank} of {said.world_size}"
