"""The interface to Trackio: a database beside the runs, or a Space or server that one names."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, ClassVar

from dftrace_ai.loggers.names import accepted_name, safe_file_name, safe_name
from dftrace_ai.loggers.trackers.base import BaseLogint, step_file
from dftrace_ai.loggers.trackers.file_paths import lent_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from dftrace_ai.loggers import records

ELSEWHERE = ("space_id", "server_url")
MOST_LETTERS = 120
LEVELS = {"info": "INFO", "warning": "WARN", "error": "ERROR"}


class TrackioLogint(BaseLogint):
    """Logs to Trackio.

    To a database below the directory of all runs (``trackio``, or where ``TRACKIO_DIR`` says),
    without a network, unless ``options`` or the environment name a Space (``space_id``,
    ``TRACKIO_SPACE_ID``) or a server (``server_url``, ``TRACKIO_SERVER_URL``). ``options`` go to
    `trackio.init`. Its statistics of the machine are off.

    What Trackio cannot take it leaves out with a warning, which stands in the run's ``output.log``.
    """

    name: ClassVar[str] = "trackio"
    packages: ClassVar[tuple[str, ...]] = ("trackio",)
    extra: ClassVar[str] = "trackio"

    def open(self) -> None:
        """Begin a run, or go on with the one of that name."""
        run = self.run
        # Read when it is imported.
        os.environ.setdefault("TRACKIO_DIR", str(run.root / "trackio"))
        named = any(run.options.get(key) for key in ELSEWHERE)
        if not named and not any(os.environ.get(f"TRACKIO_{key.upper()}") for key in ELSEWHERE):
            os.environ.setdefault("HF_HUB_OFFLINE", "1")
        os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
        import trackio

        given = {
            "project": _project(run.project),
            "name": run.title,
            "group": run.group or None,
            "resume": run.resume,
            "embed": False,
            "auto_log_cpu": False,
            "auto_log_gpu": False,
            "config": {},
            **run.options,
        }
        self.experiment = trackio.init(**given)
        self._note({"tags": list(run.tags), "status": "running"}, "run")

    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Log numbers."""
        self.experiment.log(dict(metrics), step=step)

    def log_params(self, params: records.Params) -> None:
        """Set them in the run's config, nested as they are, and show them as a text."""
        self._note(params, "hparams")

    def log_histogram(self, histogram: records.HistogramRecord) -> None:
        """Log counts and edges as they are."""
        import trackio

        bins = (list(histogram.counts), list(histogram.edges))
        self._log(histogram.name, trackio.Histogram(np_histogram=bins), histogram.at.step)

    def log_image(self, image: records.ImageRecord) -> None:
        """Log the PNG file."""
        import trackio

        with lent_file(image.png, "png") as path:
            value = trackio.Image(str(path), caption=image.caption or None)
            self._log(image.name, value, image.at.step)

    def log_video(self, video: records.VideoRecord) -> None:
        """Log the file, which needs no ffmpeg."""
        import trackio

        with lent_file(video.data, video.suffix) as path:
            self._log(video.name, trackio.Video(str(path)), video.at.step)

    def log_mesh(self, mesh: records.MeshRecord) -> None:
        """Log the GLB file."""
        import trackio

        with lent_file(mesh.glb, "glb") as path:
            self._log(mesh.name, trackio.Object3D(str(path)), mesh.at.step)

    def log_text(self, text: records.TextRecord) -> None:
        """Log a text."""
        import trackio

        self._log(text.name, trackio.Markdown(text.text), text.at.step)

    def log_file(self, name: str, data: bytes, suffix: str, step: int) -> None:
        """Keep a file as a version of an artifact of that name."""
        with lent_file(data, suffix) as path:
            self._keep(name, "file", path, step_file(step, suffix))

    def log_artifact(self, name: str, path: Path) -> None:
        """Keep a file or directory as an artifact."""
        self._keep(name, "artifact", path, None if path.is_dir() else safe_file_name(name))

    def log_alert(self, alert: records.Alert) -> None:
        """Send an alert."""
        import trackio

        level = trackio.AlertLevel[LEVELS[alert.level]]
        self.experiment.alert(title=alert.title, text=alert.text, level=level)

    def finish(self, status: records.Status) -> None:
        """End the run; its config says how."""
        self._note({"status": status}, "run")
        self.experiment.finish()

    def _log(self, name: str, value: Any, step: int) -> None:
        self.experiment.log({name: value}, step=step)

    def _note(self, facts: records.Params, name: str) -> None:
        import trackio

        run = self.experiment
        run.config |= facts
        # Trackio sends the config with what is logged next, and of those of one batch it takes the
        # first: what waits goes without one. Versions that have other parts inside keep the text.
        if hasattr(run, "_queue_lock") and hasattr(run, "_queued_logs"):
            with run._queue_lock:
                for entry in run._queued_logs:
                    entry["config"] = None
        run._config_logged = False
        text = json.dumps(facts, indent=2, default=str)
        self._log(f"about/{name}", trackio.Markdown(f"```json\n{text}\n```"), self.at.step)

    def _keep(self, name: str, kind: str, path: Path, file: str | None) -> None:
        import trackio

        artifact = trackio.Artifact(safe_name(name), type=kind)
        if file is None:
            artifact.add_dir(str(path))
        else:
            artifact.add_file(str(path), name=file)
        self.experiment.log_artifact(artifact)


def _project(name: str) -> str:
    """Return the name of a project; its database is called by letters, digits, _ and - alone."""
    accepted = "".join(one if one.isalnum() or one in "-_" else "_" for one in name)
    return accepted_name(name, accepted, MOST_LETTERS)
