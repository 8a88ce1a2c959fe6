"""What was logged beside a trace, in files of the interface `local`: metrics, params, pictures.

Apart from who reads traces: a run without any needs none of it.
"""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING, Final

import numpy as np

from dftrace_ai.analysis.report.figures.facts import envelope
from dftrace_ai.loggers.runs.lines import exact
from dftrace_ai.loggers.runs.log_files import NoRunsError, run_folders
from dftrace_ai.loggers.runs.reading import read_run

if TYPE_CHECKING:
    from pathlib import Path

    from dftrace_ai.loggers.runs.lines import MediaLine, MetricsLine
    from dftrace_ai.loggers.runs.reading import LocalRun, Writer
    from dftrace_ai.trace_format.json_types import Json
    from dftrace_ai.ui.answers import LoggedPicture, MetricSeries

MOST_NAMES: Final = 400
MOST_COLUMNS: Final = 2000
MOST_PICTURES: Final = 2000
# Of these a page has plots of its own, or they are logged besides.
OF_THE_SYSTEM: Final = "system/"
PICTURES: Final = "image"


class Logged:
    """What was logged by the processes of one trace."""

    # `status` says how it ended for who logged, None that nothing was; `last` are the last values
    # of metrics; `pictures` are those that lie in files, by name, with times since 1970.

    def __init__(self, folder: Path | None = None, logs: frozenset[str] = frozenset()) -> None:
        self.status: str | None = None
        self.params: dict[str, Json] = {}
        self.last: dict[str, float | str] = {}
        self.pictures: dict[str, list[LoggedPicture]] = {}
        self._pictures = 0
        # Moments, values and steps in turn, by axis and name.
        self._values: dict[tuple[str, str], array[float]] = {}
        if folder is not None:
            self._read(folder, logs)

    def _read(self, folder: Path, logs: frozenset[str]) -> None:
        try:
            found, _ = run_folders(folder)
        except NoRunsError:
            return  # it was removed meanwhile
        for one in found:
            if one.path != folder or logs.isdisjoint(one.logs):
                continue
            run = read_run(one, self)
            self.status = run.status
            self.params |= {name: exact(value) for name, value in run.params.items()}
            names = [name for name in run.metrics if not name.startswith(OF_THE_SYSTEM)]
            self.last |= {name: exact(run.metrics[name].last) for name in names[:MOST_NAMES]}

    def take_metrics(self, run: LocalRun, writer: Writer, line: MetricsLine) -> None:
        """Take the numbers of a line."""
        for name, value in line.values.items():
            if name.startswith(OF_THE_SYSTEM):
                continue
            if (line.axis, name) in self._values or len(self._values) < MOST_NAMES:
                values = self._values.setdefault((line.axis, name), array("d"))
                values.extend((line.time_s, value, line.step))

    def take_media(self, run: LocalRun, writer: Writer, line: MediaLine) -> None:
        """Take a picture."""
        if line.kind == PICTURES and line.file and self._pictures < MOST_PICTURES:
            self._pictures += 1
            picture = (line.step, line.time_s, str(run.path), line.file)
            self.pictures.setdefault(line.name, []).append(picture)

    def series(self, origin_s: float) -> list[MetricSeries]:
        """Return each metric over time, in so many columns at most."""
        return [
            _series(name, axis, values, origin_s)
            for (axis, name), values in sorted(self._values.items())
        ]


def _series(name: str, axis: str, logged: array[float], origin_s: float) -> MetricSeries:
    rows = np.frombuffer(logged).reshape(-1, 3)
    time_s, value, step = rows[np.argsort(rows[:, 0], kind="stable")].T
    groups = envelope(np.arange(len(value)), value, most=MOST_COLUMNS)
    last = np.array(groups.last, int)
    shown = value[last]
    shown[(np.array(groups.non_finite) > 0) & np.isfinite(shown)] = math.nan
    several = len(last) < len(value)
    return {
        "name": name, "axis": axis, "count": len(value),
        "t": np.round(time_s[last] - origin_s, 4).tolist(), "step": step[last].astype(int).tolist(),
        "v": exact(shown.tolist()),
        "low": groups.low if several else None, "high": groups.high if several else None,
    }  # fmt: skip
