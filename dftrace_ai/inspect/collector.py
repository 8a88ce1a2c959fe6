"""What attached layers show between two steps: records by tensor, merged as they come."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from dftrace_ai.inspect.nonfinite_marks import MARKS, Counts, Place
from dftrace_ai.inspect.numerics.collect import collect
from dftrace_ai.inspect.numerics.fp8 import quantisation_record, quantisation_row
from dftrace_ai.inspect.numerics.plain import row_with_quantisation
from dftrace_ai.inspect.numerics.record import (
    PREFIXES,
    Record,
    final_values,
    merge,
    with_quantisation,
)
from dftrace_ai.inspect.numerics.row_values import amax_of_row
from dftrace_ai.inspect.reduction import GroupMerger, Slot
from dftrace_ai.inspect.rings import Awaited, elements_of
from dftrace_ai.inspect.sinks import Statistics
from dftrace_ai.inspect.trace_events import now_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from torch import Tensor

    from dftrace_ai.inspect.config import Observe, Schedule
    from dftrace_ai.inspect.numerics.fp8 import Format
    from dftrace_ai.inspect.rings import Asked, DeviceRing, Rings

__all__ = ["Collector", "EndedStep", "ScaleSource", "TensorObserver", "amax_of", "source_of"]

PLAIN = "plain"
_CURRENT, _DELAYED = PREFIXES
FP8_FEATURE = "LogFp8TensorStats"


def source_of(feature: str, stat: str) -> str:
    """Return by which scale a statistic counts: a slot's `source`."""
    if feature != FP8_FEATURE:
        return PLAIN
    return (
        "current"
        if stat.startswith(_CURRENT)
        else "delayed"
        if stat.startswith(_DELAYED)
        else "used"
    )


def amax_of(record: Record) -> float:
    """Return the largest magnitude of a tensor as torch gives it: NaN where there is a NaN."""
    return math.nan if record[8] else record[7]


class ScaleSource(Protocol):
    """Tells under which scale a tensor is, or would be, quantised."""

    def __call__(self, source: str, amax: float | Tensor, /) -> tuple[Format, float | Tensor]:
        """Return format and scale.

        Args:
            source: ``used``, ``current`` or ``delayed``.
            amax: of the tensor itself; NaN where it has a NaN. One that is on a device stays
                there, and so does the scale.
        """


@dataclass
class _Seen:
    """What was seen since the last step; records that are here are merged as they come."""

    time_ns: int
    parts: list[Record | Awaited] = field(default_factory=list)

    def add(self, part: Record | Awaited) -> None:
        before = self.parts[-1] if self.parts else None
        if before is None or isinstance(part, Awaited) or isinstance(before, Awaited):
            self.parts.append(part)
        else:
            self.parts[-1] = merge(before, part)

    def records(self) -> list[Record]:
        """Return those that have come."""
        found = [part.record if isinstance(part, Awaited) else part for part in self.parts]
        return [record for record in found if record is not None]

    def has_come(self) -> bool:
        return len(self.records()) == len(self.parts)


