"""The methods of a logger by the names that users of other loggers know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dftrace_ai.loggers.records import LEVELS, Alert, Artifact, ParamsRecord, TextRecord
from dftrace_ai.loggers.routines.hyperparameters import plain_params
from dftrace_ai.masking import masked_values
from dftrace_ai.run import emitting

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from dftrace_ai.loggers.log import Log
    from dftrace_ai.loggers.records import Level

__all__ = ["FamiliarMethods"]


class FamiliarMethods:
    """Logs single values at any time, under the names of Lightning, SummaryWriter and wandb.

    What is logged so need not be configured as a tracked variable; it reaches all interfaces.
    Without a step it belongs to the last iteration; of numbers without any see `log` and
    `log_metrics`. What cannot be logged is told once, and nothing is raised.
    """

    _log: Log

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Log numbers.

        Args:
            metrics: numbers, or tensors of one element, by name; mappings of them, whose names
                have slashes between.
            step: number of the iteration. Without, that of the last iteration or call of `log`;
                where there is neither, one more than the last of these names.
        """
        self._log.log_numbers(metrics, step)

    def log(self, values: Mapping[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Log numbers, as wandb and accelerate have it.

        Args:
            values: numbers, or mappings of them, by name.
            step: number of the iteration. Without, that of the last iteration; where `log_iter`
                counts none, each call has a number of its own: one more than that of the last.
            kwargs: what trackers take besides, which is not looked at.

        Example::

            loggers.log({"loss": 0.5, "eval": {"accuracy": 0.9}})  # eval/accuracy
        """
        self._log.log_numbers(values, step, counts=True)

    def add_scalar(self, tag: str, scalar_value: Any, global_step: int | None = None) -> None:
        """Log a number, as SummaryWriter has it."""
        self.log_metrics({tag: scalar_value}, global_step)

    def add_scalars(
        self, main_tag: str, tag_scalar_dict: Mapping[str, Any], global_step: int | None = None
    ) -> None:
        """Log numbers that belong together, as SummaryWriter has it."""
        self._log.log_numbers(tag_scalar_dict, global_step, f"{main_tag}/")

    def log_scalar(self, name: str, value: float, iteration: int, **kwargs: Any) -> None:
        """Log a number, as `dftrace_ai.inspect.initialize(statistics_logger=...)` has it."""
        self.log_metrics({name: value}, iteration)

    def log_hyperparams(self, params: Any, metrics: Mapping[str, Any] | None = None) -> None:
        """Log hyper-parameters, as Lightning has it.

        Args:
            params: a mapping, dataclass, namespace, pydantic model or object of OmegaConf.
            metrics: numbers that belong to them, if any.
        """

        def made() -> ParamsRecord:
            values = plain_params(params)
            if any(entry.config.mask_secrets for entry in self._log.entries):
                values = masked_values(values)
            named = values if isinstance(values, dict) else {"hparams": values}
            return ParamsRecord(named, self._log.point(None))

        self._log.log_made("log_hyperparams", made)
        if metrics is not None:
            self.log_metrics(metrics)

    def add_hparams(self, hparam_dict: Any, metric_dict: Mapping[str, Any]) -> None:
        """Log hyper-parameters and what came of them, as SummaryWriter has it."""
        self.log_hyperparams(hparam_dict, metric_dict)

    def log_histogram(self, name: str, values: Any, step: int | None = None) -> None:
        """Log how values are distributed; see `HistogramLogger`."""
        self._log.log_by("hist", name, values, step)

    def add_histogram(self, tag: str, values: Any, global_step: int | None = None) -> None:
        """Log how values are distributed, as SummaryWriter has it."""
        self.log_histogram(tag, values, global_step)

    def log_image(self, key: str, images: Any, step: int | None = None) -> None:
        """Log a picture, or a grid of several; see `ImageLogger`."""
        self._log.log_by("image", key, images, step)

    def add_image(self, tag: str, img_tensor: Any, global_step: int | None = None) -> None:
        """Log a picture, as SummaryWriter has it."""
        self.log_image(tag, img_tensor, global_step)

    def add_images(self, tag: str, img_tensor: Any, global_step: int | None = None) -> None:
        """Log a grid of pictures, as SummaryWriter has it."""
        self.log_image(tag, img_tensor, global_step)

    def log_video(self, key: str, video: Any, step: int | None = None, fps: float = 10.0) -> None:
        """Log a clip; see `VideoLogger`."""
        self._log.log_by("video", key, {"video": video, "fps": fps}, step)

    def add_video(
        self, tag: str, vid_tensor: Any, global_step: int | None = None, fps: float = 4
    ) -> None:
        """Log a clip, as SummaryWriter has it."""
        self.log_video(tag, vid_tensor, global_step, fps)

    def log_mesh(self, key: str, mesh: Any, step: int | None = None) -> None:
        """Log a mesh; see `MeshLogger`."""
        self._log.log_by("mesh", key, mesh, step)

    def add_mesh(
        self,
        tag: str,
        vertices: Any,
        colors: Any = None,
        faces: Any = None,
        config_dict: Any = None,
        global_step: int | None = None,
    ) -> None:
        """Log a mesh, as SummaryWriter has it."""
        mesh = {"vertices": vertices, "colors": colors, "faces": faces}
        self.log_mesh(tag, mesh, global_step)

    def log_text(self, key: str, text: str, step: int | None = None) -> None:
        """Log a text."""
        self._log.log_made(
            "log_text", lambda: TextRecord(str(key), str(text), self._log.point(step))
        )

    def add_text(self, tag: str, text_string: str, global_step: int | None = None) -> None:
        """Log a text, as SummaryWriter has it."""
        self.log_text(tag, text_string, global_step)

    def log_artifact(self, path: str | os.PathLike[str], name: str | None = None) -> None:
        """Keep a file or directory with the run; it is read when it is delivered.

        Args:
            path: where it is.
            name: what it is called in the run; by default its own name.
        """
        from pathlib import Path

        def made() -> Artifact:
            kept = Path(path).absolute()
            called = kept.name if name is None or name == "" else str(name)
            return Artifact(called, str(kept), self._log.point(None))

        self._log.log_made("log_artifact", made)

    def alert(self, title: str, text: str = "", level: Level = "info") -> None:
        """Tell that somebody should look, in every tracker and in the trace.

        Args:
            title: in a few words.
            text: in more.
            level: ``"info"``, ``"warning"`` or ``"error"``; what is none of these is told once,
                and is a warning.
        """

        def made() -> Alert:
            known = self._log.known("level", level, LEVELS, "warning")
            said = Alert(str(title), str(text), known, self._log.point(None))
            if not any(entry.name == "trace" for entry in self._log.entries):
                args = {"text": said.text, "severity": known}
                emitting.instant(f"alert: {said.title}", args, category="log")
            return said

        self._log.log_made("alert", made)

    def flush(self) -> None:
        """Wait until what was logged so far is delivered, within the configured limit."""
        self._log.wait()
