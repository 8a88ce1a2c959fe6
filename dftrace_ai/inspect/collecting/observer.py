"""What is to be seen of one tensor of one layer, and what was seen."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias

from dftrace_ai.inspect.collecting.rings import Awaited
from dftrace_ai.inspect.nonfinite import MARKS, Counts, Place
from dftrace_ai.inspect.numerics.blocks import RECIPES, Blocks, block_range, blocks_of
from dftrace_ai.inspect.numerics.collect import collect
from dftrace_ai.inspect.numerics.fp8 import quantisation_record, quantisation_row, row_in_blocks
from dftrace_ai.inspect.numerics.memory import local_part
from dftrace_ai.inspect.numerics.plain import row_with, row_with_quantisation
from dftrace_ai.inspect.numerics.record import (
    Record,
    final_values,
    merge,
    record_of,
    with_quantisation,
)
from dftrace_ai.inspect.numerics.statistics import (
    BLOCK_PREFIXES,
    BLOCK_RANGE,
    COLUMNWISE,
    FP8_PREFIXES,
    BlockRange,
)
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
FP8_FEATURE = "LogFp8TensorStats"
_OF_PREFIX = dict(zip(FP8_PREFIXES, ("current", "delayed"), strict=True))


@cache
def source_of(feature: str, stat: str) -> str:
    """Return of what a statistic is made, a slot's `source`: the tensor, or what a scale does."""
    if feature == "LogNvfp4TensorStats":
        return "nvfp4"
    if feature != FP8_FEATURE:
        return stat if stat.startswith(BLOCK_RANGE) else PLAIN
    prefix = next((one for one in _OF_PREFIX if stat.startswith(one)), None)
    if prefix is not None:
        return _OF_PREFIX[prefix]  # one scale is the same both ways
    recipe = next((one for one in BLOCK_PREFIXES if stat.startswith(one)), "used_")
    return recipe.rstrip("_") + (COLUMNWISE if stat.endswith(COLUMNWISE) else "")


def amax_of(record: Record) -> float:
    """Return the largest magnitude of a tensor as torch gives it: NaN where there is a NaN."""
    return math.nan if record.n_nan else record.amax


Cast: TypeAlias = "tuple[Format, float | Tensor] | Blocks"
"""A format with the scale of a tensor, or one in which blocks have their own."""

ScaleSource: TypeAlias = "Callable[[str, float | Tensor], Cast | None]"
"""Tells how a tensor is, or would be, quantised, if it can be told."""
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
        self.with_error = any("mse" in stat for one in due for stat in one.stats)
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
            found = record if source == PLAIN else self._made(source, tensor, record, scales)
            if found is not None:
                self._keep(source, found, moment)
        return record

    def _made(
        self, source: str, tensor: Tensor, record: Record, scales: ScaleSource | None
    ) -> Record | None:
        """Return the record of a source other than the tensor itself, None where there is none."""
        spread = BlockRange.of(source, self.tensor)
        if spread is not None:
            return record._replace(max=float(block_range(local_part(tensor), spread)))
        cast = self._cast(scales, source, amax_of(record))
        if cast is None:
            return None
        if isinstance(cast, Blocks):
            return with_quantisation(record, record_of(row_in_blocks(tensor, cast).tolist()))
        format_, scale = cast[0], float(cast[1])
        if self.with_error:
            return with_quantisation(record, quantisation_record(tensor, format_, scale))
        return collect(tensor, scale=scale, format=format_) or record

    def _cast(self, scales: ScaleSource | None, source: str, amax: float | Tensor) -> Cast | None:
        recipe = source.removesuffix(COLUMNWISE)
        if recipe in RECIPES:
            return blocks_of(recipe, self.tensor, columnwise=recipe != source)
        if scales is None:
            raise RuntimeError(f"{self.layer}: no scale is known for {self.tensor}")
        return scales(source, amax)

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
            found = (
                asked
                if source == PLAIN
                else self._made_there(ring, source, elements, asked, scales)
            )
            if found is not None:
                self._keep(source, found, moment)
        return asked

    def _made_there(
        self,
        ring: DeviceRing,
        source: str,
        elements: Tensor,
        asked: Asked,
        scales: ScaleSource | None,
    ) -> Asked | None:
        spread = BlockRange.of(source, self.tensor)
        if spread is not None:
            return ring.add_row(row_with(asked.row, max=block_range(elements, spread)))
        cast = self._cast(scales, source, asked.amax())
        if cast is None:
            return None
        if isinstance(cast, Blocks):
            return ring.add_row(row_with_quantisation(asked.row, row_in_blocks(elements, cast)))
        if self.with_error:
            lost = quantisation_row(elements, *cast)
            return ring.add_row(row_with_quantisation(asked.row, lost))
        return ring.add(elements, cast=cast)

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
                spread = BlockRange.of(source, self.tensor)
                if spread is not None:
                    values[str(spread)] = final_values(record, ("max",))["max"]
                else:
                    values |= final_values(record, tuple(stats))
            if told is not None and values:
                yield Statistics(
                    self.layer, self.tensor, one.feature, iteration, values, told, moment, rank
                )


def _mark(place: Place, record: Record) -> None:
    """Mark NaN and infinities of a record that has come."""
    MARKS.counted(place, Counts.of(record))
