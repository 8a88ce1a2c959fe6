"""Arrays of what a training has: tensors, NumPy arrays, pictures of Pillow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dftrace_ai.run.loaded_torch import loaded_torch

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["MOST_PIXELS", "array_of", "as_bytes", "channels_last"]

MOST_PIXELS = 1 << 28
CHANNELS = (1, 3, 4)


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
