"""Pictures and clips as PNG, GIF and MP4, so that no tracker's own encoder is needed."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from dftrace_ai.loggers.records import ImageRecord, VideoRecord
from dftrace_ai.loggers.routines.base import BaseLogger
from dftrace_ai.run.late_import import loaded_torch

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

    from dftrace_ai.loggers.records import Point, Record

MOST_PIXELS = 1 << 28
CHANNELS = (1, 3, 4)
GAP = 2
MASK_SHARE = 0.5
# Colours that are told apart also by those who see few of them (Okabe and Ito, 2008).
MASK_COLORS = (
    *((230, 159, 0), (86, 180, 233), (0, 158, 115), (240, 228, 66)),
    *((0, 114, 178), (213, 94, 0), (204, 121, 167)),
)
# What one palette for the whole clip is made from.
PALETTE_PIXELS = 1 << 18
# Of one frame of a GIF: shorter ones are shown for longer by players, and longer ones have no room.
LEAST_HUNDREDTHS, MOST_HUNDREDTHS = 2, 0xFFFF
# Those of television are whole numbers by this one, such as 30000/1001.
MOST_DENOMINATOR = 1001


def array_of(value: Any) -> NDArray[Any]:
    """Copy a tensor, an array, a picture or nested lists into an array of numbers.

    It may be on any device and of any real dtype; bfloat16 becomes float32, and of a sharded tensor
    it is what this process holds. What holds no real numbers, or is freed, is a TypeError.
    """
    import numpy as np

    torch = loaded_torch()
    if torch is not None and isinstance(value, torch.Tensor):
        from dftrace_ai.inspect.numerics.memory import local_part

        # Not as it is: of memory that was freed even the copy ends the process.
        tensor = local_part(value)
        if tensor.is_complex():
            raise TypeError(f"a tensor of {tensor.dtype}")
        if tensor.is_floating_point() and tensor.dtype not in (torch.float32, torch.float64):
            tensor = tensor.float()
        return tensor.to("cpu", copy=True).numpy()
    array = np.array(value)
    if array.dtype.kind not in "buif":
        raise TypeError(
            f"an array of {array.dtype}" if array.shape else f"a {type(value).__name__}"
        )
    return array


def channels_last(array: NDArray[Any], *, first: bool) -> NDArray[Any]:
    """Return pictures with their channels, of which there are 1, 3 or 4, as the last axis.

    `first` says which is meant where the third last and the last axis would fit.
    """
    import numpy as np

    may_be_first, may_be_last = array.shape[-3] in CHANNELS, array.shape[-1] in CHANNELS
    if may_be_first and (first or not may_be_last):
        return np.moveaxis(array, -3, -1)
    if may_be_last:
        return array
    raise ValueError(f"an array of shape {array.shape}")


def as_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Return floats from 0 to 1, integers from 0 to 255, or booleans as values from 0 to 255.

    What lies outside becomes the nearest of them, what is not a number 0.
    """
    import numpy as np

    if array.dtype == np.uint8:
        return array
    if array.dtype == np.bool_:
        return array.astype(np.uint8) * 255
    if array.dtype.kind == "f":
        whole = np.nan_to_num(array.astype(np.float64), nan=0.0, posinf=1.0, neginf=0.0)
        array = np.rint(np.clip(whole, 0.0, 1.0) * 255.0)
    pixels: NDArray[np.uint8] = np.clip(array, 0, 255).astype(np.uint8)
    return pixels


class _Picture(NamedTuple):
    array: NDArray[Any]
    first: bool
    mask: NDArray[Any] | None
    caption: str


