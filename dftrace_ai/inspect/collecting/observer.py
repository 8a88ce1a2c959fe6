"""What is to be seen of one tensor of one layer, and what was seen."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias

from dftrace_ai.inspect.collecting.rings import Awaited
from dftrace_ai.inspect.nonfinite import MARKS, Counts, Place
from dftrace_ai.inspect.numerics.collect import collect
from dftrace_ai.inspect.numerics.fp8 import quantisation_record, quantisation_row
from dftrace_ai.inspect.numerics.plain import row_with_quantisation
from dftrace_ai.inspect.numerics.record import Record, final_values, merge, with_quantisation
from dftrace_ai.inspect.numerics.statistics import FP8_PREFIXES
from dftrace_ai.inspect.output.sinks import Statistics
from dftrace_ai.inspect.ranks.reduction import Slot
from dftrace_ai.run import emitting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from torch import Tensor

    from dftrace_ai.inspect.collecting.rings import Asked, DeviceRing, DueWeight, Rings
    from dftrace_ai.inspect.config import Observe, Schedule
    from dftrace_ai.inspect.numerics.formats import Format
    from dftrace_ai.run.emitting import Moment


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


PLAIN = "plain"
_CURRENT, _DELAYED = FP8_PREFIXES
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
    return math.nan if record.n_nan else record.amax


ScaleSource: TypeAlias = "Callable[[str, float | Tensor], tuple[Format, float | Tensor] | None]"
"""Tells under which scale a tensor is, or would be, quantised: the format and the scale, if any."""
# It is asked by source, ``used``, ``current`` or ``delayed``, and by the amax, which is NaN where
# the tensor has a NaN. One that is on a device stays there, and so does the scale.


class TensorObserver:
    """What is to be seen of one tensor of one layer."""

    # Ranks share the tensor by a key of the collector's groups; None for none.

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
        self.told = False
        """Whether those are told that do."""
        self.rings: Rings | None = None
        """Where records of tensors on other devices are made."""
        self.ahead: DueWeight | None = None
        """Where a record may have been asked for before the layer runs."""
        self._failed = failed
        self._due: list[Observe] = []
        self.sources: tuple[str, ...] = ()
        self.with_error = False
        self.seen = Seen()

    def arm(self, iteration: int) -> bool:
        """Prepare for an iteration; say whether there is anything to see in it."""
        due = [one for one in self.wanted if one.schedule.due(iteration)]
        if due == self._due:
            return bool(due)
        self._due, self.told = due, False
        sources = dict.fromkeys(source_of(one.feature, stat) for one in due for stat in one.stats)
        # What needs no scale does not miss it where there is none.
        self.sources = tuple(sorted(sources, key=lambda source: source != PLAIN))
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
    ) -> Record | Asked | None:
        """Look at a tensor, which is merged with what was seen since the last step."""
        # The tensor is as it is before anything is changed. Returned is the record of this tensor
        # alone, or what was asked for where the record comes later; None where it has no elements
        # or could not be seen.
        if self.tensor == "weight" and self.seen.has(self.sources):
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
        moment = emitting.moment()
        record = collect(tensor)
        if record is None:
            return None
        for source in self.sources:
            if source == PLAIN:
                self._keep(source, record, moment)
                continue
            cast = self._cast(scales, source, amax_of(record))
            if cast is not None:
                quantised = self._quantised(tensor, record, cast[0], float(cast[1]))
                self._keep(source, quantised, moment)
        return record

    def _cast(
        self, scales: ScaleSource | None, source: str, amax: float | Tensor
    ) -> tuple[Format, float | Tensor] | None:
        if scales is None:
            raise RuntimeError(f"{self.layer}: no scale is known for {self.tensor}")
        return scales(source, amax)

    def _quantised(self, tensor: Tensor, record: Record, format_: Format, scale: float) -> Record:
        if self.with_error:
            return with_quantisation(record, quantisation_record(tensor, format_, scale))
        return collect(tensor, scale=scale, format=format_) or record

    def _see_there(
        self, ring: DeviceRing, tensor: Tensor, scales: ScaleSource | None, micro_batch: int | None
    ) -> Asked | None:
        elements = ring.elements_of(tensor)
        if elements is None:
            return None
        moment = emitting.moment()
        come = None
        if micro_batch is not None:
            come = partial(_mark, Place(self.layer, self.tensor, MARKS.step, micro_batch, moment))
        asked = None if self.ahead is None else self.ahead.asked(ring, elements)
        if asked is not None:
            asked.come = come
        else:
            asked = ring.add(elements, come=come)
        if asked is None:
            return None
        for source in self.sources:
            found: Asked | None = asked
            if source != PLAIN:
                cast = self._cast(scales, source, asked.amax())
                if cast is None:
                    continue
                if self.with_error:
                    lost = quantisation_row(elements, *cast)
                    found = ring.add_row(row_with_quantisation(asked.row, lost))
                else:
                    found = ring.add(elements, cast=cast)
            if found is not None:
                self._keep(source, found, moment)
        return asked

    def _keep(self, source: str, part: Record | Awaited, moment: Moment) -> None:
        self.seen.add(source, part, moment, once=self.tensor == "weight")

    def statistics(
        self, records: Mapping[Slot, Record], iteration: int, rank: int, moment: Moment
    ) -> Iterator[Statistics]:
        """Yield what is due in an iteration."""
        for one in self.wanted:
            if not one.schedule.due(iteration):
                continue
            values: dict[str, float] = {}
            told: Record | None = None
            # Those of one record together; the order is that of the config.
            for source, stats in groupby(one.stats, partial(source_of, one.feature)):
                record = records.get(Slot(self.layer, self.tensor, source))
                if record is None or not record.n_total:
                    continue
                told = told or record
                values |= final_values(record, tuple(stats))
            if told is not None and values:
                yield Statistics(
                    self.layer, self.tensor, one.feature, iteration, values, told, moment, rank
                )


def _mark(place: Place, record: Record) -> None:
    """Mark NaN and infinities of a record that has come."""
    MARKS.counted(place, Counts.of(record))
