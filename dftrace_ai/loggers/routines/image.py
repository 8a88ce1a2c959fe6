"""Pictures: tensors, arrays, pictures of Pillow, as PNG."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from dftrace_ai.loggers.media.arrays import array_of
from dftrace_ai.loggers.media.pictures import masked, pixels_of, png_bytes
from dftrace_ai.loggers.records import ImageRecord
from dftrace_ai.loggers.routines.base import BaseLogger
from dftrace_ai.run.loaded_torch import loaded_torch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from dftrace_ai.loggers.records import Point, Record

__all__ = ["ImageLogger"]


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
        _pixels(taken, check_only=True)
        return taken

    def records(self, name: str, taken: Any, at: Point) -> Iterable[Record]:
        """Make a PNG file."""
        picture = _pixels(taken)
        height, width, channels = picture.shape
        yield ImageRecord(name, png_bytes(picture), width, height, channels, taken.caption, at)


def _pixels(taken: _Taken, *, check_only: bool = False) -> NDArray[Any]:
    if check_only:
        # Its shape only: of a stride of 0 nothing is copied.
        import numpy as np

        hollow = np.broadcast_to(np.uint8(0), taken.array.shape)
        picture = pixels_of(hollow, first=taken.first) if hollow.ndim < 4 else hollow
        if hollow.ndim >= 4:
            pixels_of(hollow[:1], first=taken.first)
        if taken.mask is not None and hollow.ndim < 4:
            masked(np.asarray(picture[:1, :1]), taken.mask[:1, :1])
            if taken.mask.shape != picture.shape[:2]:
                raise ValueError(f"a mask of shape {taken.mask.shape}")
        return picture
    picture = pixels_of(taken.array, first=taken.first)
    return picture if taken.mask is None else masked(picture, taken.mask)
