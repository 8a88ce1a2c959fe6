"""Histograms: of values, and of the weights and gradients of a model, for iterations and epochs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from dftrace_ai.loggers.routines.base import BaseLogger, RoutineSettings
from dftrace_ai.loggers.routines.bins import Counted, counted, record_of
from dftrace_ai.run.loaded_torch import loaded_torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dftrace_ai.loggers.records import Point, Record

__all__ = ["HistogramLogger"]


class HistogramLogger(BaseLogger):
    """Logs how values are distributed: of each iteration, and of all since the last epoch."""

    key: ClassVar[str] = "hist"
    packages: ClassVar[tuple[str, ...]] = ("numpy",)
    accepts: ClassVar[str] = (
        "a tensor or array of real numbers, a list of numbers, a module (weights and gradients of "
        "its parameters), or a mapping of names to tensors"
    )

    def __init__(self, settings: RoutineSettings) -> None:
        super().__init__(settings)
        self.since_epoch: dict[str, Counted] = {}

    def take(self, value: Any) -> Any:
        """Count the values as they are now: that is quicker than to copy them."""
        return {part: counted(tensor) for part, tensor in _tensors(value)}

    def records(self, name: str, taken: Any, at: Point) -> Iterable[Record]:
        """Make a record of each tensor."""
        for part, found in taken.items():
            full = f"{name}/{part}" if part else name
            before = self.since_epoch.get(full)
            self.since_epoch[full] = found if before is None else before.plus(found)
            yield record_of(full, found, self.settings.bins, at)

    def epoch_records(self, at: Point) -> Iterable[Record]:
        """Make records of all values since the epoch before."""
        found, self.since_epoch = self.since_epoch, {}
        for name, values in found.items():
            yield record_of(f"epoch/{name}", values, self.settings.bins, at)


def _tensors(value: Any) -> Iterator[tuple[str, Any]]:
    torch = loaded_torch()
    if torch is not None and isinstance(value, torch.nn.Module):
        for name, parameter in value.named_parameters():
            yield name, parameter
            if parameter.grad is not None:
                yield f"{name}.grad", parameter.grad
    elif isinstance(value, Mapping):
        for name, tensor in value.items():
            yield str(name), tensor
    else:
        yield "", value
