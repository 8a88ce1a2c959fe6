"""Clips: frames as GIF by Pillow, or as MP4 by PyAV."""

from __future__ import annotations

import io
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["gif_bytes", "mp4_bytes"]

# What one palette for the whole clip is made from.
PALETTE_PIXELS = 1 << 18
# Of one frame of a GIF: shorter ones are shown for longer by players, and longer ones have no room.
LEAST_HUNDREDTHS, MOST_HUNDREDTHS = 2, 0xFFFF
# Those of television are whole numbers by this one, such as 30000/1001.
MOST_DENOMINATOR = 1001


def gif_bytes(frames: NDArray[np.uint8], fps: float) -> bytes:
    """Encode a clip as GIF, with one palette for all frames.

    Args:
        frames: T x H x W x 3.
        fps: frames a second; GIF knows from 2 to 65535 hundredths of a second for a frame.
    """
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


def mp4_bytes(frames: NDArray[np.uint8], fps: float) -> bytes:
    """Encode a clip as MP4 (H.264, 4:2:0), padded to an even width and height.

    Args:
        frames: T x H x W x 3.
        fps: frames a second.

    Raises:
        ImportError: PyAV is not installed.
    """
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
