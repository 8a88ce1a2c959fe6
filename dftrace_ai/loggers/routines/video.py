"""Clips: frames over time, encoded here, so that no tracker's own encoder is needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from dftrace_ai.loggers.media.arrays import MOST_PIXELS, array_of, as_bytes, channels_last
from dftrace_ai.loggers.media.clips import gif_bytes, mp4_bytes
from dftrace_ai.loggers.records import VideoRecord
from dftrace_ai.loggers.routines.base import BaseLogger
from dftrace_ai.run.loaded_torch import loaded_torch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from dftrace_ai.loggers.records import Point, Record

__all__ = ["VideoLogger"]


class _Taken(NamedTuple):
    frames: NDArray[Any]
    first: bool
    fps: float


class VideoLogger(BaseLogger):
    """Logs clips as GIF or MP4."""

    key: ClassVar[str] = "video"
    packages: ClassVar[tuple[str, ...]] = ("numpy", "PIL")
    accepts: ClassVar[str] = (
        "T x H x W x C or T x C x H x W with 1 or 3 channels, floats from 0 to 1 or whole numbers "
        "from 0 to 255, or a mapping with `video` and `fps`"
    )

    def take(self, value: Any) -> Any:
        """Copy the frames as they are now."""
        fps = self.settings.fps
        if isinstance(value, Mapping):
            if "video" not in value:
                raise ValueError("a mapping without `video`")
            fps = float(value.get("fps", fps))
            value = value["video"]
        if not 0 < fps <= 1000:
            raise ValueError(f"{fps} frames a second")
        frames = array_of(value)
        if frames.ndim == 5 and frames.shape[0] == 1:
            frames = frames[0]  # a batch of one, as SummaryWriter takes it
        if frames.ndim != 4 or not 0 < frames.size <= MOST_PIXELS:
            raise ValueError(f"an array of shape {frames.shape}")
        torch = loaded_torch()
        first = torch is not None and isinstance(value, torch.Tensor)
        channels_last(frames, first=first)
        return _Taken(frames, first, fps)

    def records(self, name: str, taken: Any, at: Point) -> Iterable[Record]:
        """Encode a clip."""
        import numpy as np

        frames = as_bytes(channels_last(taken.frames, first=taken.first))
        frames = np.repeat(frames, 3, axis=3) if frames.shape[3] == 1 else frames[..., :3]
        encode = mp4_bytes if self.settings.video == "mp4" else gif_bytes
        count, height, width, _ = frames.shape
        data = encode(np.ascontiguousarray(frames), taken.fps)
        yield VideoRecord(name, data, self.settings.video, count, width, height, taken.fps, at)
