"""What ranks make of a step together: at once, or a stage with each following step."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from dftrace_ai.inspect.numerics.record import Record
    from dftrace_ai.inspect.ranks.exchange import Groups
    from dftrace_ai.inspect.ranks.reduction import GroupMerger, Slot, SlotTable

__all__ = ["StepMerging"]


class StepMerging:
    """The exchanges of what a step has shown, with one group after another.

    All ranks go through the same stages in the same order.

    Args:
        iteration: the step.
        own: gives the records of this rank; called at the first stage, when they are on the host.
        mergers: the groups of this step, each with all slots of this rank in it.
        groups: the groups of ranks that can be used.
    """

    def __init__(
        self,
        iteration: int,
        own: Callable[[], Mapping[Slot, Record]],
        mergers: Sequence[tuple[GroupMerger, SlotTable]],
        groups: Groups,
    ) -> None:
        self._iteration = iteration
        self._own = own
        self._mergers = mergers
        self._groups = groups
        self._stages = self._all_stages()
        self.records: dict[Slot, Record] | None = None
        """By slot, what ranks have made together, and the rest of this rank; None until then."""

    def advance(self) -> None:
        """Go through one stage; messages of it are under way afterwards."""
        next(self._stages, None)

    def finish(self) -> None:
        """Go through all stages that are left."""
        for _ in self._stages:
            pass

    def _all_stages(self) -> Iterator[None]:
        records = dict(self._own())
        merged: dict[Slot, Record] = {}
        for merger, table in self._mergers:
            merged |= yield from self._with_group(merger, table, records)
        self.records = records | merged

    def _with_group(
        self, merger: GroupMerger, table: SlotTable, records: Mapping[Slot, Record]
    ) -> Generator[None, None, dict[Slot, Record]]:
        stages = merger.stages(table, records, self._iteration)
        # A group can be lost, or left to the parent by a fork, while a message is under way.
        while self._groups.usable(merger.group):
            try:
                next(stages)
            except StopIteration as end:  # noqa: PERF203 - a stage is an exchange with other ranks
                merged: dict[Slot, Record] = end.value
                return merged
            except Exception as error:  # noqa: BLE001 - other ranks must not end the training
                self._groups.lost(merger.group, error)
            else:
                yield
        return {}
