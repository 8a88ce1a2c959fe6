"""Which interface gets which of the records: each has tracked variables of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from dftrace_ai.loggers.records import MetricsRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dftrace_ai.loggers.delivery.delivery import Delivery
    from dftrace_ai.loggers.records import Record
    from dftrace_ai.loggers.routines.base import BaseLogger

__all__ = ["Routine", "Subscriber", "wanted"]

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
