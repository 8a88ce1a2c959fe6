"""What a trainer holds: `Logger`, one for each interface, and the list of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dftrace_ai.errors import ConfigError
from dftrace_ai.loggers.attached import check_attached
from dftrace_ai.loggers.config import entries_of
from dftrace_ai.loggers.endings import status_by, watch
from dftrace_ai.loggers.entry import Entry
from dftrace_ai.loggers.familiar import FamiliarMethods
from dftrace_ai.loggers.log import Log, NotInProcessError
from dftrace_ai.loggers.records import ENDINGS
from dftrace_ai.loggers.run_place import named_now

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from types import TracebackType

    from typing_extensions import Self

    from dftrace_ai.loggers.config import EntryConfig
    from dftrace_ai.loggers.records import Status

__all__ = ["Logger", "Loggers", "begun_again", "make_loggers"]


class _Logging(FamiliarMethods):
    """The three methods of a logger, and its end with a block."""

    _log: Log

    def log_iter(self, data: Mapping[str, Any], step: int | None = None) -> None:
        """Log the tracked variables of an iteration, which is one forward pass of the network.

        Values are taken as they are now; everything else is done on other threads and in other
        processes. Whatever a tracker does, this returns at once and raises nothing for it.

        Args:
            data: values by name; what is not tracked is not looked at.
            step: number of the iteration, where not each one is logged; by default one more than
                the last.

        Example::

            loggers.log_iter({"loss": loss, "render": image})
        """
        self._log.log_iter(data, step)

    def log_epoch(self, epoch: int | None = None) -> None:
        """Log what the iterations since the last epoch come to, and print where the run stands.

        An epoch is one query of a new batch of data.

        Args:
            epoch: its number; by default one more than the last.
        """
        self._log.log_epoch(epoch)

    def end_log(self, status: Status | None = None) -> None:
        """End the run at all trackers; a second call does nothing.

        Waits until everything is delivered, for the configured limit at most; what a tracker has
        lost is then told, once.

        Args:
            status: ``"finished"``, ``"failed"`` or ``"killed"``; by default the first.
        """
        said = "finished" if status is None else status
        self._log.end(self._log.known("status", said, ENDINGS, "finished"))

    def close(self) -> None:
        """End the run as finished, as SummaryWriter has it."""
        self.end_log()

    @property
    def status(self) -> Status:
        """How the run stands: running, finished, failed or killed."""
        return self._log.status

    def __copy__(self) -> Self:
        """Return this: whoever copies a trainer logs to the same run."""
        return self

    def __deepcopy__(self, memo: object) -> Self:
        """Return this."""
        return self

    def __enter__(self) -> Self:
        """Return this; with the block the run ends."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None or isinstance(error, GeneratorExit):
            self.end_log("finished")
        else:
            self.end_log(status_by(error))


class Logger(_Logging):
    """Logs to one interface, by the routines that its entry names.

    Args:
        config: the interface's entry: ``{"aim": {"config": {...}}}``, the path of a YAML file with
            one, or an object of OmegaConf.

    Raises:
        ConfigError: the entry is not accepted, or what it needs is not installed.
        LogDirectoryError: the run's directory cannot be written.

    Example::

        logger = Logger({"tensorboard": {"config": {"loggers": ["metric"]}}})
        logger.log_iter({"loss": 0.5})
        logger.log_epoch()
        logger.end_log()
    """

    def __init__(self, config: Mapping[str, Any] | str | os.PathLike[str]) -> None:
        entries = entries_of(config)
        if len(entries) != 1:
            raise ConfigError(
                f"a Logger has one interface, not {', '.join(entries)}; use make_loggers"
            )
        ((name, settings),) = entries.items()
        check_attached(entries)
        self._hold(Entry.opened(name, settings, named_now()), samples=True)
        watch(self._log, self)

    _held: _Held | None = None

    @classmethod
    def _of(cls, entry: Entry, held: _Held | None) -> Self:
        logger = cls.__new__(cls)
        logger._hold(entry, samples=False)
        logger._held = held
        return logger

    def _hold(self, entry: Entry, *, samples: bool) -> None:
        self._entry = entry
        self._log = Log([entry], samples=samples)

    def __reduce__(self) -> tuple[Any, ...]:
        """In another process there is one that logs nothing, as in a worker that was forked."""
        return _elsewhere, (self.name, self._entry.config)

    @property
    def name(self) -> str:
        """The key of its interface."""
        return self._entry.name

    @property
    def run_name(self) -> str | None:
        """The name of the run; None on a rank that does not log."""
        return None if self._entry.facts is None else self._entry.facts.run_name

    @property
    def log_dir(self) -> str | None:
        """The directory of the run; None on a rank that does not log."""
        return None if self._entry.facts is None else str(self._entry.facts.log_dir)

    @property
    def experiment(self) -> Any:
        """The tracker's own object, such as a `SummaryWriter`.

        Raises:
            NotInProcessError: the tracker lives in a process of its own; set ``in_process: true``.
                Or it could not begin.
        """
        if self._entry.is_apart:
            raise NotInProcessError(
                f"{self.name} lives in a process of its own; to reach its own object set "
                "in_process: true, and know that it can then hang or end the training"
            )
        self.flush()
        logint = self._entry.logint
        if logint is None:
            raise NotInProcessError(
                f"{self.name} has not begun, or could not, which was told then; or this rank does "
                "not log"
            )
        return logint.experiment

    def __repr__(self) -> str:
        return f"<Logger to {self.name}, run {self.run_name}, {self.status}>"


