"""Pictures: laid out in grids, with masks on them, as PNG files."""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING, Any

from dftrace_ai.loggers.media.arrays import MOST_PIXELS, as_bytes, channels_last

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["grid", "masked", "pixels_of", "png_bytes"]

GAP = 2
MASK_SHARE = 0.5
# Colours that are told apart also by those who see few of them (Okabe and Ito, 2008).
MASK_COLORS = (
    *((230, 159, 0), (86, 180, 233), (0, 158, 115), (240, 228, 66)),
    *((0, 114, 178), (213, 94, 0), (204, 121, 167)),
)


def pixels_of(array: NDArray[Any], *, first: bool) -> NDArray[np.uint8]:
    """Return one picture, H x W x C; several become a grid.

    Args:
        array: H x W, H x W x C, C x H x W, or N of the last two.
        first: whether the channels come first where both would fit.

    Raises:
        ValueError: of no such shape.

    Example::

        pixels_of(np.zeros((8, 3, 32, 32)), first=True).shape  # a grid of 3 x 3 pictures
    """
    if array.size == 0 or array.size > MOST_PIXELS or not 2 <= array.ndim <= 4:
        raise ValueError(f"an array of shape {array.shape}")
    array = array[:, :, None] if array.ndim == 2 else channels_last(array, first=first)
    pixels = as_bytes(array)
    return grid(pixels) if pixels.ndim == 4 else pixels


def grid(pictures: NDArray[np.uint8]) -> NDArray[np.uint8]:
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


def masked(picture: NDArray[np.uint8], mask: NDArray[Any]) -> NDArray[np.uint8]:
    """Return a picture in RGB with the classes of a mask in colours over it.

    Args:
        picture: H x W x C.
        mask: H x W, whole numbers or booleans; 0 is what is left as it is.

    Raises:
        ValueError: the mask is of another size or dtype.
    """
    import numpy as np

    if mask.shape != picture.shape[:2] or mask.dtype.kind not in "bui":
        raise ValueError(f"a mask of {mask.dtype} and shape {mask.shape}")
    rgb = picture[:, :, :3] if picture.shape[2] >= 3 else np.repeat(picture[:, :, :1], 3, axis=2)
    colors = np.array(MASK_COLORS, np.float64)[(mask.astype(np.int64) - 1) % len(MASK_COLORS)]
    mixed = rgb * (1 - MASK_SHARE) + colors * MASK_SHARE
    return np.where((mask != 0)[:, :, None], np.rint(mixed).astype(np.uint8), rgb)


def png_bytes(picture: NDArray[np.uint8]) -> bytes:
    """Encode a picture as PNG.

    Args:
        picture: H x W x C of 1 (grey), 3 (RGB) or 4 (RGBA) channels.
    """
    from PIL import Image

    file = io.BytesIO()
    plain = picture[:, :, 0] if picture.shape[2] == 1 else picture
    Image.fromarray(plain).save(file, "PNG", compress_level=3)
    return file.getvalue()
