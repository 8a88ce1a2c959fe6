"""A run as its logs tell it: who wrote them, what was set, and what the metrics came to."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dftrace_ai.loggers.runs.lines import whole_text
from dftrace_ai.loggers.runs.statuses import Writer, status_of_run

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from dftrace_ai.loggers.runs.folders import RunFolder
    from dftrace_ai.loggers.runs.lines import RunLine
    from dftrace_ai.loggers.runs.report_types import FigureReport, RunFacts, RunReport
    from dftrace_ai.trace_format.json_types import JsonObject

__all__ = ["FIGURES", "Figures", "LocalRun"]

FIGURES = ("last", "min", "max", "mean")

MOST_NAMES = 100_000
"""Metrics, and hyper-parameters, of one run; others are counted."""


class Figures:
    """What all values of a metric come to."""

    # `count` finite values make the figures, NaN where there are none; `non_finite` others are in
    # none but `last`, which was logged last by the clock, for `last_step`.

    __slots__ = (
        *("_last_s", "_lost", "_sum", "count", "last", "last_step", "max", "min"),
        "non_finite",
    )

    def __init__(self) -> None:
        self.count = self.non_finite = self.last_step = 0
        self.min = self.max = self.last = math.nan
        self._sum = self._lost = 0.0
        self._last_s = -1.0

    @property
    def mean(self) -> float:
        """Mean of the finite values; NaN where there are none."""
        if not self.count:
            return math.nan
        total = self._sum + self._lost
        if math.isfinite(total):
            return total / self.count
        return self._sum / self.count

    def add(self, value: float, step: int, time_s: float) -> None:
        """Take a value."""
        if time_s >= self._last_s:
            self._last_s, self.last, self.last_step = time_s, value, step
        if not math.isfinite(value):
            self.non_finite += 1
            return
        if self.count:
            if value < self.min:
                self.min = value
            elif value > self.max:
                self.max = value
        else:
            self.min = self.max = value
        self.count += 1
        # Kahan's sum, as Neumaier mended it (Z. Angew. Math. Mech. 54, 1974).
        total = self._sum + value
        if abs(self._sum) >= abs(value):
            self._lost += (self._sum - total) + value
        else:
            self._lost += (value - total) + self._sum
        self._sum = total

    def as_dict(self) -> FigureReport:
        """Return the figures by name."""
        return {
            "last": self.last,
            "min": self.min,
            "max": self.max,
            "mean": self.mean,
            "count": self.count,
            "non_finite": self.non_finite,
        }


@dataclass
class LocalRun:
    """A run, of all the processes that have written to it."""

    folder: RunFolder
    # When it was read, in seconds since 1970.
    now_s: float
    # By rank and then by when they began.
    writers: list[Writer] = field(default_factory=list)
    # By their names with slashes between; of one that was logged again the latest.
    params: JsonObject = field(default_factory=dict)
    metrics: dict[str, Figures] = field(default_factory=dict)
    # Lines of metrics.
    rows: int = 0
    # The greatest number of an iteration; -1 without one.
    step: int = -1
    # Pictures, histograms, texts and other things that are no numbers.
    media: int = 0
    # Lines that are not as the format has them, of full disks for example.
    unreadable: int = 0
    # Values that are in no figure since there are too many names.
    not_counted: int = 0
    notes: list[str] = field(default_factory=list)
    _set_s: dict[str, float] = field(default_factory=dict, repr=False)

    @property
    def key(self) -> str:
        """Path below the directory that was searched, which tells it from the others there."""
        return self.folder.key

    @property
    def path(self) -> Path:
        """Its directory."""
        return self.folder.path

    @property
    def status(self) -> str:
        """Return ``running``, ``finished``, ``failed``, ``killed`` or ``unknown``."""
        return status_of_run(self.writers, self.now_s)

    @property
    def latest(self) -> RunLine | None:
        """What the process that began last says of itself."""
        lines = [writer.line for writer in self.writers if writer.line is not None]
        return max(lines, key=lambda line: line.time_s, default=None)

    @property
    def project(self) -> str:
        """What the run belongs to."""
        return self.latest.project if self.latest else self.path.absolute().parent.name

    @property
    def name(self) -> str:
        """Its name in the project."""
        return self.latest.name if self.latest else self.path.absolute().name

    @property
    def group(self) -> str:
        """What it is put together under, or ""."""
        return self.latest.group if self.latest else ""

    @property
    def tags(self) -> tuple[str, ...]:
        """Words that it is found by."""
        return self.latest.tags if self.latest else ()

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names of the machines that it ran on."""
        lines = [writer.line for writer in self.writers if writer.line is not None]
        return tuple(sorted({line.process.host for line in lines}))

    @property
    def started_s(self) -> float | None:
        """When its first process began, in seconds since 1970; None where that is not told."""
        lines = [writer.line for writer in self.writers if writer.line is not None]
        return min((line.time_s for line in lines), default=None)

    @property
    def last_s(self) -> float | None:
        """When it logged last, in seconds since 1970; None for never."""
        return max((writer.last_s for writer in self.writers), default=0.0) or None

    @property
    def duration_s(self) -> float:
        """Seconds from its begin to what it logged last."""
        if self.started_s is None or self.last_s is None:
            return 0.0
        return max(0.0, self.last_s - self.started_s)

    def set_params(self, values: Mapping[str, Any], time_s: float) -> None:
        """Take hyper-parameters."""
        for name, value in values.items():
            if name not in self.params and len(self.params) >= MOST_NAMES:
                self.not_counted += 1
            elif time_s >= self._set_s.get(name, 0.0):
                self.params[name], self._set_s[name] = value, time_s

    def add_metrics(self, values: Mapping[str, float], step: int, time_s: float) -> None:
        """Take the numbers of a line."""
        metrics = self.metrics
        for name, value in values.items():
            figures = metrics.get(name)
            if figures is None:
                if len(metrics) >= MOST_NAMES:
                    self.not_counted += 1
                    continue
                figures = metrics[name] = Figures()
            figures.add(value, step, time_s)
        self.rows += 1

    def as_dict(self) -> RunReport:
        """Return what it is, by the names of the columns of the table ``runs``, and more."""
        metrics = {name: figures.as_dict() for name, figures in sorted(self.metrics.items())}
        return {**self.facts(), "params": self.params, "metrics": metrics, "notes": self.notes}

    def facts(self) -> RunFacts:
        """Return what it is, by the names of the columns of the table ``runs``."""
        return {
            "run": self.key,
            "project": self.project,
            "name": self.name,
            "status": self.status,
            "group_name": self.group,
            "tags": list(self.tags),
            "hosts": list(self.hosts),
            "processes": len(self.writers),
            "started_s": self.started_s,
            "last_s": self.last_s,
            "duration_s": self.duration_s,
            "step": self.step,
            "rows": self.rows,
            "media": self.media,
            "unreadable": self.unreadable,
            "path": whole_text(str(self.path.absolute())),
        }
