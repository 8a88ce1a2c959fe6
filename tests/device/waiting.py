"""A block in which nothing waits for a GPU, or torch raises."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def nothing_may_wait() -> Iterator[None]:
    """Torch raises in this block where the host would wait for the GPU."""
    import torch

    try:
        with warnings.catch_warnings():
            # It calls this a prototype, which does not detect all waits yet.
            warnings.simplefilter("ignore")
            torch.cuda.set_sync_debug_mode("error")
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")
