"""Statistics of tensors that the training gives by itself: `log_tensor_stats`."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from dftrace_ai.inspect.collecting.rings import Awaited, elements_of
from dftrace_ai.inspect.config import LayerInfo
from dftrace_ai.inspect.errors import InspectTypeError
from dftrace_ai.inspect.numerics.collect import collect
from dftrace_ai.inspect.numerics.plain import merged_rows, neutral_row
from dftrace_ai.inspect.numerics.record import NEUTRAL, final_values, merge_all
from dftrace_ai.inspect.output.logger_interface import Statistics
from dftrace_ai.inspect.ranks.exchange import gathered, gathered_rows, is_last_rank
from dftrace_ai.run import emitting

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from torch import Tensor

    from dftrace_ai.inspect.collecting.rings import DeviceRing
    from dftrace_ai.inspect.config import Observe, Section
    from dftrace_ai.inspect.numerics.record import Record
    from dftrace_ai.inspect.session.state import SessionState
    from dftrace_ai.run.emitting import Moment

__all__ = ["NEVER", "ExplicitCalls"]

NEVER = math.inf
"""The next due iteration of what is never due."""


class ExplicitCall(NamedTuple):
    """An explicit call for a tensor whose record comes later."""

    layer: str
    tensor: str
    feature: str  # which feature asked for it
    stats: Sequence[str]  # the statistics, in the order of the config
    iteration: int  # of the call
    rank: int
    moment: Moment  # of the call
    awaited: Awaited  # has the record

    def has_come(self) -> bool:
        """Tell whether the record is on the host."""
        return self.awaited.record is not None

    def statistics(self) -> Iterator[Statistics]:
        """Yield the statistics; nothing where no rank had an element."""
        record = self.awaited.record
        if record is not None and record.n_total:
            values = final_values(record, self.stats)
            yield Statistics(
                *(self.layer, self.tensor, self.feature, self.iteration),
                *(values, record, self.moment, self.rank),
            )


class ExplicitCalls:
    """The explicit calls of a session."""

    def __init__(self, session: SessionState) -> None:
        self._session = session
        self.due: dict[tuple[str, str], float] = {}
        """The next due iteration of each layer and tensor that was given."""
        self._asked_in = session.iteration
        self._observed: dict[tuple[str, str], Observe | None] = {}
        self.sections: dict[str, Section | None] = {}
        """The section of each layer that was given."""
        self.logged: set[str] = set()
        """The layers of calls that were due."""

    def goes_on_to(self, iteration: int) -> None:
        """Be told that another iteration begins."""
        self._asked_in = iteration

    def log(
        self,
        layer: str,
        tensor: Tensor,
        tensor_name: str,
        *,
        skip_reduction: bool = False,
        group: Any = None,
        iteration: int | None = None,
    ) -> dict[str, Tensor]:
        """Log the statistics of a tensor if that is due; as `api.log_tensor_stats`."""
        observe = self._observe(layer, tensor_name)
        now = self._session.iteration if iteration is None else iteration
        if observe is None:
            self.due[layer, tensor_name] = NEVER
            return {}
        if iteration is None:
            following = observe.schedule.next_due(now)
            self.due[layer, tensor_name] = NEVER if following is None else following
        if not observe.schedule.due(now):
            return {}
        if iteration is None:
            # Called again in this step, it is due again.
            self.due[layer, tensor_name] = now
        self.logged.add(layer)
        exchanges, group, here = self._exchange(layer, skip_reduction, group)
        call = ExplicitCall(
            *(layer, tensor_name, observe.feature, observe.stats),
            *(now, self._session.rank, emitting.moment(), Awaited()),
        )
        ring = self._session.rings.of(tensor)
        if ring is not None:
            return self._log_there(ring, tensor, call, exchanges=exchanges, group=group, here=here)
        record = self._record(call, tensor, group, exchanges=exchanges, here=here)
        if record is None or not record.n_total:
            return {}
        call.awaited.record = record
        self._session.outbox.put(call)
        self._session.sinks.flush()
        device = "cpu" if tensor.is_meta else tensor.device
        return {
            stat: torch.scalar_tensor(value, dtype=torch.float32, device=device)
            for stat, value in final_values(record, observe.stats).items()
        }

    def _record(
        self, call: ExplicitCall, tensor: Tensor, group: Any, *, exchanges: bool, here: bool
    ) -> Record | None:
        """Return what this rank logs of a tensor, None where another one does."""
        record = NEUTRAL
        try:
            record = collect(tensor) or NEUTRAL
        except Exception as error:  # noqa: BLE001 - a statistic must not end the training
            self._tell_unless_complex(call, tensor, error)
        if exchanges:
            # The other ranks wait for this one, whatever it has.
            try:
                record = merge_all(rows[0] for rows in gathered([record], group))
            except Exception as error:  # noqa: BLE001 - other ranks must not end it, either
                self._session.groups.lost(group, error)
                here = True
        _refuse_complex(tensor)
        return record if here else None

    def _tell_unless_complex(self, call: ExplicitCall, tensor: Tensor, error: Exception) -> None:
        if not tensor.is_complex():
            self._session.failed(call.layer, call.tensor, error)

    def _log_there(
        self,
        ring: DeviceRing,
        tensor: Tensor,
        call: ExplicitCall,
        *,
        exchanges: bool,
        group: Any,
        here: bool,
    ) -> dict[str, Tensor]:
        """Log a tensor whose record its device makes: the values stay there, and nothing waits."""
        if call.iteration != self._asked_in:
            # Whoever gives the iterations may never call `step`.
            self._asked_in = call.iteration
            self._session.rings.send()
            self._session.deliver()
        elements = None
        try:
            elements = elements_of(tensor)
        except InspectTypeError as error:
            self._tell_unless_complex(call, tensor, error)
        if elements is None and not exchanges:
            _refuse_complex(tensor)
            return {}
        asked = ring.add_row(neutral_row(tensor.device)) if elements is None else ring.add(elements)
        if asked is not None and exchanges:
            try:
                whole = merged_rows(gathered_rows(asked.row, group))
            except Exception as error:  # noqa: BLE001 - other ranks must not end the training
                self._session.groups.lost(group, error)
            else:
                asked = ring.add_row(whole) if here else None
        _refuse_complex(tensor)
        if asked is None:
            return {}
        values = asked.values(call.stats)
        self._session.outbox.put(call._replace(awaited=asked.awaited))
        return values

    def _observe(self, layer: str, tensor_name: str) -> Observe | None:
        key = layer, tensor_name
        if key not in self._observed:
            section = self._section(layer)
            observe = section.base_observe(tensor_name) if section is not None else None
            self._observed[key] = observe
            if observe is not None:
                self._session.log.write(
                    f"{layer}: Feature={observe.feature}, API=log_tensor_stats, "
                    f"TENSOR={tensor_name}: Called"
                )
        return self._observed[key]

    def _section(self, layer: str) -> Section | None:
        if layer not in self.sections:
            info = LayerInfo(layer)
            self.sections[layer] = self._session.config.section_of(info, [info])
        return self.sections[layer]

    def tensors(self, layers: Collection[str]) -> list[str]:
        """Return the tensors that were given of some layers, each once."""
        return list(dict.fromkeys(name for layer, name in self._observed if layer in layers))

    def _exchange(self, layer: str, skip_reduction: bool, group: Any) -> tuple[bool, Any, bool]:
        """Say whether ranks merge their records, which ranks, and whether this one logs."""
        group = self._session.group if group is None else group
        if skip_reduction or not self._session.groups.usable(group):
            return False, None, True
        if group is not None:
            return True, group, True
        self._session.say_once(
            ("no group", layer),
            f"{layer}: no reduction group is set; statistics are merged over all ranks and "
            "logged by the last one.",
            logging.WARNING,
        )
        return True, None, is_last_rank()


def _refuse_complex(tensor: Tensor) -> None:
    """Raise for a complex tensor: after the exchange, for which other ranks wait."""
    if tensor.is_complex():
        raise InspectTypeError("a complex tensor has no statistics; take those of its parts")