class ImageLogger(BaseLogger):
    """Logs pictures; several of one size become a grid."""

    key: ClassVar[str] = "image"
    packages: ClassVar[tuple[str, ...]] = ("numpy", "PIL")
    accepts: ClassVar[str] = (
        "H x W, H x W x C or C x H x W with 1, 3 or 4 channels, N of them for a grid, floats from "
        "0 to 1 or whole numbers from 0 to 255, a picture of Pillow, or a mapping with `image` "
        "and `mask` (H x W, whole numbers) or `caption`"
    )

    def take(self, value: Any) -> Any:
        """Copy a picture as it is now."""
        mask, caption = None, ""
        if isinstance(value, Mapping):
            if "image" not in value:
                raise ValueError("a mapping without `image`")
            mask = None if value.get("mask") is None else array_of(value["mask"])
            caption = str(value.get("caption", ""))
            value = value["image"]
        if isinstance(value, list | tuple) and value and hasattr(value[0], "shape"):
            import numpy as np

            array = np.stack([array_of(one) for one in value])
            value = value[0]
        else:
            if hasattr(value, "convert") and getattr(value, "mode", "RGB") not in ("RGB", "RGBA"):
                value = value.convert("L" if value.mode in ("1", "L", "I", "F") else "RGBA")
            array = array_of(value)
        torch = loaded_torch()
        first = torch is not None and isinstance(value, torch.Tensor)
        taken = _Picture(array, first, mask, caption)
        _drawn(taken, check_only=True)
        return taken

    def records(self, name: str, taken: Any, at: Point) -> Iterable[Record]:
        """Make a PNG file."""
        picture = _drawn(taken)
        height, width, channels = picture.shape
        yield ImageRecord(name, _png_bytes(picture), width, height, channels, taken.caption, at)


def _drawn(taken: _Picture, *, check_only: bool = False) -> NDArray[Any]:
    if check_only:
        # Its shape only: of a stride of 0 nothing is copied.
        import numpy as np

        hollow = np.broadcast_to(np.uint8(0), taken.array.shape)
        picture = _pixels_of(hollow, first=taken.first) if hollow.ndim < 4 else hollow
        if hollow.ndim >= 4:
            _pixels_of(hollow[:1], first=taken.first)
        if taken.mask is not None and hollow.ndim < 4:
            _masked(np.asarray(picture[:1, :1]), taken.mask[:1, :1])
            if taken.mask.shape != picture.shape[:2]:
                raise ValueError(f"a mask of shape {taken.mask.shape}")
        return picture
    picture = _pixels_of(taken.array, first=taken.first)
    return picture if taken.mask is None else _masked(picture, taken.mask)


def _pixels_of(array: NDArray[Any], *, first: bool) -> NDArray[np.uint8]:
    """Return one picture, H x W x C; several become a grid.

    `first` says whether the channels come first where both would fit.
    """
    if array.size == 0 or array.size > MOST_PIXELS or not 2 <= array.ndim <= 4:
        raise ValueError(f"an array of shape {array.shape}")
    array = array[:, :, None] if array.ndim == 2 else channels_last(array, first=first)
    pixels = as_bytes(array)
    return _grid(pixels) if pixels.ndim == 4 else pixels


def _grid(pictures: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Lay out N x H x W x C pictures row by row, in about as many rows as columns."""
    import numpy as np

    count, height, width, channels = pictures.shape
    if count == 1:
        only: NDArray[np.uint8] = pictures[0]
        return only
    columns = math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    shape = rows * (height + GAP) - GAP, columns * (width + GAP) - GAP, channels
    sheet = np.zeros(shape, np.uint8)
    for index, picture in enumerate(pictures):
        top, left = (index // columns) * (height + GAP), (index % columns) * (width + GAP)
        sheet[top : top + height, left : left + width] = picture
    return sheet


def _masked(picture: NDArray[np.uint8], mask: NDArray[Any]) -> NDArray[np.uint8]:
    """Return a picture in RGB with the classes of a mask, where it is not 0, in colours over it."""
    import numpy as np

    if mask.shape != picture.shape[:2] or mask.dtype.kind not in "bui":
        raise ValueError(f"a mask of {mask.dtype} and shape {mask.shape}")
    rgb = picture[:, :, :3] if picture.shape[2] >= 3 else np.repeat(picture[:, :, :1], 3, axis=2)
    colors = np.array(MASK_COLORS, np.float64)[(mask.astype(np.int64) - 1) % len(MASK_COLORS)]
    mixed = rgb * (1 - MASK_SHARE) + colors * MASK_SHARE
    return np.where((mask != 0)[:, :, None], np.rint(mixed).astype(np.uint8), rgb)


def _png_bytes(picture: NDArray[np.uint8]) -> bytes:
    """Encode a picture, H x W x C of 1 (grey), 3 (RGB) or 4 (RGBA) channels, as PNG."""
    from PIL import Image

    file = io.BytesIO()
    plain = picture[:, :, 0] if picture.shape[2] == 1 else picture
    Image.fromarray(plain).save(file, "PNG", compress_level=3)
    return file.getvalue()


class _Clip(NamedTuple):
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
        return _Clip(frames, first, fps)

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
