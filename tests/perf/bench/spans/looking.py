"""A reader that looks at traced processes as often as it can, as `dftrace top` does now and then."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dftrace_ai import _native

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WINDOW_S = 5.0


@contextmanager
def looking_into(directory: Path) -> Iterator[list[int]]:
    """Look, for the length of a block, into the spools of whatever records into a directory.

    Yields:
        The numbers of records that were seen, a look each.
    """
    stop = threading.Event()
    seen: list[int] = []

    def look() -> None:
        while not stop.is_set():
            for marker in directory.glob("*.spool-at"):
                try:
                    told = _native.look_into(marker.read_text().splitlines()[0], WINDOW_S)
                except (OSError, IndexError):
                    continue  # it is only being written, or the process has ended
                seen.append(sum(thread["records"] for thread in told["threads"]))

    reader = threading.Thread(target=look)
    reader.start()
    try:
        yield seen
    finally:
        stop.set()
        reader.join()
