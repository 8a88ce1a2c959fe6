"""What is known of the process groups of a training: names, ranks, how much they did."""

from __future__ import annotations

import json
import weakref
from typing import Any, Final

from dftrace_ai.integrations.asking import asked
from dftrace_ai.run import emitting
from dftrace_ai.run.run import current_run

__all__ = ["Group", "Groups"]

# Of a group, that pass before a flight recorder is told of it again.
AGAIN: Final = 200


class Group:
    """A process group.

    Attributes:
        name: its name, the same on all of its ranks.
        description: what its maker calls it; empty where he does not.
        ranks: its ranks in the whole job by their numbers in the group; None where unknown.
        used: how often it was met since it was told of.
    """

    def __init__(self, group: Any) -> None:
        self.name: str = group.group_name
        self.description = asked(lambda: str(group.group_desc or "")) or ""
        if self.description == "undefined":
            self.description = ""
        self.ranks = _ranks_of(group)
        self._reference = weakref.ref(group)
        self.used = 0
        self._counts = True
        self._messages: dict[tuple[str, int | None, int | None], int] = {}

    def is_of(self, group: Any) -> bool:
        """Return whether these are the facts of a group: names may be used again."""
        return self._reference() is group

    def rank(self, number: int) -> int:
        """Return the rank in the job of a number in the group."""
        return self.ranks[number] if self.ranks and 0 <= number < len(self.ranks) else number

    def collectives(self, group: Any) -> int | None:
        """Return how many collectives the group has had; None where its backend does not count."""
        if not self._counts:
            return None
        had: int | None = asked(group._get_sequence_number_for_group)
        self._counts = had is not None  # to raise costs more than all the rest
        return had

    def messages(self, direction: str, peer: int | None, tag: int | None) -> int:
        """Return how many messages of a kind there were before this one."""
        kind = (direction, peer, tag)
        had = self._messages.get(kind, 0)
        self._messages[kind] = had + 1
        return had


def _ranks_of(group: Any) -> list[int] | None:
    import torch.distributed as dist

    # None: it was made beside torch's own functions.
    return asked(lambda: list(dist.get_process_group_ranks(group)))


def _fades() -> bool:
    """Whether what is recorded now is forgotten in time."""
    run = current_run()
    return run is not None and run._config_in_force().flight_recorder


class Groups:
    """All groups that have been met, each told once in a run, and in each part of its trace.

    Of a flight recorder, which keeps what was last, it is told again and again.
    """

    def __init__(self) -> None:
        self._known: dict[str, Group] = {}
        self._told: set[tuple[str, str, tuple[int, ...]]] = set()
        self._fades = _fades()

    def of(self, group: Any) -> Group:
        """Return what is known of a group, and write it into the trace when it is new."""
        name = group.group_name
        known = self._known.get(name)
        if known is None or not known.is_of(group):
            known = self._known[name] = Group(group)
            self._tell(known)
        elif self._fades and known.used >= AGAIN:
            known.used = 0
            self._write(known)
        known.used += 1
        return known

    def forget(self) -> None:
        """Begin anew: another run has begun, or the groups are of no concern any more."""
        self._known.clear()
        self._told.clear()
        self._fades = _fades()

    def _tell(self, group: Group) -> None:
        facts = (group.name, group.description, tuple(group.ranks or ()))
        if facts in self._told:
            return
        self._told.add(facts)
        self._write(group)

    def _write(self, group: Group) -> None:
        said = {"name": group.name, "description": group.description, "ranks": group.ranks}
        text = json.dumps(said, ensure_ascii=False)
        emitting.metadata("process_group", text, in_every_part=True)
