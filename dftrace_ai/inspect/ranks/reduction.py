"""Records of many ranks become one: only records travel, never tensors."""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from dftrace_ai.inspect.errors import InspectRuntimeError
from dftrace_ai.inspect.numerics.record import NEUTRAL, Record, merge_all
from dftrace_ai.inspect.ranks.exchange import RECORD_BYTES, Sent, packed, unpacked

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence

    from dftrace_ai.inspect.config import Schedule

DIGEST_BYTES = 8
HEADER = struct.Struct(f"={DIGEST_BYTES}s{DIGEST_BYTES}sqQ")
"""What comes before the records: by which rules members exchange, the slots, the iteration, and
which sections have layers."""

FIRST_RECORDS = 32
"""So many records go with the header. All members must send as much in every step: a message of
another size than expected ends the process."""


class Slot(NamedTuple):
    """What has a record of its own in a step."""

    layer: str
    tensor: str
    # By which scale its 8-bit losses are counted: ``plain`` (not at all), ``used``, ``current`` or
    # ``delayed``.
    source: str = "plain"


def digest_of(parts: Iterable[object]) -> bytes:
    """Return a few bytes that are the same on ranks that have the same to tell."""
    text = repr(list(parts)).encode("utf-8", "backslashreplace")
    return hashlib.blake2b(text, digest_size=DIGEST_BYTES).digest()


class SlotTable:
    """All slots of a rank, due or not."""

    def __init__(self, slots: Mapping[Slot, tuple[Schedule, ...]]) -> None:
        self.slots = dict(slots)
        self.digest = digest_of(self.slots.items())
        self._kinds = tuple(set(self.slots.values()))

    def due(self, iteration: int) -> list[Slot]:
        """Return the slots that are due in an iteration, in their order."""
        due = {
            schedules
            for schedules in self._kinds
            if any(schedule.due(iteration) for schedule in schedules)
        }
        if len(due) == len(self._kinds):
            return list(self.slots)
        return [slot for slot, schedules in self.slots.items() if schedules in due] if due else []


class Selected:
    """Which sections of the config have layers: a bit for each."""

    def __init__(self) -> None:
        self.here = 0
        """On this rank."""
        self.anywhere: int | None = None
        """On any rank that this one has exchanged records with; None before that."""

    def heard(self, sections: Iterable[int]) -> None:
        """Take in what ranks have told, this one among them."""
        for one in sections:
            self.anywhere = (self.anywhere or 0) | one


class GroupMerger:
    """Merges the records of a group of ranks step by step."""

    # Each step first compares what the members have to tell, and the first records go with that.
    # Where members have other layers, as the stages of a pipeline do, they exchange once what each
    # has, and from then on send a record of everything. `rules` are a digest of what decides when
    # members exchange, which has to be the same on all.

    def __init__(self, group: Any, rules: bytes = b"", selected: Selected | None = None) -> None:
        self.group = group
        self._selected = Selected() if selected is None else selected
        self._rules = rules.ljust(DIGEST_BYTES, b"\0")
        self._union: tuple[bytes, SlotTable] | None = None

    def merge(
        self, table: SlotTable, records: Mapping[Slot, Record], iteration: int
    ) -> dict[Slot, Record]:
        """Merge what the members saw in an iteration, now; as `stages`."""
        stages = self.stages(table, records, iteration)
        while True:
            try:
                next(stages)
            except StopIteration as end:  # noqa: PERF203 - a stage is an exchange with other ranks
                merged: dict[Slot, Record] = end.value
                return merged

    def stages(
        self, table: SlotTable, records: Mapping[Slot, Record], iteration: int
    ) -> Generator[None, None, dict[Slot, Record]]:
        """Merge what the members saw in an iteration; every member must go through all stages."""
        # Between two stages messages are under way. Whoever does not wait goes on at the next step.
        # A slot without a record counts as one without elements. All members get the same bits, of
        # each slot that is due anywhere.
        layout = table
        if self._union is not None and self._union[0] == table.digest:
            layout = self._union[1]
        slots = layout.due(iteration)
        sent = [records.get(slot, NEUTRAL) for slot in slots[:FIRST_RECORDS]]
        message = bytearray(HEADER.size + FIRST_RECORDS * RECORD_BYTES)
        HEADER.pack_into(message, 0, self._rules, layout.digest, iteration, self._selected.here)
        begun = packed(sent).tobytes()
        message[HEADER.size : HEADER.size + len(begun)] = begun
        first = Sent(message, self.group)
        yield
        parts = first.received()
        if self._members_differ(parts):
            layout = SlotTable(self._united(table))
            self._union = table.digest, layout
            slots, sent = layout.due(iteration), []
        end = HEADER.size + len(sent) * RECORD_BYTES
        by_rank = [unpacked(part[HEADER.size : end]) for part in parts]
        if len(slots) > len(sent):
            left = [records.get(slot, NEUTRAL) for slot in slots[len(sent) :]]
            rest = Sent(packed(left), self.group)
            yield
            by_rank = [
                front + unpacked(part) for front, part in zip(by_rank, rest.received(), strict=True)
            ]
        return dict(zip(slots, map(merge_all, zip(*by_rank, strict=True)), strict=True))

    def _members_differ(self, parts: Sequence[memoryview]) -> bool:
        """Compare what all members say of themselves, in which all of them come to the same."""
        headers = [HEADER.unpack_from(part) for part in parts]
        rules, layouts, iterations, sections = map(set, zip(*headers, strict=True))
        if len(rules) > 1:
            raise InspectRuntimeError("the ranks have different configs")
        if len(iterations) > 1:
            told = ", ".join(map(str, sorted(iterations)[:8]))
            raise InspectRuntimeError(f"the ranks are in different iterations: {told}")
        self._selected.heard(sections)
        return len(layouts) > 1

    def _united(self, table: SlotTable) -> dict[Slot, tuple[Schedule, ...]]:
        import torch.distributed as dist

        tables: list[Any] = [None] * dist.get_world_size(self.group)
        dist.all_gather_object(tables, table.slots, group=self.group)
        union: dict[Slot, tuple[Schedule, ...]] = {}
        for one in tables:
            for slot, schedules in one.items():
                union[slot] = tuple(dict.fromkeys((*union.get(slot, ()), *schedules)))
        return union
