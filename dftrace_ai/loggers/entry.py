"""The interfaces of a config: each with its tracker at work, and the routines that they need."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from dftrace_ai.errors import ConfigError
from dftrace_ai.loggers.delivery.delivery import Delivery
from dftrace_ai.loggers.delivery.in_process import InProcess
from dftrace_ai.loggers.delivery.own_process import OwnProcess
from dftrace_ai.loggers.endings import hook
from dftrace_ai.loggers.interfaces.finding import logint_class
from dftrace_ai.loggers.routines.base import RoutineSettings
from dftrace_ai.loggers.routines.finding import routine_class
from dftrace_ai.loggers.routines.metric import MetricLogger
from dftrace_ai.loggers.routing import Routine, Subscriber
from dftrace_ai.loggers.run_place import place_of, rank_logs
from dftrace_ai.wording import quoted, warn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dftrace_ai.loggers.config import EntryConfig
    from dftrace_ai.loggers.delivery.delivery import Tracker
    from dftrace_ai.loggers.interfaces.base import BaseLogint, RunFacts

__all__ = ["Entry", "routes", "settings_of"]

# The program itself, here and in a process that it has spawned: another one cannot import it.
MAINS = ("__main__", "__mp_main__")


@dataclass(frozen=True)
class Entry:
    """One interface of a config, with its tracker at work.

    Attributes:
        name: its key.
        config: its settings.
        facts: the run, as the tracker is told of it.
        delivery: to the tracker; None on ranks that do not log.
    """

    name: str
    config: EntryConfig
    facts: RunFacts | None
    delivery: Delivery | None

    @classmethod
    def opened(cls, name: str, config: EntryConfig, run_name: str) -> Entry:
        """Begin an interface.

        Raises:
            ConfigError: there is no such interface or routine, what it needs is not installed, or
                the run must (not) be there.
            LogDirectoryError: the run's directory cannot be written.
        """
        kind = logint_class(name)
        for key in config.loggers:
            routine_class(key)
        unknown = sorted(set(config.tracked_variables) - set(config.loggers))
        if unknown:
            raise ConfigError(
                f"logger.{name}: tracked_variables of {', '.join(map(repr, unknown))}, which "
                f"{'is' if len(unknown) == 1 else 'are'} not among its loggers"
            )
        if config.video == "mp4" and find_spec("av") is None:
            raise ConfigError(
                f"logger.{name}: video: mp4 needs av, which is not installed: "
                "pip install 'dftrace-ai[mp4]'"
            )
        if not rank_logs(config):
            return cls(name, config, None, None)
        facts = place_of(config, config.run_name or run_name)
        hook()
        if kind.notice:
            warn("the tracker %s: %s", quoted(name), kind.notice)
        tracker: Tracker
        if kind.own_process and not config.in_process and _can_be_imported(kind):
            tracker = OwnProcess(kind, facts, config.limit_s)
        else:
            tracker = InProcess(kind, facts)
        return cls(name, config, facts, Delivery(name, tracker, config.queue))

    @property
    def logint(self) -> BaseLogint | None:
        """The interface, where it is in this process and has begun."""
        tracker = None if self.delivery is None else self.delivery.tracker
        return tracker.logint if isinstance(tracker, InProcess) else None

    @property
    def is_apart(self) -> bool:
        """Whether the interface is in a process of its own."""
        return self.delivery is not None and isinstance(self.delivery.tracker, OwnProcess)


def _can_be_imported(kind: type[BaseLogint]) -> bool:
    """Return whether another process finds a class by its name."""
    return kind.__module__ not in MAINS and "<locals>" not in kind.__qualname__


def routes(entries: Sequence[Entry]) -> tuple[list[Routine], list[Subscriber]]:
    """Return the routines of some interfaces, each once for all, and who gets what of them.

    Args:
        entries: the interfaces.
    """
    routines: list[Routine] = []
    places: dict[tuple[str, RoutineSettings], int] = {}
    subscribers = []
    for entry in entries:
        variables: dict[int, frozenset[str] | None] = {}
        settings = settings_of(entry.config)
        for key in entry.config.loggers:
            names = entry.config.tracked_variables.get(key)
            place = places.setdefault((key, settings), len(routines))
            if place == len(routines):
                routines.append(Routine(routine_class(key)(settings), ()))
            logger, before = routines[place]
            routines[place] = Routine(logger, _union(before, names))
            variables[place] = None if names is None else frozenset(names)
        if entry.delivery is not None:
            subscribers.append(Subscriber(entry.delivery, variables))
    tracked = {name for routine in routines for name in routine.names or ()}
    for routine in routines:
        if isinstance(routine.logger, MetricLogger):
            routine.logger.apart |= tracked
    return routines, subscribers


def settings_of(config: EntryConfig) -> RoutineSettings:
    """Return what an entry says to its routines."""
    return RoutineSettings(
        gpu=config.gpu,
        windows=tuple(config.windows),
        bins=config.bins,
        fps=config.fps,
        video=config.video,
        mask_secrets=config.mask_secrets,
    )


def _union(before: tuple[str, ...] | None, names: Sequence[str] | None) -> tuple[str, ...] | None:
    if before is None or names is None:
        return None
    return tuple(dict.fromkeys((*before, *names)))
