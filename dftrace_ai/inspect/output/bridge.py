"""A logger for nvdlfw-inspect: statistics of Transformer Engine on the trace.

Loaded late, when a name of it is asked for: it needs torch.
"""

from __future__ import annotations

import atexit
import os
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dftrace_ai.inspect.errors import InspectAssertionError, InspectRuntimeError
from dftrace_ai.inspect.output import trace_events
from dftrace_ai.inspect.output.log_files import StatisticsFile, tell_on_stderr
from dftrace_ai.inspect.ranks.exchange import rank_of_process
from dftrace_ai.run import emitting
from dftrace_ai.run.hooks import Hook, register
from dftrace_ai.wording import ToldOnce, described

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from typing_extensions import Self

    from dftrace_ai.run.emitting import Moment
    from dftrace_ai.run.run import Run

_NAME = re.compile(
    r"(?P<layer>.*)_(?P<tensor>activation|weight|gradient|output|wgrad|dgrad)_(?P<stat>.+)",
    re.DOTALL,
)


class _Value(NamedTuple):
    name: str
    value: Any


class _Tensor(NamedTuple):
    title: str
    moment: Moment
    values: dict[str, _Value]


class _Recorded(NamedTuple):
    name: str
    value: float
    iteration: Any


@cache
def _class_for(base: type, ours: type) -> type:
    return type(ours.__name__, (ours, base), {"__doc__": ours.__doc__})


class NvdlfwTraceLogger:
    """Takes the statistics of nvdlfw-inspect and puts them on the timeline of the trace.

    nvdlfw-inspect serves a TensorBoard writer, and writes its own file, only where it is given
    no logger: so this one hands the numbers on to both. The numbers of an iteration are recorded
    when the first one of the next iteration comes, by `flush`, and when the run or the process
    ends: until then, values on a GPU are not waited for. What goes wrong in it is told once on
    standard error, and the training goes on.

    Args:
        tb_writer: an object with ``add_scalar(name, value, iteration)``, or None.
        default_file: path of a text file that gets a line for each number, or None.

    Raises:
        InspectRuntimeError: nvdlfw-inspect is not installed.
        InspectAssertionError: the writer has no `add_scalar`.
        OSError: the file cannot be opened.

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
        if tb_writer is not None and not callable(getattr(tb_writer, "add_scalar", None)):
            raise InspectAssertionError(
                f"tb_writer: {type(tb_writer).__name__} has no method add_scalar"
            )
        self._tb_writer = tb_writer
        self._file: Any = None
        if default_file is not None:
            self._file = StatisticsFile(Path(default_file))
        self._iteration: Any = None
        self._waiting: dict[str, list[_Tensor]] = {}
        self._recorded: list[_Recorded] = []
        self._told = ToldOnce()
        _loggers.append(self)
        atexit.register(self.flush)
        register(_HOOK)

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
        name = str(name)
        found = _NAME.fullmatch(name)
        layer, tensor, stat = found.groups() if found else (name, "", "value")
        title = f"{layer}:{tensor}" if tensor else layer
        of_title = self._waiting.setdefault(title, [])
        # Two looks at a tensor in an iteration are two events.
        if not of_title or stat in of_title[-1].values:
            of_title.append(_Tensor(title, emitting.moment(), {}))
        if hasattr(value, "detach"):
            # Whoever made it may write into it again.
            value = value.detach().clone()
        of_title[-1].values[stat] = _Value(name, value)

    def flush(self) -> None:
        """Record and hand on what came since the last iteration."""
        self.record()
        recorded, self._recorded = self._recorded, []
        for one in recorded:
            self._hand_on(one)
        if self._file is not None:
            self._tried("default_file", self._file.flush)

    def record(self) -> None:
        """Record what came since the last iteration; it is handed on by the next `flush`.

        A run that ends calls this, which the handler of a signal may do: locks of the writer may
        be held then, so that it is not called.
        """
        about = {
            "iteration": self._iteration,
            "rank": rank_of_process(),
            "feature": "nvdlfw-inspect",
        }
        while self._waiting:
            # One after the other: interrupted by the end of the run, the rest is recorded there.
            for seen in self._waiting.pop(next(iter(self._waiting))):
                self._record(seen, about)

    def _record(self, seen: _Tensor, about: Mapping[str, str | int]) -> None:
        values: dict[str, float] = {}
        for stat, (name, value) in seen.values.items():
            number = self._tried(name, float, value)
            if number is not None:
                values[stat] = number
                self._recorded.append(_Recorded(name, number, self._iteration))
        if values:
            trace_events.numbers(seen.title, about, values, {}, seen.moment)

    def forget(self) -> None:
        """Leave what was taken to the process that has taken it: this one is forked from it."""
        self._waiting, self._recorded = {}, []

    def _hand_on(self, recorded: _Recorded) -> None:
        if self._tb_writer is not None:
            self._tried("tb_writer", self._tb_writer.add_scalar, *recorded)
        if self._file is not None:
            name, value, iteration = recorded
            self._tried("default_file", self._file.write, "", {name: value}, iteration)

    def _tried(self, what: str, action: Callable[..., Any], *arguments: Any) -> Any:
        """Return what an action gives, None where it fails, which is told once."""
        try:
            return action(*arguments)
        except Exception as error:  # noqa: BLE001 - a logger must not end the training
            if self._told.first(what):
                tell_on_stderr(
                    f"dftrace: NvdlfwTraceLogger: {what} failed, which is told once: "
                    f"{described(error)}"
                )
            return None


_loggers: list[NvdlfwTraceLogger] = []


def _record_all(_: Run) -> None:
    for logger in _loggers:
        logger.record()


def _forget_all() -> None:
    for logger in _loggers:
        logger.forget()


_HOOK = Hook("the logger for nvdlfw-inspect", on_end=_record_all)

os.register_at_fork(after_in_child=_forget_all)