class _Held:
    """What a list of loggers and each one of them have in common: they end when all are gone."""


class Loggers(list[Logger], _Logging):
    """Loggers, one for each interface, that take each value once for all of them.

    Made by `make_loggers`.
    """

    def __init__(self, entries: list[Entry]) -> None:
        self._held = _Held()
        super().__init__(Logger._of(entry, self._held) for entry in entries)
        self._log = Log(entries, samples=True, parts=[logger._log for logger in self])
        watch(self._log, self._held)

    def __reduce__(self) -> tuple[Any, ...]:
        """In another process there are some that log nothing, as in a worker that was forked."""
        return _all_elsewhere, ([(logger.name, logger._entry.config) for logger in self],)

    def __repr__(self) -> str:
        return f"<Loggers to {', '.join(logger.name for logger in self)}>"


def _elsewhere(name: str, config: EntryConfig) -> Logger:
    return Logger._of(Entry(name, config, None, None), None)


def _all_elsewhere(entries: list[tuple[str, EntryConfig]]) -> Loggers:
    return Loggers([Entry(name, config, None, None) for name, config in entries])


def make_loggers(config: Any) -> Loggers:
    """Make loggers from the part of a config that says what is logged, and where to.

    Args:
        config: what stands under the key ``logger``, or the mapping that has this key: by
            interface an entry ``{"config": {...}}``. Also the path of a YAML file with either, or
            an object of OmegaConf. It is not changed.

    Returns:
        A list of `Logger`, one for each interface, with the three methods of a logger itself.

    Raises:
        ConfigError: an entry is not accepted, or what it needs is not installed; nothing is left
            open.
        LogDirectoryError: a run's directory cannot be written.

    Example::

        loggers = make_loggers({"local": {"config": {"tracked_variables": {"metric": ["loss"]}}}})
        for batch in loader:
            loggers.log_iter({"loss": train(batch)})
        loggers.log_epoch()
        loggers.end_log()
    """
    return _opened(entries_of(config), named_now())


def begun_again(loggers: Logger | Loggers, run_name: str) -> Loggers:
    """Make loggers to a run that goes on in this process, a child, where the parent's log nothing.

    Args:
        loggers: the parent's, as they are here.
        run_name: of the run.

    Raises:
        ConfigError: what they need is not installed.
        LogDirectoryError: the run's directory cannot be written.
    """
    of_run: dict[str, object] = {"run_name": run_name, "resume": "allow"}
    parts = [loggers] if isinstance(loggers, Logger) else loggers
    settings = {one.name: one._entry.config.model_copy(update=of_run) for one in parts}
    return _opened(settings, run_name)


def _opened(settings: Mapping[str, EntryConfig], run_name: str) -> Loggers:
    check_attached(settings)
    entries: list[Entry] = []
    try:
        for key, one in settings.items():
            entries.append(Entry.opened(key, one, run_name))
    except BaseException:
        Log(entries, samples=False).end("failed")
        raise
    return Loggers(entries)
