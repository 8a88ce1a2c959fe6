"""Runs side by side: params in which they differ, what metrics came to, and times in words."""

from __future__ import annotations

import time
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

from dftrace_ai.conditions import MISSING
from dftrace_ai.loggers.runs.reading import report_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dftrace_ai.loggers.metric_figures import Figures
    from dftrace_ai.loggers.runs.reading import LocalRun
    from dftrace_ai.loggers.runs.report_types import ComparisonReport

# Shown to those who ask for it: samples of the machine, and what epochs came to, of which the
# iterations' figures say as much.
UNASKED = ("system/", "epoch/")


class Comparison(NamedTuple):
    """Runs side by side."""

    runs: list[LocalRun]
    # Those that not all have alike, by name a value for each run; `MISSING` where a run has none.
    params: dict[str, list[Any]]
    # How many are the same in all of them.
    alike: int
    # By name what it came to in each run; None where a run has none.
    metrics: dict[str, list[Figures | None]]

    def as_dict(self) -> ComparisonReport:
        """Return it by plain names; what a run has not got is None."""
        return {
            "kind": "dftrace runs --compare",
            "runs": [run.facts() for run in self.runs],
            "params": {
                name: [None if value is MISSING else value for value in values]
                for name, values in self.params.items()
            },
            "params_alike": self.alike,
            "metrics": {
                name: [None if one is None else report_of(one) for one in figures]
                for name, figures in self.metrics.items()
            },
        }


def compared(runs: Sequence[LocalRun], metrics: Sequence[str] = ()) -> Comparison:
    """Put runs side by side."""
    names = sorted({name for run in runs for name in run.params})
    params: dict[str, list[Any]] = {}
    for name in names:
        values = [run.params.get(name, MISSING) for run in runs]
        if any(_differ(values[0], value) for value in values[1:]):
            params[name] = values
    return Comparison(
        list(runs),
        params,
        len(names) - len(params),
        {name: [run.metrics.get(name) for run in runs] for name in metric_names(runs, metrics)},
    )


def metric_names(runs: Iterable[LocalRun], patterns: Sequence[str] = ()) -> list[str]:
    """Return the names of the metrics of some runs that patterns choose, as those of a shell do."""
    names = sorted({name for run in runs for name in run.metrics})
    if not patterns:
        return [name for name in names if not name.startswith(UNASKED)]
    return [name for name in names if any(fnmatchcase(name, one) for one in patterns)]


def _differ(one: Any, another: Any) -> bool:
    if one is MISSING or another is MISSING:
        return one is not another
    # 1 is 1.0, and not true; and NaN is NaN.
    return repr(one) != repr(another) and not (
        one == another and isinstance(one, bool) == isinstance(another, bool)
    )


def moment(time_s: float | None) -> str:
    """Return a time in seconds since 1970 by the local clock; "" for None."""
    if time_s is None:
        return ""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_s))


def duration(seconds: float) -> str:
    """Return a duration: ``duration(3725) == "1:02:05"``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


def figure(value: float) -> str:
    """Return a figure in six digits."""
    return f"{value:.6g}"
