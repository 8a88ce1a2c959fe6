"""What ``dftracer.python`` and ``dftracer.logger`` hold, by dftrace_ai.

A program that is annotated for dftracer moves by its imports: ``from dftracer.python import ai,
dft_fn, dftracer`` becomes ``from dftrace_ai.compat.dftracer import ai, dft_fn, dftracer``.
``ai`` is a view of the one tree of `dftrace_ai` whose nodes are of dftracer's classes: what is set
by either name holds for both, and who never asks for dftracer's names meets none of its classes.

Example::

    from dftrace_ai.compat.dftracer import compute, dftracer

    log = dftracer.initialize_log("out/trace")
    with compute.forward:
        model(x)
    log.finalize()
"""

from __future__ import annotations

import inspect
import logging
import sys
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from dftrace_ai._version import __version__ as __version__
from dftrace_ai.compat import vocabulary as _vocabulary
from dftrace_ai.compat.dftracer import dynamo as _operators
from dftrace_ai.compat.dftracer import nodes as _nodes
from dftrace_ai.compat.dftracer.dynamo import *
from dftrace_ai.compat.dftracer.nodes import *
from dftrace_ai.compat.functions import dft_fn as dft_fn
from dftrace_ai.compat.logger import dftracer as dftracer
from dftrace_ai.compat.vocabulary import *
from dftrace_ai.compat.vocabulary import DFTRACER_LOG_LEVEL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dftrace_ai.compat.vocabulary import EntityID, TagValueTuple

__all__ = [
    "NoOpProfiler",
    "P",
    "ProfilerProtocol",
    "R",
    "T",
    "capture_signal",
    "dft_fn",
    "dftracer",
    "get_default_args",
    "get_time_scale",
    "logger",
    "profiler",
    "setup_logger",
    "setup_stream_logger",
]
__all__ += _operators.__all__
__all__ += _nodes.__all__
__all__ += _vocabulary.__all__

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class ProfilerProtocol(Protocol):
    """What records the events of a logger."""

    def initialize(
        self, log_file: str | None = None, data_dirs: str | None = None, process_id: int = -1
    ) -> Any:
        """Begin."""

    def get_time(self) -> int:
        """Return microseconds since the epoch."""

    def enter_event(self) -> None:
        """Begin an event."""

    def exit_event(self) -> None:
        """End an event."""

    def log_event(
        self,
        name: str,
        cat: str,
        start_time: int,
        duration: int,
        int_args: Mapping[str, TagValueTuple] | None = None,
        string_args: Mapping[str, TagValueTuple] | None = None,
        float_args: Mapping[str, TagValueTuple] | None = None,
        relations: Mapping[Any, Sequence[int]] | None = None,
    ) -> None:
        """Record a span with given times."""

    def log_metadata_event(self, key: str, value: str) -> None:
        """Write a key and a value."""

    def finalize(self) -> None:
        """End."""


class NoOpProfiler:
    """Records nothing."""

    def initialize(
        self, log_file: str | None = None, data_dirs: str | None = None, process_id: int = -1
    ) -> None:
        """Do nothing, as all others."""

    def get_time(self) -> int:
        """Return 0."""
        return 0

    def get_config(self, key: str) -> str:
        """Return nothing."""
        return ""

    def declare_entity(
        self,
        type: str,  # noqa: A002 - dftracer's name
        key: str,
        store: Any,
        uri: str,
    ) -> EntityID:
        """Return 0."""
        return 0

    def _nothing(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing."""

    enter_event = exit_event = log_event = log_metadata_event = finalize = _nothing
    declare_entity_type = relate_entities = mark_used = _nothing
    set_app_metadata_int = set_app_metadata_string = _nothing


profiler: dftracer = dftracer.get_instance()
"""What records: the logger itself."""


def get_time_scale() -> float:
    """Return the units of `dftracer.get_time` in a second."""
    return 1e6


def capture_signal(signal_number: int, frame: Any) -> None:
    """Complete the trace and leave the program; dftrace_ai itself takes no signal."""
    dftracer.get_instance().finalize()
    sys.exit(signal_number)


def setup_logger(
    name: str, log_file: str, formatter: str, level: int = logging.INFO
) -> logging.Logger:
    """Return the logger of that name, which writes to a file from now on."""
    return _with_handler(name, logging.FileHandler(log_file), formatter, level)


def setup_stream_logger() -> logging.Logger:
    """Return the logger ``DFTRACER``, which writes to standard error from now on."""
    level = {"DEBUG": logging.DEBUG, "INFO": logging.INFO, "WARN": logging.WARNING}
    return _with_handler(
        "DFTRACER",
        logging.StreamHandler(),
        "[%(levelname)s] %(message)s",
        level.get(DFTRACER_LOG_LEVEL, logging.ERROR),
    )


def _with_handler(
    name: str, handler: logging.Handler, formatter: str, level: int
) -> logging.Logger:
    handler.setFormatter(logging.Formatter(formatter))
    made = logging.getLogger(name)
    made.setLevel(level)
    made.addHandler(handler)
    return made


logger = logging.getLogger("DFTRACER")
"""dftracer's own logger of messages; dftrace_ai tells its own on the logger ``dftrace_ai``."""


def get_default_args(func: Callable[..., Any]) -> dict[str, object]:
    """Return the defaults of a function's parameters, by name."""
    parameters = inspect.signature(func).parameters.items()
    return {name: one.default for name, one in parameters if one.default is not one.empty}
