"""The interface to Weights & Biases, online or as a run that ``wandb sync`` sends later."""

from __future__ import annotations

import glob
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from dftrace_ai.loggers.names import accepted_name
from dftrace_ai.loggers.trackers.base import BaseLogint
from dftrace_ai.loggers.trackers.file_paths import kept_copy, kept_file, lent_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wandb import Histogram, Image, Object3D, Video

    from dftrace_ai.loggers import records
    from dftrace_ai.loggers.trackers.base import RunFacts

Value: TypeAlias = "float | str | Histogram | Image | Video | Object3D"

# What the axes are called: no metric of a user's has such a name.
AXES = {"epoch/": "step/epoch", "system/": "step/seconds"}
ITERATIONS = "step/iteration"
# Letters that wandb does not accept in the name of a project.
REFUSED = re.compile(r"[/\\#?%:]")
MOST_LETTERS = 128
LEVELS = {"info": "INFO", "warning": "WARN", "error": "ERROR"}


class WandbLogint(BaseLogint):
    """Logs to Weights & Biases.

    Offline, below the run's directory, unless ``options`` or ``WANDB_MODE`` name a mode or there is
    a key (``WANDB_API_KEY``, or one that ``wandb login`` has left). ``options`` go to
    `wandb.init`, and their ``settings`` over ours, which switch off its statistics of the machine,
    capture of the console, git and error reports.

    Steps are values of axes (``step/iteration``, ``step/epoch``, ``step/seconds``), so that they
    may come in any order and again: wandb's own step would drop what is not later.
    """

    name: ClassVar[str] = "wandb"
    packages: ClassVar[tuple[str, ...]] = ("wandb",)
    extra: ClassVar[str] = "wandb"

    def __init__(self, run: RunFacts) -> None:
        super().__init__(run)
        self._defined: set[str] = set()

    def open(self) -> None:
        """Begin a run, or go on with the one of that name."""
        # Asked of the environment alone, before anything of it is imported.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        run, options = self.run, dict(self.run.options)
        settings = {
            "console": "off",
            "disable_git": True,
            "save_code": False,
            "silent": True,
            "x_disable_machine_info": True,
            "x_disable_meta": True,
            "x_disable_stats": True,
            "x_save_requirements": False,
            **options.pop("settings", {}),
        }
        given = {
            "project": accepted_name(run.project, REFUSED.sub("-", run.project), MOST_LETTERS),
            "name": run.title,
            "id": run.identity(16),
            "group": run.group or None,
            "tags": list(run.tags) or None,
            "resume": run.resume,
            "dir": str(run.log_dir),
            "mode": os.environ.get("WANDB_MODE") or ("online" if _has_key() else "offline"),
            # Another run of the same process is left alone.
            "reinit": "create_new",
            **options,
        }
        self.experiment = wandb.init(**given, settings=wandb.Settings(**settings))
        for axis in (ITERATIONS, *AXES.values()):
            self.experiment.define_metric(axis, hidden=True)

    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Log numbers, each on its axis."""
        self._log(dict(metrics), step)

    def log_params(self, params: records.Params) -> None:
        """Add to the run's config, nested as they are."""
        self.experiment.config.update(dict(params), allow_val_change=True)

    def log_histogram(self, histogram: records.HistogramRecord) -> None:
        """Log counts and edges as they are; of more than 512 bins a file."""
        import wandb

        if len(histogram.counts) > wandb.Histogram.MAX_LENGTH:
            super().log_histogram(histogram)
            return
        bins = (list(histogram.counts), list(histogram.edges))
        value = wandb.Histogram(np_histogram=bins)
        self._log({histogram.name: value}, histogram.at.step)

    def log_image(self, image: records.ImageRecord) -> None:
        """Log the PNG file."""
        import wandb

        with lent_file(image.png, "png") as path:
            value = wandb.Image(str(path), caption=image.caption or None)
            self._log({image.name: value}, image.at.step)

    def log_video(self, video: records.VideoRecord) -> None:
        """Log the file; wandb's own encoder, and what it needs, is not asked."""
        import wandb

        with lent_file(video.data, video.suffix) as path:
            value = wandb.Video(str(path), format=video.suffix)
            self._log({video.name: value}, video.at.step)

    def log_mesh(self, mesh: records.MeshRecord) -> None:
        """Log the GLB file."""
        import wandb

        with lent_file(mesh.glb, "glb") as path:
            self._log({mesh.name: wandb.Object3D(str(path))}, mesh.at.step)

    def log_text(self, text: records.TextRecord) -> None:
        """Log the text as a value."""
        self._log({text.name: text.text}, text.at.step)

    def log_file(self, name: str, data: bytes, suffix: str, step: int) -> None:
        """Keep a file among those of the run."""
        folder = Path(self.experiment.dir)
        self._save(kept_file(folder / "files", name, suffix, step, data, self.run.file_mode))

    def log_artifact(self, name: str, path: Path) -> None:
        """Keep a copy among the files of the run."""
        folder = Path(self.experiment.dir) / "artifacts"
        for file in kept_copy(path, folder, name):
            self._save(file)

    def log_alert(self, alert: records.Alert) -> None:
        """Send an alert."""
        import wandb

        level = wandb.AlertLevel[LEVELS[alert.level]]
        self.experiment.alert(alert.title, alert.text, level=level, wait_duration=0)

    def finish(self, status: records.Status) -> None:
        """End the run: with exit code 0 where it finished, 1 where it failed, 255 if killed."""
        self.experiment.summary["status"] = status
        self.experiment.finish({"finished": 0, "failed": 1}.get(status, 255))

    def _log(self, values: dict[str, Value], step: int) -> None:
        axes = {}
        for name in values:
            axis = next((AXES[start] for start in AXES if name.startswith(start)), ITERATIONS)
            axes[axis] = step
            if name not in self._defined:
                self._defined.add(name)
                self.experiment.define_metric(name, step_metric=axis, step_sync=False)
        self.experiment.log(values | axes)

    def _save(self, path: Path) -> None:
        name = glob.escape(str(path))
        self.experiment.save(name, base_path=self.experiment.dir, policy="now")


def _has_key() -> bool:
    if os.environ.get("WANDB_API_KEY"):
        return True
    from netrc import NetrcParseError, netrc
    from urllib.parse import urlsplit

    host = urlsplit(os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai").hostname
    try:
        file = os.environ.get("NETRC") or str(Path("~/.netrc").expanduser())
        return host is not None and netrc(file).authenticators(host) is not None
    except (OSError, RuntimeError, NetrcParseError):  # a user may have no home directory
        return False
