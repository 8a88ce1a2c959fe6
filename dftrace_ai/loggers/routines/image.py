"""Pictures: tensors, arrays, pictures of Pillow, as PNG."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from dftrace_ai.loggers.records import ImageRecord
from dftrace_ai.loggers.routines.arrays import MOST_PIXELS, array_of, as_bytes, channels_last
from dftrace_ai.loggers.routines.base import BaseLogger
from dftrace_ai.run.loaded_torch import loaded_torch

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

    from dftrace_ai.loggers.records import Point, Record

__all__ = ["ImageLogger"]

GAP = 2
MASK_SHARE = 0.5
# Colours that are told apart also by those who see few of them (Okabe and Ito, 2008).
MASK_COLORS = (
    *((230, 159, 0), (86, 180, 233), (0, 158, 115), (240, 228, 66)),
    *((0, 114, 178), (213, 94, 0), (204, 121, 167)),
)


class _Taken(NamedTuple):
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
        taken = _Taken(array, first, mask, caption)
        _drawn(taken, check_only=True)
        return taken

    def records(self, name: str, taken: Any, at: Point) -> Iterable[Record]:
        """Make a PNG file."""
        picture = _drawn(taken)
        height, width, channels = picture.shape
        yield ImageRecord(name, _png_bytes(picture), width, height, channels, taken.caption, at)


def _drawn(taken: _Taken, *, check_only: bool = False) -> NDArray[Any]:
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