class TensorObserver:
    """What is to be seen of one tensor of one layer.

    Args:
        layer: name of the layer.
        tensor: name of the tensor.
        wanted: the statistics that the config asks for.
        group: which ranks share the tensor: None for none, else a key of the collector's groups.
        failed: is told of what goes wrong in looking; the training goes on.
    """

    def __init__(
        self,
        layer: str,
        tensor: str,
        wanted: Iterable[Observe],
        group: str | None,
        failed: Callable[[str, str, Exception], None],
    ) -> None:
        self.layer = layer
        self.tensor = tensor
        self.wanted = tuple(wanted)
        self.group = group
        self.features: tuple[str, ...] = ()
        """Which features look in this iteration."""
        self.rings: Rings | None = None
        """Where records of tensors on other devices are made."""
        self._failed = failed
        self.sources: tuple[str, ...] = ()
        self.with_error = False
        self.seen: dict[str, _Seen] = {}

    def arm(self, iteration: int) -> bool:
        """Prepare for an iteration; say whether there is anything to see in it."""
        due = [one for one in self.wanted if one.schedule.due(iteration)]
        self.sources = tuple(
            dict.fromkeys(source_of(one.feature, stat) for one in due for stat in one.stats)
        )
        self.with_error = any(stat.endswith("mse") for one in due for stat in one.stats)
        self.features = tuple(dict.fromkeys(one.feature for one in due))
        return bool(due)

    def next_due(self, iteration: int) -> int | None:
        """Return the next iteration after this one in which there is something to see."""
        found = [one.schedule.next_due(iteration) for one in self.wanted]
        return min((one for one in found if one is not None), default=None)

    def table(self) -> dict[Slot, tuple[Schedule, ...]]:
        """Return every slot that may be fed, with what makes it due."""
        slots: dict[Slot, tuple[Schedule, ...]] = {}
        for one in self.wanted:
            for stat in one.stats:
                slot = Slot(self.layer, self.tensor, source_of(one.feature, stat))
                slots[slot] = tuple(dict.fromkeys((*slots.get(slot, ()), one.schedule)))
        return slots

    def see(
        self, tensor: Tensor, scales: ScaleSource | None = None, micro_batch: int | None = None
    ) -> Record | Tensor | None:
        """Look at a tensor, which is merged with what was seen since the last step.

        Args:
            tensor: as it is before anything is changed; one without elements is passed over.
            scales: how it is quantised; needed where 8-bit statistics are due.
            micro_batch: which forward of the layer in the step, where NaN and infinities in a
                record that comes later are to be marked.

        Returns:
            The record of this tensor alone, or, of a tensor whose record comes later, its amax on
            the device. None where it has no elements or could not be seen.
        """
        if self.tensor == "weight" and self.seen:
            return None
        try:
            ring = None if self.rings is None else self.rings.of(tensor)
            if ring is not None:
                return self._see_there(ring, tensor, scales, micro_batch)
            return self._see_here(tensor, scales)
        except Exception as error:  # noqa: BLE001 - a statistic must not end the training
            self._failed(self.layer, self.tensor, error)
            return None

    def _see_here(self, tensor: Tensor, scales: ScaleSource | None) -> Record | None:
        time_ns = now_ns()
        record = collect(tensor)
        if record is None:
            return None
        for source in self.sources:
            if source == PLAIN:
                self._keep(source, record, time_ns)
                continue
            format_, scale = self._scale(scales, source, amax_of(record))
            quantised = self._quantised(tensor, record, format_, float(scale))
            self._keep(source, quantised, time_ns)
        return record

    def _scale(
        self, scales: ScaleSource | None, source: str, amax: float | Tensor
    ) -> tuple[Format, float | Tensor]:
        if scales is None:
            raise RuntimeError(f"{self.layer}: no scale is known for {self.tensor}")
        return scales(source, amax)

    def _quantised(self, tensor: Tensor, record: Record, format_: Format, scale: float) -> Record:
        if self.with_error:
            return with_quantisation(record, quantisation_record(tensor, format_, scale))
        return collect(tensor, scale=scale, format=format_) or record

    def _see_there(
        self,
        ring: DeviceRing,
        tensor: Tensor,
        scales: ScaleSource | None,
        micro_batch: int | None,
    ) -> Tensor | None:
        elements = elements_of(tensor)
        if elements is None:
            return None
        time_ns = now_ns()
        come = None
        if micro_batch is not None:
            come = partial(_mark, Place(self.layer, self.tensor, MARKS.step, micro_batch, time_ns))
        asked = ring.add(elements, come=come)
        if asked is None:
            return None
        amax = amax_of_row(asked.row)
        for source in self.sources:
            found: Asked | None = asked
            if source != PLAIN:
                cast = self._scale(scales, source, amax)
                if self.with_error:
                    lost = quantisation_row(elements, *cast)
                    found = ring.add_row(row_with_quantisation(asked.row, lost))
                else:
                    found = ring.add(elements, cast=cast)
            if found is not None:
                self._keep(source, found.awaited, time_ns)
        return amax

    def _keep(self, source: str, part: Record | Awaited, time_ns: int) -> None:
        self.seen.setdefault(source, _Seen(time_ns)).add(part)

    def statistics(
        self, records: Mapping[Slot, Record], iteration: int, rank: int, time_ns: int
    ) -> Iterator[Statistics]:
        """Yield what is due in an iteration.

        Args:
            records: what was seen, by slot.
            iteration: the step.
            rank: of this process.
            time_ns: when the tensor was seen first.
        """
        for one in self.wanted:
            if not one.schedule.due(iteration):
                continue
            values: dict[str, float] = {}
            told: Record | None = None
            for stat in one.stats:
                slot = Slot(self.layer, self.tensor, source_of(one.feature, stat))
                record = records.get(slot)
                if record is None or not record[13]:
                    continue
                told = told or record
                values |= final_values(record, [stat])
            if told is not None and values:
                yield Statistics(
                    self.layer, self.tensor, one.feature, iteration, values, told, time_ns, rank
                )


