"""The spools that belong to a directory, by the markers that lie in it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dftrace_ai.spools.search import find_spools, spool_of_marker
from dftrace_ai.trace_format.file_names import (
    MARKER_SUFFIX,
    TRACE_SUFFIXES,
    marker_base,
    run_of_spool,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["MarkedSpool", "spools_below"]


@dataclass(frozen=True)
class MarkedSpool:
    """A marker and what it says.

    Attributes:
        marker: its path; that of the spool where it has no marker.
        spool: path of the spool that it names, on the host that the process runs on;
            empty when it names none.
        fault: why the spool must be left alone; empty for one that may be read.
        place: boot of the machine and container in which its process runs, where a marker
            says so.
    """

    marker: Path
    spool: str
    fault: str = ""
    place: str = ""

    @property
    def stem(self) -> str:
        """What stands in its name before the process: stem of the trace, ``-``, host."""
        name = marker_base(self.marker.name)
        # Hosts have numbers in their names, too.
        _, _, pid, *_ = [*self.spool.rpartition("/")[2].split("-"), "", "", ""]
        before, found, behind = name.rpartition(f"-{pid}")
        if pid and found and re.fullmatch(r"(-\d+)?", behind):
            return before
        return re.sub(r"-\d+$", "", name)

    @property
    def run(self) -> str:
        """The first 16 hexadecimal digits of the run, from the spool's name."""
        return run_of_spool(Path(self.spool).name)

    def traces(self) -> Iterator[Path]:
        """The names that the trace beside it may have."""
        for suffix in TRACE_SUFFIXES:
            yield Path(marker_base(str(self.marker)) + suffix)


def spools_below(directory: str | os.PathLike[str]) -> list[MarkedSpool]:
    """Find the spools that markers in a directory name, to any depth, and those without one.

    Args:
        directory: where traces are written.

    Returns:
        What each of them says, sorted by path. One that goes away meanwhile is left
        out: its process has just finished. A directory below that cannot be listed has
        a fault that says so.

    Raises:
        OSError: the directory cannot be read.
    """
    found: list[MarkedSpool] = []
    closed: list[OSError] = []
    for folder, _, names in os.walk(directory, onerror=closed.append):
        for name in names:
            if name.endswith(MARKER_SUFFIX):
                spool = spool_of_marker(Path(folder, name))
                if spool and not spool.begun and not spool.complete:
                    marker = Path(folder, name)
                    found.append(MarkedSpool(marker, spool.path, spool.fault, spool.place))
    for error in closed:
        if error.filename == os.fspath(directory):
            raise error
        # What a training removes meanwhile, such as an old checkpoint, is nobody's concern.
        if not isinstance(error, FileNotFoundError):
            fault = f"cannot be listed: {error.strerror}"
            found.append(MarkedSpool(Path(error.filename), "", fault))
    named = {spool.spool for spool in found}
    # Where the disk was full, or a process was killed early, there is no marker.
    others = [one for one in find_spools(directory) if one.path and one.path not in named]
    found += [MarkedSpool(Path(one.path), one.path) for one in others if not one.complete]
    return sorted(found, key=lambda spool: spool.marker)
