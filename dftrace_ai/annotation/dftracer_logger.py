"""dftracer's logger object: the calls that code written for dftracer makes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dftrace_ai.run import emitting, lifecycle

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

__all__ = ["dftracer"]


class dftracer:  # noqa: N801 - the name that users of dftracer know
    """The logger of the process, one for all.

    Example::

        from dftrace_ai import ai, dftracer

        logger = dftracer.initialize_log("out/trace")
        train()
        logger.finalize()
    """

    _instance: dftracer | None = None

    @classmethod
    def get_instance(cls) -> dftracer:
        """Return the one logger."""
        if cls._instance is None:
            cls._instance = cls()
        return cls._instance

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
        given: dict[str, Any] = {}
        if logfile is not None:
            given["log_file"] = logfile
        if data_dir is not None:
            given["data_dir"] = data_dir
        if process_id >= 0:
            given["process_id"] = process_id
        lifecycle.initialize(**given)
        return cls.get_instance()

    def finalize(self) -> None:
        """Complete the trace."""
        lifecycle.finalize()

    def get_time(self) -> int:
        """Return microseconds since the epoch, by the trace's clock."""
        return emitting.time_us()

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

        A negative or absurd time is written as the nearest that can be, and counted.

        Example::

            start = logger.get_time()
            work()
            logger.log_event("work", "app", start, logger.get_time() - start)
        """
        start, length = _microseconds(start_time), _microseconds(duration)
        args: dict[str, object] = {}
        for group in (int_args, float_args, string_args):
            for key, value in (group or {}).items():
                # dftracer's own form is a pair (kind of tag, value).
                args[key] = value[1] if isinstance(value, tuple) and len(value) == 2 else value
        changed = (start != start_time) + (length != duration)
        emitting.complete(name, start, length, args, category=cat, sanitised=changed)

    def log_metadata_event(self, key: str, value: str) -> None:
        """Write a ``CM`` line at once.

        Args:
            key: its name.
            value: its value.
        """
        emitting.metadata(key, value)


# Times beyond this would overflow 64 bits of nanoseconds; it is the year 2248.
_LATEST_US = 1 << 53


def _microseconds(value: Any) -> int:
    """Return the time as a whole number that can be written; the traced code never fails for it."""
    try:
        return min(max(int(value), 0), _LATEST_US)
    except (TypeError, ValueError, OverflowError):
        return 0
