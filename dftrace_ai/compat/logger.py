"""dftracer's logger object: the calls that code written for dftracer makes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypedDict

from dftrace_ai.run import emitting, lifecycle
from dftrace_ai.wording import LOGGER, own_text

if TYPE_CHECKING:
    import logging
    from collections.abc import Iterable, Mapping

    from dftrace_ai.compat.vocabulary import EntityID


class _Given(TypedDict, total=False):
    log_file: str | os.PathLike[str]
    data_dir: str
    process_id: int


class dftracer:  # noqa: N801 - the name that users of dftracer know
    """The logger of the process, one for all.

    Example::

        from dftrace_ai import ai, dftracer

        logger = dftracer.initialize_log("out/trace")
        train()
        logger.finalize()
    """

    _instance: dftracer | None = None

    def __init__(self) -> None:
        self.logger: dftracer | None = None
        self.dbg_logging: logging.Logger = LOGGER
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
        """Turn recording on.

        Args:
            logfile: directory and stem of the trace files; None takes the
                configuration's.
            data_dir: directory of the training data, for the trace's header.
            process_id: the process id to write; -1 takes the operating system's.

        Returns:
            The logger, whose `finalize` ends the run.

        Raises:
            ConfigError: a setting is not accepted.
            LogDirectoryError: the directory cannot be written.
        """
        given: _Given = {}
        if logfile:
            given["log_file"] = logfile
        if data_dir is not None:
            given["data_dir"] = data_dir
        if process_id >= 0:
            given["process_id"] = process_id
        lifecycle.initialize(**given)
        instance = cls.get_instance()
        instance.logger = instance
        instance.start_time = instance.get_time()
        instance._declared.clear()  # a new trace has to be told of each
        return instance

    def initialize(
        self, log_file: str | None = None, data_dirs: str | None = None, process_id: int = -1
    ) -> None:
        """Turn recording on, as `initialize_log`."""
        self.initialize_log(log_file, data_dirs, process_id)

    def finalize(self) -> None:
        """Complete the trace."""
        lifecycle.finalize()

    def get_time(self) -> int:
        """Return microseconds since the epoch by the trace's clock, 0 where nothing is recorded."""
        return emitting.time_us() if emitting.is_recording() else 0

    def get_config(self, key: str) -> str:
        """Return the value of a variable of dftracer's; its unit of time is the microsecond."""
        return "US" if key == "DFTRACER_TIME_METRIC" else os.environ.get(key, "")

    def enter_event(self) -> None:
        """Do nothing: what encloses what follows from the times given to `log_event`."""

    def exit_event(self) -> None:
        """Do nothing; see `enter_event`."""

    def log_event(
        self,
        name: str,
        cat: str,
        start_time: int,
        duration: int,
        int_args: Mapping[str, Any] | None = None,
        float_args: Mapping[str, Any] | None = None,
        string_args: Mapping[str, Any] | None = None,
        relations: Mapping[Any, Iterable[EntityID]] | None = None,
    ) -> None:
        """Record a span with given times.

        Args:
            name: name of the event.
            cat: its category.
            start_time: microseconds since the epoch, as of `get_time`.
            duration: microseconds.
            int_args: arguments by name, as values or as dftracer's pairs of kind
                and value.
            float_args: the same.
            string_args: the same.
            relations: numbers of entities by `EntityRelation`, such as ``used``.

        A negative or absurd time is written as the nearest that can be, and counted.

        Example::

            start = logger.get_time()
            work()
            logger.log_event("work", "app", start, logger.get_time() - start)
        """
        from dftrace_ai.compat.vocabulary import without_tags

        start, length = _microseconds(start_time), _microseconds(duration)
        args = {
            # dftracer's own form is a pair (kind of tag, value).
            key: value[1] if isinstance(value, tuple) and len(value) == 2 else value
            for group in (int_args, float_args, string_args)
            for key, value in without_tags(group or {}).items()
        }
        if relations:
            from dftrace_ai.compat.vocabulary import EntityRelation

            for relation, entities in relations.items():
                name_of_relation = EntityRelation(int(relation)).name.lower()
                if entities:
                    args[name_of_relation] = [f"{one:016x}" for one in entities]
        changed = (start != start_time) + (length != duration)
        named, category = own_text(name), own_text(cat)
        emitting.complete(named, start, length, args, category=category, sanitised=changed)

    def log_metadata_event(self, key: str, value: str) -> None:
        """Write a ``CM`` line at once.

        Args:
            key: its name.
            value: its value.
        """
        emitting.metadata(key, value)

    def declare_entity(
        self,
        type: str,  # noqa: A002
        key: Any,
        store: int = 0,
        uri: str = "",
    ) -> EntityID:
        """Write down an entity once a process, as a ``CM`` line ``entity``.

        Args:
            type: what it is, such as ``dataset``.
            key: which one of its type.
            store: where it lies, an `EntityStore`; in memory, if not given.
            uri: where to find it.

        Returns:
            Its number, the same in every process; 0 where nothing is recorded.
        """
        if not emitting.is_recording():
            return 0
        from dftrace_ai.compat.vocabulary import EntityStore

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
        role: int = 0,
        description: str = "",
    ) -> None:
        """Say once a process what entities of a type are: a ``CM`` line ``entity_type``."""
        from dftrace_ai.compat.vocabulary import EntityRole

        role_name = EntityRole(int(role)).name.lower()
        self._declare_once(
            "entity_type", type=str(type), role=role_name, description=str(description or "")
        )

    def relate_entities(
        self,
        relation: int,
        subject: EntityID,
        object: EntityID,  # noqa: A002
    ) -> None:
        """Relate two entities, by a relation from 16 on: a ``CM`` line ``entity_relation``."""
        if int(relation) >= 16 and subject and object:
            from dftrace_ai.compat.vocabulary import EntityRelation

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


# Times beyond this would overflow 64 bits of nanoseconds; it is the year 2248.
_LATEST_US = 1 << 53


def _microseconds(value: Any) -> int:
    """Return the time as a whole number that can be written; the traced code never fails for it."""
    try:
        return min(max(int(value), 0), _LATEST_US)
    except (TypeError, ValueError, OverflowError):
        return 0
