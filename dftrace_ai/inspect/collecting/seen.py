"""What was seen of a tensor since the last step: records, merged as they come."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dftrace_ai.inspect.collecting.rings import Awaited
from dftrace_ai.inspect.numerics.record import Record, merge

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dftrace_ai.run.emitting import Moment

__all__ = ["Seen", "SeenParts"]


@dataclass
class SeenParts:
    """What was seen by one scale; records that are here are merged as they come."""

    moment: Moment
    parts: list[Record | Awaited] = field(default_factory=list)

    def add(self, part: Record | Awaited) -> None:
        """Take in a record, or one that comes later."""
        # Taken out first: the handler of a signal may add another one meanwhile.
        before = self.parts.pop() if self.parts else None
        if before is None:
            self.parts.append(part)
        elif isinstance(part, Awaited) or isinstance(before, Awaited):
            self.parts += [before, part]
        else:
            self.parts.append(merge(before, part))

    def records(self) -> list[Record]:
        """Return those that have come."""
        found = [part.record if isinstance(part, Awaited) else part for part in self.parts]
        return [record for record in found if record is not None]

    def has_come(self) -> bool:
        """Tell whether all records are on the host."""
        return len(self.records()) == len(self.parts)


class Seen:
    """What was seen of a tensor since the last step; its model may run in several threads."""

    def __init__(self) -> None:
        self._parts: dict[str, SeenParts] = {}
        self._lock = threading.RLock()

    def __bool__(self) -> bool:
        return bool(self._parts)

    def has(self, sources: Iterable[str]) -> bool:
        """Tell whether something was seen by each of some scales."""
        return all(source in self._parts for source in sources)

    def add(self, source: str, part: Record | Awaited, moment: Moment, *, once: bool) -> None:
        """Take in a record, or one that comes later."""
        with self._lock:
            before = self._parts.get(source)
            if before is None:
                before = self._parts[source] = SeenParts(moment)
            elif once:
                return
            before.add(part)

    def taken(self) -> dict[str, SeenParts]:
        """Return what was seen, by source, and begin anew."""
        with self._lock:
            parts, self._parts = self._parts, {}
        return parts
