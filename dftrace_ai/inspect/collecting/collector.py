"""What attached layers have shown in a step, on its way to the log, and the merging over ranks."""

from __future__ import annotations

from functools import partial, reduce
from typing import TYPE_CHECKING, Any, NamedTuple

from dftrace_ai.inspect.collecting.rings import WeightsAhead
from dftrace_ai.inspect.numerics.record import Record, merge
from dftrace_ai.inspect.output.trace_events import outside_of_spans
from dftrace_ai.inspect.ranks.exchange import behind
from dftrace_ai.inspect.ranks.reduction import GroupMerger, Selected, Slot, SlotTable

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

    from dftrace_ai.inspect.collecting.observer import SeenParts, TensorObserver
    from dftrace_ai.inspect.collecting.rings import Rings
    from dftrace_ai.inspect.config import Schedule
    from dftrace_ai.inspect.numerics.record import Record
    from dftrace_ai.inspect.output.sinks import Statistics
    from dftrace_ai.inspect.ranks.exchange import Groups
    from dftrace_ai.run.emitting import Moment


class StepMerging:
    """The exchanges of what a step has shown, with one group after another."""

    # All ranks go through the same stages in the same order.

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


DEFAULT_GROUP = "default"
"""The key of the group over which attached layers are merged."""


class EndedStep(NamedTuple):
    """What a step has shown, which is logged when all of it is on the host."""

    iteration: int
    rank: int
    moment: Moment  # when it ended; of what other ranks alone have seen
    seen: Sequence[tuple[TensorObserver, Mapping[str, SeenParts]]]  # by observer
    # What ranks make of it together; None where nothing is exchanged.
    merging: StepMerging | None = None

    def has_come(self) -> bool:
        """Tell whether all that is logged is known."""
        return self.is_here() if self.merging is None else self.merging.records is not None

    def is_here(self) -> bool:
        """Tell whether all records of this rank are on the host."""
        return all(one.has_come() for _, seen in self.seen for one in seen.values())

    def own(self) -> dict[Slot, Record]:
        """Return the records of this rank."""
        return {
            Slot(observer.layer, observer.tensor, source): reduce(merge, one.records())
            for observer, seen in self.seen
            for source, one in seen.items()
        }

    def statistics(self) -> Iterator[Statistics]:
        """Yield the statistics, in the order of the log."""
        together = None if self.merging is None else self.merging.records
        records = self.own() if together is None else together
        for observer, seen in self.seen:
            first = min((one.moment for one in seen.values()), default=self.moment)
            yield from observer.statistics(records, self.iteration, self.rank, first)


class Collector:
    """All observers of a session, and the merging of what they saw over the ranks."""

    def __init__(self, rings: Rings, groups: Groups, rules: bytes = b"") -> None:
        self.rings = rings
        self.selected = Selected()
        """Which sections have layers, here and on other ranks."""
        self.observers: list[TensorObserver] = []
        self.ends_with_step = False
        """Whether a model was detached in this step."""
        self._leaving: list[TensorObserver] = []
        self._groups = groups
        self._rules = rules
        self._mergers: dict[str, GroupMerger] = {}
        self._tables: dict[str, SlotTable] = {}
        self._merging: list[StepMerging] = []
        self._ahead = WeightsAhead()

    def observe(
        self, observer: TensorObserver, find_weight: Callable[[], object] | None = None
    ) -> None:
        """Take in an observer."""
        # They are logged in the order of these calls.
        observer.rings = self.rings
        for before in self._leaving:
            if (before.layer, before.tensor) == (observer.layer, observer.tensor):
                # Detached and attached again in one step.
                observer.seen = before.seen
                self.forget([before])
                break
        self.observers.append(observer)
        if find_weight is not None:
            due = partial(_is_awaited, observer)
            observer.ahead = self._ahead.weight(find_weight, due)
        self.regrouped()

    def forget(self, observers: Iterable[TensorObserver]) -> None:
        """Let go of observers, and of what they saw."""
        gone = set(map(id, observers))
        self._look_no_more_ahead(one for one in self.observers if id(one) in gone)
        self.observers = [one for one in self.observers if id(one) not in gone]
        self._leaving = [one for one in self._leaving if id(one) not in gone]
        self.regrouped()

    def regrouped(self) -> None:
        """Be told that an observer has come, gone or got another group."""
        self._tables.clear()

    def leave(self, observers: Iterable[TensorObserver]) -> None:
        """Let go of the observers of a model that is detached, when the step ends."""
        leaving = list(observers)
        self._leaving += leaving
        self._look_no_more_ahead(leaving)
        self.ends_with_step = True

    def _look_no_more_ahead(self, observers: Iterable[TensorObserver]) -> None:
        """Let go of the weights, and with them of the model."""
        for one in observers:
            if one.ahead is not None:
                self._ahead.remove(one.ahead)
                one.ahead = None

    def left(self) -> None:
        """Let go of those that were to go with this step."""
        if self.ends_with_step:
            self.ends_with_step = False
            self.forget(self._leaving)

    def set_group(self, key: str, group: Any, *, anew: bool = True) -> None:
        """Say which ranks share the tensors of observers with this key; None: all processes."""
        if anew or key not in self._mergers:
            self._mergers[key] = GroupMerger(group, self._rules, self.selected)

    def end_step(
        self, iteration: int, rank: int, collective_due: Callable[[int], bool] | None
    ) -> EndedStep:
        """Return what an iteration has shown, and begin anew."""
        # Records that a device makes are sent on their way; they come later. Where ranks exchange
        # records, that has to happen in the same call on all of them, whichever device is behind:
        # with the next steps, see `advance`, or at once where devices are not behind by themselves.
        # `collective_due` tells whether ranks exchange records in an iteration, which must be the
        # same everywhere; None where nothing is exchanged.
        self._ahead.end_step()
        seen = [(observer, observer.seen.taken()) for observer in self.observers]
        ended = EndedStep(iteration, rank, outside_of_spans(), seen)
        self.rings.send()
        if collective_due is None or not collective_due(iteration):
            return ended
        mergers = [
            (merger, self._table(key))
            for key, merger in sorted(self._mergers.items())
            if self._groups.usable(merger.group)
        ]
        merging = StepMerging(iteration, partial(self._own, ended), mergers, self._groups)
        ended = ended._replace(merging=merging)
        if any(behind(merger.group) for merger, _ in mergers):
            self._merging.append(merging)
        else:
            merging.finish()
        return ended

    def _own(self, ended: EndedStep) -> dict[Slot, Record]:
        if not ended.is_here():
            self.rings.receive_sent()
        return ended.own()

    def advance(self) -> None:
        """Go on with the exchanges of earlier steps; all ranks must call this in each step."""
        for merging in self._merging:
            merging.advance()
        self._merging = [merging for merging in self._merging if merging.records is None]

    @property
    def merging(self) -> bool:
        """Whether exchanges of earlier steps are not at their end."""
        return bool(self._merging)

    def _table(self, key: str) -> SlotTable:
        if key not in self._tables:
            slots: dict[Slot, tuple[Schedule, ...]] = {}
            for observer in self.observers:
                if observer.group == key:
                    slots |= observer.table()
            self._tables[key] = SlotTable(slots)
        return self._tables[key]


def _is_awaited(observer: TensorObserver) -> bool:
    return bool(observer.features) and not observer.seen