def _mark(place: Place, record: Record) -> None:
    """Mark NaN and infinities of a record that has come."""
    MARKS.counted(place, Counts.of(record))


class EndedStep(NamedTuple):
    """What a step has shown, which is logged when all of it is on the host.

    Attributes:
        iteration: the step.
        rank: of this process.
        time_ns: when it ended.
        seen: by observer.
        merged: what ranks have made of it together, which counts instead.
    """

    iteration: int
    rank: int
    time_ns: int
    seen: Sequence[tuple[TensorObserver, Mapping[str, _Seen]]]
    merged: Mapping[Slot, Record]

    def has_come(self) -> bool:
        """Tell whether all records are on the host."""
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
        records = self.own() | dict(self.merged)
        for observer, seen in self.seen:
            first = min((one.time_ns for one in seen.values()), default=self.time_ns)
            yield from observer.statistics(records, self.iteration, self.rank, first)


class Collector:
    """All observers of a session, and the merging of what they saw over the ranks.

    Args:
        rings: where records of tensors on other devices are made.
    """

    def __init__(self, rings: Rings) -> None:
        self.rings = rings
        self.observers: list[TensorObserver] = []
        self._mergers: dict[str, GroupMerger] = {}

    def observe(self, observer: TensorObserver) -> None:
        """Take in an observer; the order is that of the log."""
        observer.rings = self.rings
        self.observers.append(observer)

    def forget(self, observers: Iterable[TensorObserver]) -> None:
        """Let go of the observers of a model that is detached."""
        gone = set(map(id, observers))
        self.observers = [one for one in self.observers if id(one) not in gone]

    def set_group(self, key: str, group: Any) -> None:
        """Say which ranks share the tensors of observers with this key; None: all processes."""
        self._mergers[key] = GroupMerger(group)

    def ensure_group(self, key: str, group: Any) -> None:
        """Set the ranks of a key unless they are set."""
        if key not in self._mergers:
            self.set_group(key, group)

    def end_step(
        self, iteration: int, rank: int, collective_due: Callable[[int], bool] | None
    ) -> EndedStep:
        """Return what an iteration has shown, and begin anew.

        Records that a device makes are sent on their way; they come later. Only where ranks
        exchange records they are waited for: the exchange needs them, and has to happen in the
        same step on all ranks, whichever device is behind.

        Args:
            iteration: the step that ends.
            rank: of this process.
            collective_due: whether ranks exchange records in an iteration, which must be the same
                everywhere; None where nothing is exchanged.
        """
        seen = [(observer, observer.seen) for observer in self.observers]
        for observer in self.observers:
            observer.seen = {}
        ended = EndedStep(iteration, rank, now_ns(), seen, {})
        self.rings.send()
        if collective_due is None or not collective_due(iteration):
            return ended
        self.rings.receive(wait=True)
        by_group: dict[str, list[TensorObserver]] = defaultdict(list)
        for observer in self.observers:
            if observer.group is not None:
                by_group[observer.group].append(observer)
        own = ended.own()
        merged: dict[Slot, Record] = {}
        for key in sorted(self._mergers):
            table: dict[Slot, tuple[Schedule, ...]] = {}
            for observer in by_group[key]:
                table |= observer.table()
            merged |= self._mergers[key].merge(table, own, iteration)
        return ended._replace(merged=merged)
