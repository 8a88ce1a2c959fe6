"""A logger for nvdlfw-inspect: statistics of Transformer Engine on the trace."""

from __future__ import annotations

import atexit
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dftrace_ai.inspect import trace_events
from dftrace_ai.inspect.errors import InspectRuntimeError
from dftrace_ai.inspect.reduction import rank_of_process

if TYPE_CHECKING:
    import os

    from typing_extensions import Self

__all__ = ["NvdlfwTraceLogger"]

_NAME = re.compile(
    r"(?P<layer>.*)_(?P<tensor>activation|weight|gradient|output|wgrad|dgrad)_(?P<stat>.+)",
    re.DOTALL,
)


class _Tensor(NamedTuple):
    layer: str
    tensor: str
    time_ns: int
    values: dict[str, Any]


@cache
def _class_for(base: type, ours: type) -> type:
    return type(ours.__name__, (ours, base), {"__doc__": ours.__doc__})


class NvdlfwTraceLogger:
    """Takes the statistics of nvdlfw-inspect and puts them on the timeline of the trace.

    nvdlfw-inspect serves a TensorBoard writer, and writes its own file, only where it is given
    no logger: so this one hands the numbers on to both. The numbers of an iteration are recorded
    when the first one of the next iteration comes, by `flush`, and when the process ends: until
    then, values on a GPU are not waited for.

    Args:
        tb_writer: an object with ``add_scalar(name, value, iteration)``, or None.
        default_file: path of a text file that gets a line for each number, or None.

    Raises:
        InspectRuntimeError: nvdlfw-inspect is not installed.

    Example::

        import nvdlfw_inspect.api as debug_api

        debug_api.initialize("config.yaml", statistics_logger=NvdlfwTraceLogger())
    """

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Self:
        """Make an object that nvdlfw-inspect takes for one of its loggers."""
        try:
            from nvdlfw_inspect.logging import BaseLogger
        except ImportError as error:
            raise InspectRuntimeError(
                "NvdlfwTraceLogger needs nvdlfw-inspect: pip install nvdlfw-inspect"
            ) from error
        if issubclass(cls, BaseLogger):
            return super().__new__(cls)
        made: Self = super().__new__(_class_for(BaseLogger, cls))  # type: ignore[arg-type]
        return made

    def __init__(
        self, *, tb_writer: Any = None, default_file: str | os.PathLike[str] | None = None
    ) -> None:
        self._tb_writer = tb_writer
        self._file: Any = None
        if default_file is not None:
            from dftrace_ai.inspect.log_files import StatisticsFile

            self._file = StatisticsFile(Path(default_file))
        self._iteration: int | None = None
        self._waiting: dict[tuple[str, str], _Tensor] = {}
        atexit.register(self.flush)

    def log_scalar(self, name: str, value: Any, iteration: int, **_kwargs: Any) -> None:
        """Take one number.

        Args:
            name: ``{layer}_{tensor}_{statistic}``.
            value: a number, or a tensor with one element on any device.
            iteration: the step to which it belongs.
        """
        if iteration != self._iteration:
            self.flush()
            self._iteration = iteration
        found = _NAME.fullmatch(name)
        layer, tensor, stat = found.groups() if found else (name, "", "")
        seen = self._waiting.get((layer, tensor))
        if seen is None:
            seen = _Tensor(layer, tensor, trace_events.now_ns(), {})
            self._waiting[layer, tensor] = seen
        seen.values[stat] = value

    def flush(self) -> None:
        """Hand on and record what came since the last iteration; call it before the trace ends."""
        waiting, self._waiting = list(self._waiting.values()), {}
        iteration = self._iteration or 0
        about = {"iteration": iteration, "rank": rank_of_process(), "feature": "nvdlfw-inspect"}
        for seen in waiting:
            values = {stat or "value": float(value) for stat, value in seen.values.items()}
            for stat, value in zip(seen.values, values.values(), strict=True):
                self._hand_on("_".join(filter(None, (seen.layer, seen.tensor, stat))), value)
            name = f"{seen.layer}:{seen.tensor}" if seen.tensor else seen.layer
            trace_events.numbers(name, about, values, {}, seen.time_ns)
        if self._file is not None:
            self._file.flush()

    def _hand_on(self, name: str, value: float) -> None:
        if self._tb_writer is not None:
            self._tb_writer.add_scalar(name, value, self._iteration)
        if self._file is not None:
            self._file.write(name, value, self._iteration or 0)
