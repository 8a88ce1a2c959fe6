"""The interface to TensorBoard: event files, written by its own writer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar

from dftrace_ai.loggers.names import flattened
from dftrace_ai.loggers.trackers.base import BaseLogint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dftrace_ai.loggers import records

RGB = 3


class TensorBoardLogint(BaseLogint):
    """Writes event files below the run's directory, to be opened by ``tensorboard --logdir``."""

    name: ClassVar[str] = "tensorboard"
    packages: ClassVar[tuple[str, ...]] = ("tensorboard", "torch")
    own_process: ClassVar[bool] = False

    def open(self) -> None:
        """Open a writer; ``options`` go to `SummaryWriter`."""
        from torch.utils.tensorboard import SummaryWriter

        folder = self.run.log_dir / "tensorboard"
        if self.run.all_ranks:
            folder /= f"rank{self.run.rank}"
        self.experiment = SummaryWriter(**{"log_dir": str(folder), **self.run.options})

    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Write scalars, all of an iteration in one event: each costs more than what is in it."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
        self.experiment._get_file_writer().add_summary(Summary(value=values), step)

    def log_params(self, params: records.Params) -> None:
        """Write a text with all, and those that TensorBoard knows the types of as its own."""
        whole = json.dumps(params, indent=2, default=str)
        self.experiment.add_text("hparams", f"```json\n{whole}\n```", 0)
        flat = {
            name: value if isinstance(value, bool | int | float | str) else str(value)
            for name, value in flattened(params).items()
        }
        self.experiment.add_hparams(flat, {}, run_name=".")

    def log_histogram(self, histogram: records.HistogramRecord) -> None:
        """Write counts and edges as they are."""
        self.experiment.add_histogram_raw(
            histogram.name,
            histogram.minimum,
            histogram.maximum,
            sum(histogram.counts),
            histogram.total,
            histogram.total_squares,
            histogram.edges[1:],
            histogram.counts,
            histogram.at.step,
        )

    def log_image(self, image: records.ImageRecord) -> None:
        """Write the PNG file."""
        self._add_encoded(image.name, image.png, image, image.channels)

    def log_video(self, video: records.VideoRecord) -> None:
        """Write a GIF as it is, which TensorBoard plays; of others their bytes as a text."""
        if video.suffix == "gif":
            self._add_encoded(video.name, video.data, video, RGB)
        else:
            super().log_video(video)

    def log_mesh(self, mesh: records.MeshRecord) -> None:
        """Write vertices, faces and colours."""
        import torch

        faces = torch.from_numpy(mesh.faces)[None] if len(mesh.faces) else None
        colors = None if mesh.colors is None else torch.from_numpy(mesh.colors)[None]
        vertices = torch.from_numpy(mesh.vertices)[None]
        self.experiment.add_mesh(
            mesh.name, vertices, colors=colors, faces=faces, global_step=mesh.at.step
        )

    def log_text(self, text: records.TextRecord) -> None:
        """Write a text."""
        self.experiment.add_text(text.name, text.text, text.at.step)

    def log_file(self, name: str, data: bytes, suffix: str, step: int) -> None:
        """Keep the file beside, and write its path: TensorBoard has no files."""
        from dftrace_ai.loggers.trackers.file_paths import kept_file

        path = kept_file(
            self.run.log_dir / "tensorboard" / "files", name, suffix, step, data, self.run.file_mode
        )
        self.experiment.add_text(name, str(path), step)

    def flush(self) -> None:
        """Have what was written on disk."""
        self.experiment.flush()

    def finish(self, status: records.Status) -> None:
        """Write how the run ended, and close the files."""
        self.experiment.add_text("status", status, 0)
        self.experiment.close()

    def _add_encoded(self, name: str, data: bytes, picture: Any, channels: int) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        image = Summary.Image(
            height=picture.height,
            width=picture.width,
            colorspace=channels,
            encoded_image_string=data,
        )
        summary = Summary(value=[Summary.Value(tag=name, image=image)])
        self.experiment._get_file_writer().add_summary(summary, picture.at.step)
