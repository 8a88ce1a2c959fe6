"""What runs are chosen and sorted by: their facts, params, and what metrics came to."""

from __future__ import annotations

import math
import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

from dftrace_ai.conditions import MISSING, compares, near, written
from dftrace_ai.errors import ConfigError
from dftrace_ai.loggers.runs.reading import FIGURES
from dftrace_ai.wording import in_short

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dftrace_ai.loggers.runs.reading import LocalRun

__all__ = ["MISSING", "Choice", "Condition", "chosen", "sorted_by", "value_of"]

SIGNS = ("<=", ">=", "!=", "==", "=", "<", ">")
FIGURE = re.compile(r"(\.\w+)?")
WORDS = {"true": True, "false": False, "null": None, "none": None}
FACTS = ("run", "project", "name", "status", "duration_s", "started_s", "last_s", "step", "rows")


class Condition(NamedTuple):
    """A comparison of what a run has with a value."""

    name: str  # of a hyper-parameter, a metric, or a fact of the run
    compared: str  # how, such as ``"<"``
    value: Any  # a number, a text, a boolean or None

    @classmethod
    def of(cls, text: str) -> Condition:
        """Read one, such as ``lr > 0.01``, ``"val/loss".min <= 1`` or ``optimizer = adam``."""
        asked = written(text)
        if asked is None or not asked.value or not FIGURE.fullmatch(asked.behind):
            raise ConfigError(
                f"--where {in_short(text)} is not accepted; accepted: a name, one of "
                f"{' '.join(SIGNS)} and a value, such as 'lr > 0.01'"
            )
        return cls(asked.name + asked.behind, asked.sign, _value(asked.value))

    def holds(self, run: LocalRun) -> bool:
        """Return whether a run has such a value; one without any has not."""
        value = value_of(run, self.name)
        return value is not MISSING and compares(value, self.compared, self.value)


class Choice(NamedTuple):
    """Which runs; each part that is empty chooses all."""

    # Patterns of a shell, one of which matches.
    project: Sequence[str] = ()
    name: Sequence[str] = ()  # or the path below the directory
    group: Sequence[str] = ()
    status: Sequence[str] = ()  # one of which it has
    tags: Sequence[str] = ()  # all of which it has
    where: Sequence[Condition] = ()  # all of which hold

    def takes(self, run: LocalRun) -> bool:
        """Return whether a run is one of them."""
        return (
            _matches(self.project, run.project)
            and _matches(self.name, run.name, run.key)
            and _matches(self.group, run.group)
            and (not self.status or run.status in self.status)
            and set(self.tags) <= set(run.tags)
            and all(condition.holds(run) for condition in self.where)
        )


def chosen(runs: Iterable[LocalRun], choice: Choice) -> list[LocalRun]:
    """Return the runs of a choice; what no run at all has is no condition."""
    runs = list(runs)
    for condition in choice.where:
        _known(runs, condition.name)
    return [run for run in runs if choice.takes(run)]


def sorted_by(runs: Iterable[LocalRun], name: str, *, reverse: bool = False) -> list[LocalRun]:
    """Return runs in the order of what they have of a name; those without come last."""
    runs = list(runs)
    if runs:
        _known(runs, name)
    found = [(_order(value_of(run, name)), run) for run in runs]
    having = sorted((one for one in found if one[0]), key=lambda one: one[0], reverse=reverse)
    return [run for _, run in having] + [run for order, run in found if not order]


def value_of(run: LocalRun, name: str) -> Any:
    """Return what a run has of a name, such as ``lr``, ``loss.min`` or ``status``, or `MISSING`."""
    if name in run.params:
        return run.params[name]
    if name in run.metrics:
        return run.metrics[name].last
    before, _, figure = name.rpartition(".")
    if figure in FIGURES and before in run.metrics:
        return getattr(run.metrics[before], figure)
    if name == "group":
        return run.group
    return {**run.facts()}[name] if name in FACTS else MISSING


def _known(runs: Sequence[LocalRun], name: str) -> None:
    if not runs or any(value_of(run, name) is not MISSING for run in runs):
        return
    names = {one for run in runs for one in (*run.params, *run.metrics)} | {*FACTS, "group"}
    meant = near(name, names)
    hint = f"; did you mean {in_short(meant)}?" if meant else ""
    raise ConfigError(f"no run has a param, metric or fact of the name {in_short(name)}{hint}")


def _value(text: str) -> Any:
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    try:
        return float(text)
    except ValueError:
        return text


def _order(value: Any) -> tuple[Any, ...]:
    """Return a key that any two values can be sorted by; () for none."""
    if value is MISSING or value is None or (isinstance(value, float) and math.isnan(value)):
        return ()
    if isinstance(value, bool | int | float):
        return (0, value, "")
    return (1, 0, value if isinstance(value, str) else str(value))


def _matches(patterns: Sequence[str], *names: str) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns for name in names)
