"""The interface to Neptune, whose service has ended: what is logged is kept as an offline run."""

from __future__ import annotations

import json
import math
import os
from typing import TYPE_CHECKING, ClassVar

from dftrace_ai.loggers.names import accepted_name, flattened
from dftrace_ai.loggers.trackers.base import BaseLogint, files_of, picture_of
from dftrace_ai.loggers.trackers.file_paths import lead_nowhere

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from dftrace_ai.loggers.records import Alert, ImageRecord, Params, Status, TextRecord

MOST_LETTERS = 1000


class NeptuneLogint(BaseLogint):
    """Logs to Neptune's client of version 1.

    Neptune's service ended in March 2026. Runs are offline, below the run's directory, unless
    ``options: {mode: ...}`` or ``NEPTUNE_MODE`` say otherwise, for servers of one's own.
    ``options`` go to `neptune.init_run`. What it would collect of the console, the machine and git
    is off.
    """

    name: ClassVar[str] = "neptune"
    packages: ClassVar[tuple[str, ...]] = ("neptune",)
    extra: ClassVar[str] = "neptune"
    notice: ClassVar[str] = (
        "Neptune's service ended in March 2026; runs are kept offline, beside the run's other files"
    )

    _folder = ""

    def open(self) -> None:
        """Begin a run; one that goes on has the same number of its own."""
        run = self.run
        os.environ.setdefault("NEPTUNE_DATA_DIRECTORY", str(run.log_dir / "neptune"))
        import neptune

        self._folder = os.path.realpath(os.environ["NEPTUNE_DATA_DIRECTORY"])
        given = {
            "mode": os.environ.get("NEPTUNE_MODE") or "offline",
            "project": os.environ.get("NEPTUNE_PROJECT") or f"workspace/{run.project}",
            "name": run.title,
            "tags": list(run.tags),
            "capture_hardware_metrics": False,
            "capture_stderr": False,
            "capture_stdout": False,
            "capture_traceback": False,
            "git_ref": False,
            "source_files": [],
            **run.options,
        }
        if "with_id" not in given:
            given.setdefault("custom_run_id", run.identity(32))
        self.experiment = neptune.init_run(**given)
        self.experiment["run/project"] = run.project
        self.experiment["run/custom_id"] = run.identity(32)
        if run.group:
            self.experiment["sys/group_tags"].add([run.group])

    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Append numbers; those that are not finite, which Neptune drops, as texts beside."""
        for name, value in metrics.items():
            finite = math.isfinite(value)
            series = self.experiment[_path(name if finite else f"non_finite/{name}")]
            kept = value if finite else str(value)
            series.append(kept, step=step, timestamp=self.at.time_s)

    def log_params(self, params: Params) -> None:
        """Set them, lists and None as texts; and a JSON file with what they were."""
        for name, value in flattened(params).items():
            plain = isinstance(value, bool | int | float | str)
            self.experiment[_path(f"parameters/{name}")] = value if plain else json.dumps(value)
        super().log_params(params)

    def log_image(self, image: ImageRecord) -> None:
        """Append the picture to its series."""
        from neptune.types import File

        self.experiment[_path(image.name)].append(
            File.as_image(picture_of(image)),
            step=image.at.step,
            timestamp=image.at.time_s,
            description=image.caption or None,
        )

    def log_text(self, text: TextRecord) -> None:
        """Append a text to its series."""
        at = text.at
        self.experiment[_path(text.name)].append(text.text, step=at.step, timestamp=at.time_s)

    def log_alert(self, alert: Alert) -> None:
        """Append a text to the series of alerts."""
        said = f"{alert.level}: {alert.title}\n{alert.text}"
        at = alert.at
        self.experiment["alerts"].append(said, step=at.step, timestamp=at.time_s)

    def log_file(self, name: str, data: bytes, suffix: str, step: int) -> None:
        """Keep a file by name and step."""
        from neptune.types import File

        file = File.from_content(data, extension=suffix or "bin")
        self.experiment[_path(f"files/{name}/{step:09}")].upload(file)

    def log_artifact(self, name: str, path: Path) -> None:
        """Keep a file, or all of a directory."""
        from neptune.types import File

        for file, place in files_of(name, path).items():
            # By content: of a path Neptune reads the file when it sends it.
            content = place.read_bytes()
            kept = File.from_content(content, extension=place.suffix.removeprefix(".") or "bin")
            self.experiment[_path(f"artifacts/{file}")].upload(kept)

    def flush(self) -> None:
        """Have what was logged kept."""
        self.experiment.wait(disk_only=True)

    def finish(self, status: Status) -> None:
        """End the run; `sys/failed` says whether it did not finish."""
        self.experiment["status"] = status
        self.experiment["sys/failed"] = status != "finished"
        self.experiment.stop()

    def forget(self) -> None:
        """Keep a forked child from writing what the parent is about to write.

        Neptune itself closes its files in each, with what is in their buffers.
        """
        if self._folder:
            lead_nowhere(self._folder)


def _path(name: str) -> str:
    """Return a name as Neptune makes one of it, which leaves out empty parts."""
    return accepted_name(name, "/".join(filter(None, name.split("/"))), MOST_LETTERS)
