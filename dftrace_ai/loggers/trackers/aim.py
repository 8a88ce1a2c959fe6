"""The interface to Aim: a repository on this machine, or a tracking server."""

from __future__ import annotations

import gc
import io
import json
from typing import TYPE_CHECKING, Any, ClassVar

from dftrace_ai.errors import ConfigError
from dftrace_ai.loggers.names import plain_name
from dftrace_ai.loggers.trackers.base import BaseLogint, step_file
from dftrace_ai.loggers.trackers.file_paths import lent_file, one_at_a_time
from dftrace_ai.wording import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from dftrace_ai.loggers import records

MOST_BINS = 512


class AimLogint(BaseLogint):
    """Logs to Aim.

    To the repository that ``options: {repo: ...}`` names, else to one in the directory of all runs;
    it needs no network. All other ``options`` go to `aim.Run`, and ``artifacts_uri`` says where
    files are kept; without, in the run's directory. Aim's statistics of the machine and capture of
    the terminal are off.

    A value that is logged again for a step replaces the one before: Aim keeps one of each. What
    goes to a server counts as taken when the server has it.
    """

    name: ClassVar[str] = "aim"
    packages: ClassVar[tuple[str, ...]] = ("aim",)
    extra: ClassVar[str] = "aim"

    def open(self) -> None:
        """Begin a run, or go on with the one of that name, if it must or must not be there."""
        import aim

        run, options = self.run, dict(self.run.options)
        place = options.pop("repo", None)
        artifacts = options.pop("artifacts_uri", None) or (run.log_dir / "aim").as_uri()
        with one_at_a_time(run.root / ".aim.lock"):
            repo = place or aim.Repo.from_path(str(run.root), init=True)
        # Aim gives a run its number itself; it is noted beside, for whoever goes on with it. The
        # directory is this run's alone, so that no other name comes to the note.
        note = run.log_dir / f"aim-{plain_name(run.title)}.run"
        known = note.read_text() if note.exists() else None
        if run.resume == "must" and known is None and "run_hash" not in options:
            raise ConfigError(f"resume: must, and no run of Aim is noted in {quoted(str(note))}")
        given = {
            "run_hash": None if run.resume == "never" else known,
            # The lock of a process that was killed is in nobody's hands.
            "force_resume": known is not None,
            "experiment": run.project,
            "system_tracking_interval": None,
            "log_system_params": False,
            "capture_terminal_logs": False,
            **options,
        }
        tracker = self.experiment = aim.Run(repo=repo, **given)
        note.write_text(tracker.hash)
        tracker.name = run.title
        tracker.set_artifacts_uri(artifacts)
        tracker["group"] = run.group
        tracker["status"] = "running"
        for tag in set(run.tags).difference(tracker.tags):
            tracker.add_tag(tag)

    def take(self, record: records.Record) -> None:
        """Take a record, and wait until a server has it: Aim itself queues it in memory."""
        super().take(record)
        client: Any = getattr(self.experiment.repo, "_client", None)
        if hasattr(client, "get_queue"):
            client.get_queue().wait_for_finish()

    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Track numbers."""
        for name, value in metrics.items():
            self._track(float(value), name, step)

    def log_params(self, params: records.Params) -> None:
        """Set them, nested as they are, under ``hparams``."""
        for name, value in params.items():
            self.experiment["hparams", name] = _with_wide_told(value)

    def log_histogram(self, histogram: records.HistogramRecord) -> None:
        """Track a distribution, whose bins Aim takes to be of one width; the edges as a text."""
        import aim

        step, name = histogram.at.step, histogram.name
        if len(histogram.counts) > MOST_BINS:
            super().log_histogram(histogram)
            return
        ends = (histogram.edges[0], histogram.edges[-1])
        self._track(aim.Distribution.from_histogram(list(histogram.counts), ends), name, step)
        self._track(aim.Text(json.dumps(histogram.edges)), f"{name}/edges", step)

    def log_image(self, image: records.ImageRecord) -> None:
        """Track the picture."""
        self._track_picture(image.png, "png", image.caption, image.name, image.at.step)

    def log_video(self, video: records.VideoRecord) -> None:
        """Track a GIF as a picture that moves; keep others as files."""
        if video.suffix == "gif":
            self._track_picture(video.data, "gif", "", video.name, video.at.step)
        else:
            super().log_video(video)

    def log_text(self, text: records.TextRecord) -> None:
        """Track a text."""
        import aim

        self._track(aim.Text(text.text), text.name, text.at.step)

    def log_file(self, name: str, data: bytes, suffix: str, step: int) -> None:
        """Keep a file among the run's artifacts, by name and step."""
        with lent_file(data, suffix) as path:
            file = f"{name}/{step_file(step, suffix)}"
            self.experiment.log_artifact(str(path), file, block=True)

    def log_artifact(self, name: str, path: Path) -> None:
        """Keep a file or directory among the run's artifacts."""
        if path.is_dir():
            self.experiment.log_artifacts(str(path), name, block=True)
        else:
            self.experiment.log_artifact(str(path), name, block=True)

    def log_alert(self, alert: records.Alert) -> None:
        """Log a message of that level."""
        log = getattr(self.experiment, f"log_{alert.level}")
        log(f"{alert.title}: {alert.text}" if alert.text else alert.title)

    def finish(self, status: records.Status) -> None:
        """End the run; Aim itself knows those that finished from the others."""
        tracker, self.experiment = self.experiment, None
        tracker["status"] = status
        if status == "finished":
            tracker.report_successful_finish()
        tracker.close()
        # Its files are written, and its lock is gone, when nothing refers to it any more.
        del tracker
        gc.collect()

    def _track(self, value: Any, name: str, step: int) -> None:
        self.experiment.track(value, name=name, step=step)

    def _track_picture(self, data: bytes, suffix: str, caption: str, name: str, step: int) -> None:
        import aim
        from aim.storage.types import BLOB
        from PIL import Image

        with Image.open(io.BytesIO(data)) as opened:
            picture = aim.Image(opened, caption=caption, format=suffix)
        # The bytes as they are: encoded again, a clip would lose its speed.
        picture.storage["data"] = BLOB(data=data)
        self._track(picture, name, step)


def _with_wide_told(value: Any) -> Any:
    """Return hyper-parameters with whole numbers of more than 64 bits as texts: Aim has none."""
    if isinstance(value, dict):
        return {name: _with_wide_told(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_with_wide_told(one) for one in value]
    wide = isinstance(value, int) and not -(1 << 63) <= value < 1 << 63
    return str(value) if wide else value
