"""The spools that belong to a directory, by the markers that lie in it."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dftrace_ai.spool_search import MARKER_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["MarkedSpool", "find_spools"]

MARKER_BYTES = 8192


@dataclass(frozen=True)
class MarkedSpool:
    """A marker and what it says.

    Attributes:
        marker: its path.
        spool: path of the spool that it names, on the host that the process runs on;
            empty when it names none.
    """

    marker: Path
    spool: str

    @property
    def stem(self) -> str:
        """What stands in its name before the process: stem of the trace, ``-``, host."""
        name = self.marker.name.removesuffix(MARKER_SUFFIX)
        # Hosts have numbers in their names, too.
        _, _, pid, *_ = [*self.spool.rpartition("/")[2].split("-"), "", "", ""]
        before, found, behind = name.rpartition(f"-{pid}")
        if pid and found and re.fullmatch(r"(-\d+)?", behind):
            return before
        return re.sub(r"-\d+$", "", name)

    @property
    def run(self) -> str:
        """The first 16 hexadecimal digits of the run, from the spool's name."""
        return Path(self.spool).name.removeprefix("dftrace-").partition("-")[0]

    def traces(self) -> Iterator[Path]:
        """The names that the trace beside it may have."""
        base = str(self.marker).removesuffix(MARKER_SUFFIX)
        for suffix in (".pfw.gz", ".pfw", ".pfw.zst"):
            yield Path(base + suffix)


def find_spools(directory: str | os.PathLike[str]) -> list[MarkedSpool]:
    """Find the markers of a directory, to any depth.

    Args:
        directory: where traces are written.

    Returns:
        What each of them says, sorted by path. One that goes away meanwhile is left
        out: its process has just finished.

    Raises:
        OSError: the directory, or a marker in it, cannot be read.
    """
    found = []
    for folder, _, names in os.walk(directory, onerror=_raise):
        for name in names:
            if name.endswith(MARKER_SUFFIX):
                marker = Path(folder, name)
                try:
                    found.append(MarkedSpool(marker, _spool_named_by(marker)))
                except FileNotFoundError:
                    continue
    return sorted(found, key=lambda spool: spool.marker)


def _raise(error: OSError) -> None:
    raise error


def _spool_named_by(marker: Path) -> str:
    # Not blocking: a pipe of that name would wait for its other end.
    descriptor = os.open(marker, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return ""
        spool = os.fsdecode(file.read(MARKER_BYTES).partition(b"\n")[0].strip())
    name = Path(spool).name
    named = name.startswith("dftrace-") and name.endswith(".spool") and "\0" not in spool
    return spool if named else ""
