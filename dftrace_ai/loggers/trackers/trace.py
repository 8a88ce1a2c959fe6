"""The interface to the trace: what is logged stands on the timeline, beside the spans."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

from dftrace_ai.loggers.trackers.base import BaseLogint
from dftrace_ai.loggers.trackers.file_paths import kept_file
from dftrace_ai.run import emitting

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from dftrace_ai.loggers.records import Alert, HistogramRecord, Params, TextRecord
    from dftrace_ai.run.emitting import Moment

CATEGORY = "log"
TRACK = "log"
# Of a histogram's quantiles those that are plotted: each is a track.
PLOTTED = (0.05, 0.5, 0.95)


class TraceLogint(BaseLogint):
    """Writes numbers as counter tracks, everything else as instants; files lie beside.

    Where no run is traced nothing is written to a trace, and nothing is lost of what is kept
    elsewhere.
    """

    name: ClassVar[str] = "trace"
    own_process: ClassVar[bool] = False
    sent_later: ClassVar[bool] = False

    _last_ns = 0

    def _moment(self) -> Moment | None:
        """Return when the record was logged; each is a nanosecond after the last at the least."""
        # What was logged by one call has one time; on a track each event has its own.
        if self.at.moment is None:
            return None
        time_ns, *place = self.at.moment
        self._last_ns = max(time_ns, self._last_ns + 1)
        span, level, run = place
        return self._last_ns, span, level, run

    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Write a counter for each number; an instant for one that has no place on a track."""
        for name, value in metrics.items():
            if math.isfinite(value):
                emitting.counter(name, value, at=self._moment())
            else:
                self._instant(f"{name} is {value}", {"step": step})

    def log_file(self, name: str, data: bytes, suffix: str, step: int) -> None:
        """Write a file, and an instant with its path."""
        path = kept_file(self.run.log_dir / "media", name, suffix, step, data, self.run.file_mode)
        self._instant(name, {"file": str(path), "step": step})

    def log_params(self, params: Params) -> None:
        """Write an instant with the hyper-parameters, below a key of their own.

        The format has keys for itself, such as ``level``.
        """
        self._instant("hparams", {"hparams": dict(params)})

    def log_histogram(self, histogram: HistogramRecord) -> None:
        """Write an instant with counts and edges, and counter tracks with three quantiles."""
        found = histogram.quantiles
        named = {f"q{round(share * 100):02}": found[share] for share in PLOTTED if share in found}
        if named:
            emitting.counter(histogram.name, named, at=self._moment())
        args: Params = {
            "counts": list(histogram.counts),
            "edges": list(histogram.edges),
            "non_finite": histogram.non_finite,
            "step": histogram.at.step,
        }
        self._instant(histogram.name, args)

    def log_text(self, text: TextRecord) -> None:
        """Write an instant with the text."""
        self._instant(text.name, {"text": text.text, "step": text.at.step})

    def log_artifact(self, name: str, path: Path) -> None:
        """Write an instant with the path, which stays where it is."""
        self._instant(name, {"file": str(path)})

    def log_alert(self, alert: Alert) -> None:
        """Write an instant."""
        self._instant(f"alert: {alert.title}", {"text": alert.text, "severity": alert.level})

    def _instant(self, name: str, args: Params) -> None:
        emitting.instant(name, args, category=CATEGORY, track=TRACK, at=self._moment())
