"""The interface to SwanLab, online or as files that ``swanlab sync`` sends later."""

from __future__ import annotations

import glob
import os
import re
from typing import TYPE_CHECKING, Any, ClassVar

from dftrace_ai.loggers.names import accepted_name
from dftrace_ai.loggers.trackers.base import BaseLogint, picture_of
from dftrace_ai.loggers.trackers.file_paths import kept_copy, kept_file, lent_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from dftrace_ai.loggers import records

# No letter that SwanLab accepts in the name of a project.
UNNAMED = re.compile(r"[^\w.+-]", re.ASCII)
MOST_LETTERS = 100
STATES = {"finished": "success", "failed": "crashed", "killed": "aborted"}


class SwanLabLogint(BaseLogint):
    """Logs to SwanLab.

    Offline, below the run's directory, unless ``options: {mode: ...}`` or ``SWANLAB_MODE`` name a
    mode or there is a key (``SWANLAB_API_KEY``, or one that ``swanlab login`` has left).
    ``options`` go to `swanlab.init`, and their ``settings`` over ours, which switch off what it
    would collect of the machine, the terminal and git.

    SwanLab keeps the first value of a step, and drops one that is logged again.
    """

    name: ClassVar[str] = "swanlab"
    packages: ClassVar[tuple[str, ...]] = ("swanlab",)
    extra: ClassVar[str] = "swanlab"

    def open(self) -> None:
        """Begin a run; one that goes on has the same number."""
        import swanlab

        run, options = self.run, dict(self.run.options)
        off = ("hardware", "runtime", "requirements", "conda", "git", "swanlab", "monitor")
        settings = {
            "interactive": False,
            "probe": dict.fromkeys(off, False),
            "terminal": {"proxy_type": "none"},
            **options.pop("settings", {}),
        }
        made = swanlab.Settings(**settings)
        mode = options.pop("mode", None) or os.environ.get("SWANLAB_MODE")
        mode = mode or ("online" if made.api_key else "offline")
        folder = run.log_dir / "swanlab"
        given = {
            "project": accepted_name(run.project, UNNAMED.sub("-", run.project), MOST_LETTERS),
            "name": run.title,
            "group": run.group or None,
            "tags": list(run.tags),
            "log_dir": str(folder),
            **({} if run.resume == "never" else {"id": run.identity(21)}),
            "resume": run.resume,
            **options,
        }
        folder.mkdir(parents=True, exist_ok=True)
        self.experiment = swanlab.init(mode=mode, settings=made, **given)

    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Log numbers."""
        self.experiment.log(dict(metrics), step=step)

    def log_params(self, params: records.Params) -> None:
        """Add to the run's config, nested as they are."""
        self.experiment.config.update(_with_none_named(params))

    def log_histogram(self, histogram: records.HistogramRecord) -> None:
        """Log a chart of bars, each named by the edges of its bin."""
        import swanlab

        ends = zip(histogram.edges[:-1], histogram.edges[1:], strict=True)
        chart = swanlab.echarts.Bar()
        chart.add_xaxis([f"{lower!r} to {upper!r}" for lower, upper in ends])
        chart.add_yaxis("count", list(histogram.counts))
        self._log(histogram.name, chart, histogram.at.step)

    def log_image(self, image: records.ImageRecord) -> None:
        """Log the picture as PNG."""
        import swanlab

        caption = image.caption or None
        value = swanlab.Image(picture_of(image), file_type="png", caption=caption)
        self._log(image.name, value, image.at.step)

    def log_video(self, video: records.VideoRecord) -> None:
        """Log a GIF; keep others, which SwanLab does not show, as files."""
        import swanlab

        if video.suffix == "gif":
            self._log(video.name, swanlab.Video(video.data), video.at.step)
        else:
            super().log_video(video)

    def log_mesh(self, mesh: records.MeshRecord) -> None:
        """Log the GLB file."""
        import swanlab

        with lent_file(mesh.glb, "glb") as path:
            self._log(mesh.name, swanlab.Object3D(str(path)), mesh.at.step)

    def log_text(self, text: records.TextRecord) -> None:
        """Log a text."""
        import swanlab

        self._log(text.name, swanlab.Text(text.text), text.at.step)

    def log_file(self, name: str, data: bytes, suffix: str, step: int) -> None:
        """Keep a file in the run's directory, which SwanLab refers to."""
        self._save(kept_file(self._folder(), name, suffix, step, data, self.run.file_mode))

    def log_artifact(self, name: str, path: Path) -> None:
        """Keep a copy in the run's directory, which SwanLab refers to."""
        for file in kept_copy(path, self._folder() / "artifacts", name):
            self._save(file)

    def finish(self, status: records.Status) -> None:
        """End the run: as a success, crashed or aborted."""
        errors = {"failed": "the training failed", "killed": "the training was killed"}
        self.experiment.finish(STATES[status], errors.get(status))

    def _folder(self) -> Path:
        return self.run.log_dir / "swanlab-files"

    def _save(self, path: Path) -> None:
        name = glob.escape(str(path))
        self.experiment.save(name, base_path=str(self._folder()), policy="now")

    def _log(self, name: str, value: Any, step: int) -> None:
        self.experiment.log({name: value}, step=step)


def _with_none_named(value: Any) -> Any:
    """Return hyper-parameters with a word for None, which SwanLab takes for an empty mapping."""
    if isinstance(value, dict):
        return {name: _with_none_named(one) for name, one in value.items()}
    return "None" if value is None else value
