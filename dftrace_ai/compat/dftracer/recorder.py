"""dftracer's logger object, entities, and what stands beside them in its modules."""

from __future__ import annotations

import inspect
import logging
import os
import sys
from typing import TYPE_CHECKING, Any, Protocol

from dftrace_ai.annotation import dftracer_logger
from dftrace_ai.compat.dftracer.arguments import plain
from dftrace_ai.compat.dftracer.vocabulary import (
    DFTRACER_LOG_LEVEL,
    EntityRelation,
    EntityRole,
    EntityStore,
)
from dftrace_ai.run import emitting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dftrace_ai.compat.dftracer.vocabulary import EntityID, TagValueTuple

__all__ = [
    "NoOpProfiler",
    "ProfilerProtocol",
    "capture_signal",
    "dftracer",
    "get_default_args",
    "get_time_scale",
    "logger",
    "profiler",
    "setup_logger",
    "setup_stream_logger",
]


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


class dftracer(dftracer_logger.dftracer):  # noqa: N801 - the name that users of dftracer know
    """`dftrace_ai.dftracer`, as it is in dftracer: with entities and facts of the program.

    Example::

        log = dftracer.initialize_log("out/trace")
        data = log.declare_entity("dataset", "train", EntityStore.PARALLEL_FS, "/data/train")
        log.finalize()
    """

    _instance: dftracer | None = None

    def __init__(self) -> None:
        self.logger: dftracer | None = None
        self.dbg_logging: logging.Logger = logging.getLogger("dftrace_ai")
        self.start_time = 0
        self._used_marks: set[str] = set()
        self._declared: set[tuple[object, ...]] = set()
        type(self)._instance = self

    @classmethod
    def get_instance(cls) -> dftracer:
        """Return the one logger."""
        return cls._instance or cls()

    @classmethod
    def initialize_log(
        cls,
        logfile: str | os.PathLike[str] | None = None,
        data_dir: str | None = None,
        process_id: int = -1,
    ) -> dftracer:
        """Turn recording on; see `dftrace_ai.dftracer.initialize_log`."""
        instance = cls.get_instance()
        super().initialize_log(logfile or None, data_dir, process_id)
        instance.logger = instance
        instance.start_time = instance.get_time()
        instance._declared.clear()  # a new trace has to be told of each
        return instance

    def initialize(
        self, log_file: str | None = None, data_dirs: str | None = None, process_id: int = -1
    ) -> None:
        """Turn recording on, as `initialize_log`."""
        self.initialize_log(log_file, data_dirs, process_id)

    def get_time(self) -> int:
        """Return microseconds since the epoch, by the trace's clock; 0 where none is written."""
        return super().get_time() if emitting.is_recording() else 0

    def get_config(self, key: str) -> str:
        """Return the value of a variable of dftracer's; its unit of time is the microsecond."""
        return "US" if key == "DFTRACER_TIME_METRIC" else os.environ.get(key, "")

    def log_event(
        self,
        name: str,
        cat: str,
        start_time: int,
        duration: int,
        int_args: Mapping[str, Any] | None = None,
        float_args: Mapping[str, Any] | None = None,
        string_args: Mapping[str, Any] | None = None,
        relations: Mapping[EntityRelation, Iterable[EntityID]] | None = None,
    ) -> None:
        """Record a span with given times, and with relations to entities."""
        related = {
            EntityRelation(int(relation)).name.lower(): [f"{one:016x}" for one in entities]
            for relation, entities in (relations or {}).items()
            if entities
        }
        texts = {**(plain(string_args) or {}), **related}
        super().log_event(
            str(name), str(cat), start_time, duration, plain(int_args), plain(float_args), texts
        )

    def declare_entity(
        self,
        type: str,  # noqa: A002
        key: Any,
        store: EntityStore = EntityStore.MEMORY,
        uri: str = "",
    ) -> EntityID:
        """Write down an entity once a process, as a ``CM`` line ``entity``.

        Args:
            type: what it is, such as ``dataset``.
            key: which one of its type.
            store: where it lies.
            uri: where to find it.

        Returns:
            Its number, the same in every process; 0 where nothing is recorded.
        """
        if not emitting.is_recording():
            return 0
        number = _number_of(f"{type}\0{key}")
        self._declare_once(
            "entity",
            id=f"{number:016x}",
            type=str(type),
            key=str(key),
            store=EntityStore(int(store)).name.lower(),
            uri=str(uri or ""),
        )
        return number

    def declare_entity_type(
        self,
        type: str,  # noqa: A002
        role: EntityRole = EntityRole.UNKNOWN,
        description: str = "",
    ) -> None:
        """Say once a process what entities of a type are: a ``CM`` line ``entity_type``."""
        role_name = EntityRole(int(role)).name.lower()
        self._declare_once(
            "entity_type", type=str(type), role=role_name, description=str(description or "")
        )

    def relate_entities(
        self,
        relation: EntityRelation,
        subject: EntityID,
        object: EntityID,  # noqa: A002
    ) -> None:
        """Relate two entities, by a relation from 16 on: a ``CM`` line ``entity_relation``."""
        if int(relation) >= 16 and subject and object:
            self._declare_once(
                "entity_relation",
                relation=EntityRelation(int(relation)).name.lower(),
                subject=f"{subject:016x}",
                object=f"{object:016x}",
            )

    def _declare_once(self, kind: str, **facts: str) -> None:
        key = (kind, *facts.values())
        if emitting.is_recording() and key not in self._declared:
            import json

            self._declared.add(key)
            emitting.metadata(kind, json.dumps(facts, ensure_ascii=False))

    def set_app_metadata_int(self, key: str, value: int) -> None:
        """Write a ``CM`` line at once."""
        emitting.metadata(key, str(value))

    def set_app_metadata_string(self, key: str, value: str) -> None:
        """Write a ``CM`` line at once."""
        emitting.metadata(key, value)

    def mark_used(self, name: str) -> None:
        """Take note that a part of the program was used; nothing is written."""
        self._used_marks.add(name)


def _number_of(text: str) -> EntityID:
    number = 0xCBF29CE484222325
    for byte in text.encode("utf-8", "surrogatepass"):
        number = ((number ^ byte) * 0x100000001B3) & (1 << 64) - 1
    return number or 1


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
