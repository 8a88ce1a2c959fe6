"""What is handed to loggers: the numbers of one tensor; and what a logger that takes them has."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dftrace_ai.inspect.numerics.record import Record
    from dftrace_ai.run.emitting import Moment

__all__ = ["BaseLogger", "Statistics"]


class BaseLogger(abc.ABC):
    """What `initialize(statistics_logger=...)` takes; any object with `log_scalar` will do, too.

    Example::

        class Printer(BaseLogger):
            def log_scalar(self, name, value, iteration, **kwargs):
                print(iteration, name, value)
    """

    @abc.abstractmethod
    def log_scalar(self, name: str, value: float, iteration: int, **kwargs: Any) -> None:
        """Take one number.

        Args:
            name: ``{layer}_{tensor}_{statistic}``.
            value: the statistic, a number of fp32.
            iteration: the step to which it belongs.
            kwargs: nothing now; more may come.
        """


@dataclass(frozen=True)
class Statistics:
    """The statistics of one tensor in one iteration."""

    layer: str
    tensor: str  # name of the tensor, such as ``activation``
    feature: str  # which feature asked for them
    iteration: int  # the step in which the tensor was seen
    values: Mapping[str, float]  # fp32 numbers by statistic, in the order of the config
    record: Record  # what they were made of
    moment: Moment  # when and where the tensor was seen
    rank: int
