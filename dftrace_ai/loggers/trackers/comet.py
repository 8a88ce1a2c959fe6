"""The interface to Comet, online or as an archive that ``comet upload`` sends later."""

from __future__ import annotations

import inspect
import io
import os
from typing import TYPE_CHECKING, ClassVar

from dftrace_ai.loggers.names import flattened
from dftrace_ai.loggers.trackers.base import BaseLogint, files_of, step_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from dftrace_ai.loggers import records

MODES = {"allow": "get_or_create", "must": "get", "never": "create"}
OFF = {
    "auto_log_co2": False,
    "auto_metric_logging": False,
    "auto_output_logging": False,
    "auto_param_logging": False,
    "display_summary_level": 0,
    "log_code": False,
    "log_env_details": False,
    "log_git_metadata": False,
    "log_git_patch": False,
    "log_graph": False,
    "parse_args": False,
}


class CometLogint(BaseLogint):
    """Logs to Comet.

    Offline, to an archive below the run's directory, unless ``options: {online: ...}`` or
    ``COMET_START_ONLINE`` say so or there is a key (``api_key`` in ``options``, ``COMET_API_KEY``,
    or one in Comet's own configuration). ``options`` go to `comet_ml.start` and, those that it does
    not know, to its `ExperimentConfig`. Whatever Comet would collect by itself is off.

    An archive is whole only when the run has ended: what a killed tracker leaves lies in a
    temporary directory of Comet's.
    """

    name: ClassVar[str] = "comet"
    packages: ClassVar[tuple[str, ...]] = ("comet_ml",)
    extra: ClassVar[str] = "comet"

    def open(self) -> None:
        """Begin an experiment, or go on with the one of that name."""
        # What would patch other libraries, report errors and print, from the import on.
        os.environ.setdefault("COMET_DISABLE_AUTO_LOGGING", "1")
        os.environ.setdefault("COMET_INTERNAL_SENTRY_DSN", "")
        os.environ.setdefault("COMET_INTERNAL_REPORTING", "0")
        os.environ.setdefault("COMET_LOGGING_CONSOLE", "ERROR")
        import comet_ml

        run = self.run
        key = run.options.get("api_key") or comet_ml.get_config("comet.api_key")
        known = inspect.signature(comet_ml.start).parameters
        begin = {
            "project_name": run.project,
            "experiment_key": run.identity(40),
            "mode": MODES[run.resume],
            **({} if "COMET_START_ONLINE" in os.environ else {"online": bool(key)}),
            **{name: value for name, value in run.options.items() if name in known},
        }
        settings = {
            **OFF,
            "name": run.title,
            "tags": list(run.tags),
            "offline_directory": str(run.log_dir / "comet"),
            **{name: value for name, value in run.options.items() if name not in known},
        }
        self.experiment = comet_ml.start(
            **{"experiment_config": comet_ml.ExperimentConfig(**settings), **begin}
        )
        if run.group:
            self.experiment.log_other("group", run.group)

    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Log numbers."""
        for name, value in metrics.items():
            self.experiment.log_metric(name, value, step=step)

    def log_params(self, params: records.Params) -> None:
        """Log them flat, and as a JSON file with what they were."""
        self.experiment.log_parameters(flattened(params))
        super().log_params(params)

    def log_histogram(self, histogram: records.HistogramRecord) -> None:
        """Log a histogram with bins of Comet's, and as a JSON file with ours."""
        import numpy as np
        from comet_ml.data_structure import Histogram

        # Its bins are its own: the values of each of ours count for the one that its middle is in.
        edges = np.asarray(histogram.edges)
        value = Histogram()
        value.add((edges[1:] + edges[:-1]) / 2, counts=histogram.counts)
        step = histogram.at.step
        self.experiment.log_histogram_3d(value, name=histogram.name, step=step)
        super().log_histogram(histogram)

    def log_image(self, image: records.ImageRecord) -> None:
        """Log the PNG file."""
        self.experiment.log_image(
            io.BytesIO(image.png),
            name=image.name,
            step=image.at.step,
            metadata={"caption": image.caption} if image.caption else None,
        )

    def log_video(self, video: records.VideoRecord) -> None:
        """Log the file."""
        name = f"{video.name}.{video.suffix}"
        file = io.BytesIO(video.data)
        self.experiment.log_video(file, name=name, format=video.suffix, step=video.at.step)

    def log_text(self, text: records.TextRecord) -> None:
        """Log a text, with its name among its facts."""
        self.experiment.log_text(text.text, step=text.at.step, metadata={"name": text.name})

    def log_file(self, name: str, data: bytes, suffix: str, step: int) -> None:
        """Log a file by name and step."""
        file = f"{name}/{step_file(step, suffix)}"
        self.experiment.log_asset(io.BytesIO(data), file_name=file, step=step)

    def log_artifact(self, name: str, path: Path) -> None:
        """Log a file, or all of a directory."""
        for file, place in files_of(name, path).items():
            # Of an open file Comet makes a copy; a path it would read at the end of the run.
            with place.open("rb") as opened:
                self.experiment.log_asset(opened, file_name=f"artifacts/{file}")

    def log_alert(self, alert: records.Alert) -> None:
        """Log a text; online also send a notification."""
        from comet_ml import OfflineExperiment

        facts = {"name": "alert", "level": alert.level, "text": alert.text}
        self.experiment.log_text(alert.title, step=alert.at.step, metadata=facts)
        if not isinstance(self.experiment, OfflineExperiment):
            self.experiment.send_notification(alert.title, alert.level, facts)

    def finish(self, status: records.Status) -> None:
        """End the experiment."""
        self.experiment.log_other("status", status)
        self.experiment.end()
