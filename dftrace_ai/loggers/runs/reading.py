"""Runs as their logs tell them: who wrote, what was set, what the metrics came to, how they stand.

They are read as they are now; nothing that is found there stops it.
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from dftrace_ai.loggers.metric_figures import Figures
from dftrace_ai.loggers.runs.lines import (
    EndLine,
    MediaLine,
    MetricsLine,
    ParamsLine,
    RunLine,
    line_of,
    whole_text,
)
from dftrace_ai.loggers.runs.log_files import LogLines, RunFolder, run_folders
from dftrace_ai.loggers.runs.processes import is_alive
from dftrace_ai.wording import counted, quoted

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping

    from dftrace_ai.loggers.records import Param, Params
    from dftrace_ai.loggers.runs.report_types import FigureReport, RunFacts, RunReport

FIGURES = ("last", "min", "max", "mean")

MOST_NAMES = 100_000
"""Metrics, and hyper-parameters, of one run; others are counted."""

STATUSES = ("running", "finished", "failed", "killed", "unknown")

QUIET_S = 120.0
"""A process that cannot be looked at runs as long as its log has changed in so many seconds."""

# Where ranks of one attempt differ: one that fails has its launcher end the others.
WORST_FIRST = ("failed", "killed", "unknown", "finished")


@dataclass
class Writer:
    """A process that has written to a run."""

    log: str
    # What it says of itself; None where that cannot be read.
    line: RunLine | None = None
    # None where that cannot be known.
    alive: bool | None = None
    # The status that it has written at its end; "" without one.
    ending: str = ""
    # When it logged last, in seconds since 1970; 0 for never.
    last_s: float = 0.0
    # When its log last changed.
    written_s: float = 0.0

    def status(self, now_s: float) -> str:
        """Return how the run stands for a process that was looked at before its log was read."""
        if self.ending:
            return self.ending
        if self.line is None:
            return "unknown"
        if self.alive is None:
            return "running" if now_s - self.written_s < QUIET_S else "unknown"
        return "running" if self.alive else "killed"


@dataclass
class LocalRun:
    """A run, of all the processes that have written to it."""

    folder: RunFolder
    # When it was read, in seconds since 1970.
    now_s: float
    # By rank and then by when they began.
    writers: list[Writer] = field(default_factory=list)
    # By their names with slashes between; of one that was logged again the latest.
    params: dict[str, Param] = field(default_factory=dict)
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
        """Return ``running``, ``finished``, ``failed``, ``killed`` or ``unknown``.

        Running while any process is, else as its latest attempt ended: the latest process says how
        many ranks there are, and of each the latest counts.
        """
        statuses = [writer.status(self.now_s) for writer in self.writers]
        if "running" in statuses:
            return "running"
        ranks = self.latest.world_size if self.latest else 0
        ended: dict[int, tuple[float, str]] = {}
        for writer, status in zip(self.writers, statuses, strict=True):
            line = writer.line
            if line and line.rank < ranks and line.time_s >= ended.get(line.rank, (0.0, ""))[0]:
                ended[line.rank] = (line.time_s, status)
        last = {status for _, status in ended.values()}
        return next((status for status in WORST_FIRST if status in last), "unknown")

    @property
    def heads(self) -> list[RunLine]:
        """What its processes say of themselves."""
        return [writer.line for writer in self.writers if writer.line is not None]

    @property
    def latest(self) -> RunLine | None:
        """What the process that began last says of itself."""
        return max(self.heads, key=lambda line: line.time_s, default=None)

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
        return tuple(sorted({line.process.host for line in self.heads}))

    @property
    def started_s(self) -> float | None:
        """When its first process began, in seconds since 1970; None where that is not told."""
        return min((line.time_s for line in self.heads), default=None)

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

    def set_params(self, values: Params, time_s: float) -> None:
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
        metrics = {name: report_of(figures) for name, figures in sorted(self.metrics.items())}
        params, notes = self.params, self.notes
        return {**self.facts(), "params": params, "metrics": metrics, "notes": notes}

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


def report_of(figures: Figures) -> FigureReport:
    """Return the figures by name."""
    return {
        "last": figures.last,
        "min": figures.min,
        "max": figures.max,
        "mean": figures.mean,
        "count": figures.count,
        "non_finite": figures.non_finite,
    }


class Sink(Protocol):
    """Takes the rows of runs while they are read."""

    def take_metrics(self, run: LocalRun, writer: Writer, line: MetricsLine) -> None:
        """Take the numbers of a line."""

    def take_media(self, run: LocalRun, writer: Writer, line: MediaLine) -> None:
        """Take what is no number."""


class Runs(list[LocalRun]):
    """The runs of a directory."""

    def __init__(self, runs: Iterable[LocalRun] = (), notes: Iterable[str] = ()) -> None:
        super().__init__(runs)
        self._searching = list(notes)

    @property
    def notes(self) -> list[str]:
        """Why some of what is there could not be read."""
        return [*self._searching, *(note for run in self for note in run.notes)]

    def only(self, runs: Iterable[LocalRun]) -> Runs:
        """Return some of them, in the order that is given."""
        return Runs(runs, self._searching)


def read_runs(directory: str | os.PathLike[str]) -> Runs:
    """Read all runs of a directory.

    They may be written meanwhile: of each log the whole lines are read that are there now.

    Args:
        directory: a ``log_dir``, a project in it, or a run.

    Returns:
        The runs in the order of their keys.

    Raises:
        NoRunsError: it cannot be read, or there are no runs in it.

    Example::

        for run in read_runs("runs"):
            print(run.key, run.status, run.params.get("lr"), run.metrics["loss"].last)
    """
    folders, notes = run_folders(Path(directory))
    return Runs([read_run(folder) for folder in folders], notes)


def read_run(folder: RunFolder, sink: Sink | None = None) -> LocalRun:
    """Read a run; a sink takes its rows meanwhile."""
    run = LocalRun(folder, time.time())
    for name in folder.logs:
        try:
            log = LogLines(folder.path / name)
        except FileNotFoundError:
            continue  # the run was removed meanwhile
        except OSError as error:
            run.notes.append(f"{quoted(str(folder.path / name))}: {error.strerror}, skipped")
            continue
        with closing(log):
            _read_log(run, Writer(name), log, sink)
    if run.unreadable:
        run.notes.append(
            f"{quoted(str(folder.path))}: {counted(run.unreadable, 'line')} cannot be read"
        )
    if run.not_counted:
        run.notes.append(
            f"{quoted(str(folder.path))}: {counted(run.not_counted, 'value')} of more names than "
            "are counted"
        )
    return run


def _read_log(run: LocalRun, writer: Writer, log: LogLines, sink: Sink | None) -> None:
    run.writers.append(writer)
    for data in _lines(run, writer, log):
        line = line_of(data)
        if isinstance(line, MetricsLine):
            run.add_metrics(line.values, line.step, line.time_s)
            if sink is not None:
                sink.take_metrics(run, writer, line)
        elif isinstance(line, MediaLine):
            run.media += 1
            if sink is not None:
                sink.take_media(run, writer, line)
        elif isinstance(line, ParamsLine):
            run.set_params(line.values, line.time_s)
        elif isinstance(line, EndLine):
            writer.ending = line.status
        elif isinstance(line, RunLine):
            if writer.line is None:
                writer.line = line
                writer.alive = is_alive(line.process, log.written_s)
        elif data:
            run.unreadable += 1
        if isinstance(line, MetricsLine | MediaLine) and line.axis == "iteration":
            run.step = max(run.step, line.step)
        if line is not None:
            writer.last_s = max(writer.last_s, line.time_s)
    run.unreadable += log.passed_over
    writer.written_s = log.written_s


def _lines(run: LocalRun, writer: Writer, log: LogLines) -> Iterator[bytes]:
    """Yield the lines of a log, and note where it cannot be read on; a sink's errors go up."""
    begun = False
    try:
        for data in log:
            yield data
            if writer.line is not None and not begun:
                # The process first, then the rest of its log: one that ends in between has
                # written its end where it is read.
                log.look()
                begun = True
    except OSError as error:
        run.notes.append(f"{quoted(str(run.path / writer.log))}: {error.strerror}, read in part")
