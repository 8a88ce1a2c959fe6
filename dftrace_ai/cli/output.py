"""Writing to the standard output where the exit status must say what was found."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console, RenderableType

__all__ = ["print_all", "write_out"]


def write_out(text: str) -> None:
    """Write text, all at once; to nobody where the reader has seen enough.

    Raises:
        OSError: it cannot be written.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # What is still buffered has no reader any more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_all(console: Console, parts: Iterable[RenderableType]) -> None:
    """Print parts as `write_out` does: rich and click would end the program with a failure."""
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    write_out(captured.get())
