"""What other packages bring by entry points: who is asked, what is taken, and what a fault costs.

A group has a file of its own that says what a function gets and returns: `why/plugged_in.py` of
findings, `report/sections.py` of sections. See docs/guide/plug-ins.md.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable
from importlib.metadata import entry_points
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from dftrace_ai.config import values
from dftrace_ai.config.settings import SETTINGS
from dftrace_ai.config.sources import settings_given
from dftrace_ai.errors import ConfigError
from dftrace_ai.wording import briefly, in_short, shortened

if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.metadata import EntryPoint

T = TypeVar("T")

ALL: Final = "all"
TEXT_LETTERS: Final = 1000


class Source(NamedTuple):
    """Of a plug-in the name, and the distribution that brings it with its version."""

    name: str
    package: str


class Answers(NamedTuple):
    """What plug-ins returned, and a line for each that failed, or for all where none was asked."""

    found: list[Any]
    faults: list[str]


def ask(group: str, asked: Callable[[Any, Source], Iterable[Any]]) -> Answers:
    """Ask the plug-ins of a group that the setting `plugins` leaves; none can break who asks."""
    found: list[Any] = []
    faults: list[str] = []
    points = sorted(entry_points(group=group), key=lambda one: (one.name, _package(one)))
    if not points:
        return Answers(found, faults)
    try:
        wanted, without = _named()
    except (ConfigError, ValueError, TypeError, OverflowError) as error:
        return Answers(found, [f"no plug-in was asked: {briefly(error)}"])
    for point in points:
        if point.name in without or (wanted and not {ALL, point.name} & wanted):
            continue
        source = Source(point.name, _package(point))
        try:
            # What it prints is not part of what the command prints, which may be JSON.
            with contextlib.redirect_stdout(sys.stderr):
                found += list(asked(point.load(), source))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is, the rest stands
            told = f"the plug-in {source.name} of {source.package} failed: {briefly(error)}"
            faults.append(told)
    return Answers(found, faults)


def _named() -> tuple[frozenset[str], frozenset[str]]:
    given, _ = settings_given(None, os.environ, {})
    row = SETTINGS["plugins"]
    text = row.taken(given["plugins"].value) if "plugins" in given else row.default
    return values.named(str(text))


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.value


def each_of(told: object, kind: type[T], most: int) -> list[T]:
    """Return as a list what a function returned; a TypeError or ValueError where it is no such."""
    if told is None:
        return []
    each = [*islice(told if isinstance(told, Iterable) else (told,), most + 1)]
    for one in each:
        if not isinstance(one, kind):
            raise TypeError(f"it returned {in_short(one)}, which is no {kind.__name__}")
    if len(each) > most:
        raise ValueError(f"it returned more than {most} of {kind.__name__}")
    return each


def line_of(text: object, letters: int = TEXT_LETTERS) -> str:
    """Return a text on one line, cut where it is long; a TypeError for what is no text."""
    if not isinstance(text, str):
        raise TypeError(f"{in_short(text)} is no text")
    line = shortened(" ".join(text.split()), letters)
    return line.encode("utf-8", "replace").decode()
