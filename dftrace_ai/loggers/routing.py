"""Which interface gets which of the records: each has tracked variables of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from dftrace_ai.loggers.records import MetricsRecord
from dftrace_ai.loggers.routines.base import RoutineSettings
from dftrace_ai.loggers.routines.finding import routine_class

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dftrace_ai.loggers.config import EntryConfig
    from dftrace_ai.loggers.delivery.delivery import Delivery
    from dftrace_ai.loggers.log import Entry
    from dftrace_ai.loggers.records import Record
    from dftrace_ai.loggers.routines.base import BaseLogger

__all__ = ["Routine", "Subscriber", "routes", "settings_of", "wanted"]

# Beside the variables of a routine; they go to everyone who has the routine.
ALWAYS = ("gpu/", "system/")
EPOCH_PREFIX = "epoch/"


class Routine(NamedTuple):
    """A routine, and the variables that it logs for anybody; None where the data says."""

    logger: BaseLogger
    names: tuple[str, ...] | None


@dataclass(frozen=True)
class Subscriber:
    """Who gets which records.

    Attributes:
        delivery: to the tracker.
        variables: by routine, the names that the tracker gets; None for all.
    """

    delivery: Delivery
    variables: Mapping[int, frozenset[str] | None]


def wanted(record: Record, names: frozenset[str] | None) -> Record | None:
    """Return what of a record is of these variables; None for nothing."""
    if names is None:
        return record
    if isinstance(record, MetricsRecord):
        kept = {name: value for name, value in record.values.items() if _is_of(name, names)}
        if len(kept) == len(record.values):
            return record
        return MetricsRecord(kept, record.at) if kept else None
    name = getattr(record, "name", None)
    return record if name is None or _is_of(name, names) else None


def _is_of(name: str, names: frozenset[str]) -> bool:
    if name in names or name.startswith(ALWAYS):
        return True
    plain = name.removeprefix(EPOCH_PREFIX)
    while plain:
        if plain in names:
            return True
        plain = plain.rpartition("/")[0]
    return False


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
    return routines, subscribers


def settings_of(config: EntryConfig) -> RoutineSettings:
    """Return what an entry says to its routines."""
    return RoutineSettings(
        gpu=config.gpu,
        windows=tuple(config.windows),
        bins=config.bins,
        fps=config.fps,
        video=config.video,
    )


def _union(before: tuple[str, ...] | None, names: Sequence[str] | None) -> tuple[str, ...] | None:
    if before is None or names is None:
        return None
    return tuple(dict.fromkeys((*before, *names)))
