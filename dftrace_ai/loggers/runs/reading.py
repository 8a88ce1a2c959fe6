"""Runs read from their directories, as they are now; nothing that is found there stops it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from dftrace_ai.loggers.runs.folders import RunFolder, run_folders
from dftrace_ai.loggers.runs.lines import (
    EndLine,
    MediaLine,
    MetricsLine,
    ParamsLine,
    RunLine,
    line_of,
)
from dftrace_ai.loggers.runs.log_files import LogLines
from dftrace_ai.loggers.runs.model import LocalRun
from dftrace_ai.loggers.runs.processes import is_alive
from dftrace_ai.loggers.runs.statuses import Writer
from dftrace_ai.wording import counted, quoted

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

__all__ = ["Runs", "Sink", "read_run", "read_runs"]


class Sink(Protocol):
    """Takes the rows of runs while they are read."""

    def take_metrics(self, run: LocalRun, writer: Writer, line: MetricsLine) -> None:
        """Take the numbers of a line."""

    def take_media(self, run: LocalRun, writer: Writer, line: MediaLine) -> None:
        """Take what is no number."""


class Runs(list[LocalRun]):
    """The runs of a directory.

    Attributes:
        notes: why some of what is there could not be read.
    """

    def __init__(self, runs: Sequence[LocalRun] = (), notes: Sequence[str] = ()) -> None:
        super().__init__(runs)
        self._searching = list(notes)

    @property
    def notes(self) -> list[str]:
        """Why some of what is there could not be read."""
        return [*self._searching, *(note for run in self for note in run.notes)]

    def only(self, runs: Sequence[LocalRun]) -> Runs:
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
        try:
            _read_log(run, Writer(name), log, sink)
        finally:
            log.close()
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
