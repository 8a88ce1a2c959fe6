"""One interface of a config, with its tracker at work."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from dftrace_ai.errors import ConfigError
from dftrace_ai.loggers.delivery.delivery import Delivery, InProcess
from dftrace_ai.loggers.delivery.keeping import Unsent
from dftrace_ai.loggers.delivery.own_process import OwnProcess
from dftrace_ai.loggers.endings import hook
from dftrace_ai.loggers.registry import logint_class, routine_class
from dftrace_ai.loggers.run_place import place_of, rank_logs
from dftrace_ai.wording import quoted, warn

if TYPE_CHECKING:
    from dftrace_ai.loggers.config import EntryConfig
    from dftrace_ai.loggers.delivery.delivery import Tracker
    from dftrace_ai.loggers.trackers.base import BaseLogint, RunFacts

# The program itself, here and in a process that it has spawned: another one cannot import it.
MAINS = ("__main__", "__mp_main__")


@dataclass(frozen=True)
class Entry:
    """An interface: its key and settings; on ranks that log the run's facts and the delivery."""

    name: str
    config: EntryConfig
    facts: RunFacts | None = None
    delivery: Delivery | None = None

    @classmethod
    def opened(cls, name: str, config: EntryConfig, run_name: str) -> Entry:
        """Begin an interface; raises as `make_loggers` does."""
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
            return cls(name, config)
        facts = place_of(config, config.run_name or run_name)
        hook()
        if kind.notice:
            warn("the tracker %s: %s", quoted(name), kind.notice)
        tracker: Tracker
        if kind.own_process and not config.in_process and _can_be_imported(kind):
            tracker = OwnProcess(kind, facts, config.limit_s)
        else:
            tracker = InProcess(kind, facts)
        later = kind.sent_later and _can_be_imported(kind)
        unsent = Unsent(name, kind, facts) if later else None
        return cls(name, config, facts, Delivery(name, tracker, config.queue, unsent))

    def elsewhere(self) -> Entry:
        """Return what stands for it in another process, where nothing is logged."""
        return Entry(self.name, self.config)

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
