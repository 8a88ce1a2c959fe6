"""What runs are chosen and sorted by: their facts, params, and what metrics came to."""

from __future__ import annotations

import math
import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

from dftrace_ai.conditions import (
    MISSING,
    Comparison,
    Grammar,
    compares,
    condition_of,
    holds,
    names_in,
    near,
    written,
)
from dftrace_ai.conditions import Condition as Meant
from dftrace_ai.errors import ConfigError
from dftrace_ai.loggers.runs.reading import FIGURES
from dftrace_ai.wording import in_short

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dftrace_ai.loggers.runs.reading import LocalRun

__all__ = ["MISSING", "Choice", "Condition", "chosen", "sorted_by", "value_of"]

OF_RUNS = Grammar(
    option="--where",
    accepted="comparisons of a param, a metric or a fact, such as lr > 0.01, loss.min <= 0.5, "
    "optimizer = adam, joined by and, or, not and parentheses",
)
JOINING = re.compile(r"[()]|\b(and|or|not|in|like)\b", re.IGNORECASE)
FIGURE = re.compile(r"(\.\w+)?")
WORDS = {"true": True, "false": False, "null": None, "none": None}
FACTS = ("run", "project", "name", "status", "duration_s", "started_s", "last_s", "step", "rows")


class Condition(NamedTuple):
    """What a run has to meet."""

    names: tuple[str, ...]  # of hyper-parameters, metrics, and facts of the run
    meant: Meant

    @classmethod
    def of(cls, text: str) -> Condition:
        """Read one, such as ``lr > 0.01 and optimizer = adam`` or ``"val/loss".min <= 1``."""
        try:
            meant = condition_of(text, OF_RUNS)
        except ConfigError:
            single = _single(text)
            if single is None:
                raise
            meant = single
        return cls(tuple(names_in(meant)), meant)

    def holds(self, run: LocalRun) -> bool:
        """Return whether a run meets it."""
        return holds(self.meant, lambda name: value_of(run, name))


def _single(text: str) -> Comparison | None:
    """Return one comparison whose name or value has signs in it that the grammar takes apart."""
    asked = written(text)
    if asked is None or not asked.value or not FIGURE.fullmatch(asked.behind):
        return None
    if JOINING.search(text):
        return None
    value = _value(asked.value)
    return Comparison(
        asked.name + asked.behind, lambda compared: compares(compared, asked.sign, value)
    )


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
        for name in condition.names:
            _known(runs, name)
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
