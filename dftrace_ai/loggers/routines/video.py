"""Clips: frames as GIF by Pillow or MP4 by PyAV, so that no tracker's own encoder is needed."""

from __future__ import annotations

import io
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from dftrace_ai.loggers.records import VideoRecord
from dftrace_ai.loggers.routines.arrays import MOST_PIXELS, array_of, as_bytes, channels_last
from dftrace_ai.loggers.routines.base import BaseLogger
from dftrace_ai.run.loaded_torch import loaded_torch

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

    from dftrace_ai.loggers.records import Point, Record

__all__ = ["VideoLogger", "gif_bytes"]

# What one palette for the whole clip is made from.
PALETTE_PIXELS = 1 << 18
# Of one frame of a GIF: shorter ones are shown for longer by players, and longer ones have no room.
LEAST_HUNDREDTHS, MOST_HUNDREDTHS = 2, 0xFFFF
# Those of television are whole numbers by this one, such as 30000/1001.
MOST_DENOMINATOR = 1001


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
        encode = _mp4_bytes if self.settings.video == "mp4" else gif_bytes
        count, height, width, _ = frames.shape
        data = encode(np.ascontiguousarray(frames), taken.fps)
        yield VideoRecord(name, data, self.settings.video, count, width, height, taken.fps, at)


def gif_bytes(frames: NDArray[np.uint8], fps: float) -> bytes:
    """Encode frames, T x H x W x 3, as GIF, with one palette for all."""
    import numpy as np
    from PIL import Image

    pixels = frames.reshape(-1, 3)
    sample = pixels[:: max(1, len(pixels) // PALETTE_PIXELS)]
    side = int(np.ceil(np.sqrt(len(sample))))
    square = np.resize(sample, (side, side, 3)).astype(np.uint8)
    palette = Image.fromarray(square).quantize(256, method=Image.Quantize.MEDIANCUT)
    pictures = [
        Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE)
        for frame in frames
    ]
    file = io.BytesIO()
    hundredths = min(max(LEAST_HUNDREDTHS, round(100 / fps)), MOST_HUNDREDTHS)
    pictures[0].save(
        file,
        "GIF",
        save_all=True,
        append_images=pictures[1:],
        duration=hundredths * 10,
        loop=0,
        optimize=False,
        disposal=1,
    )
    return file.getvalue()


def _mp4_bytes(frames: NDArray[np.uint8], fps: float) -> bytes:
    """Encode frames, T x H x W x 3, as MP4 (H.264, 4:2:0), padded to an even width and height."""
    import av
    import numpy as np

    height, width = frames.shape[1:3]
    even = np.pad(frames, ((0, 0), (0, height % 2), (0, width % 2), (0, 0)), mode="edge")
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=_rate(fps))
        stream.height, stream.width = even.shape[1:3]
        stream.pix_fmt = "yuv420p"
        for frame in even:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())
    return file.getvalue()


def _rate(fps: float) -> Fraction:
    """Return frames a second as a fraction of small numbers, which is not 0 for slow ones."""
    if fps >= 1:
        return Fraction(fps).limit_denominator(MOST_DENOMINATOR)
    return 1 / Fraction(1 / fps).limit_denominator(MOST_DENOMINATOR)
