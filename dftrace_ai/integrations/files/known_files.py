"""Which files are open and looked at, by their numbers."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

from dftrace_ai.integrations.files.operations import KnownFile
from dftrace_ai.integrations.wrapping.checkpoints import is_in_checkpoint

if TYPE_CHECKING:
    from dftrace_ai.integrations.files.operations import Opening, Operations
    from dftrace_ai.integrations.files.places import Places

__all__ = ["KnownFiles"]

# Tests of programs put another in its place.
FSTAT: Final = os.fstat
OUR_OWN: Final = "dftrace_ai."
# They open files for whoever calls them.
FOR_OTHERS: Final = frozenset({"pathlib", "pathlib._local", "tempfile", "os", "codecs", "gzip"})


class KnownFiles(dict[int, KnownFile]):
    """Files that are looked at, by number."""

    def __init__(self, places: Places, operations: Operations) -> None:
        super().__init__()
        self.places = places
        self.operations = operations

    def meant(self, file: object) -> tuple[bool, str | None]:
        """Return whether a file may be one to look at, and its path where that is known by now."""
        operations = self.operations
        if not operations.is_live or operations.is_opening:
            return False, None
        kind = type(file)
        if kind is str or kind is bytes or issubclass(kind, PurePath):
            text = os.fsdecode(file)  # type: ignore[arg-type]
            path = self.places.shown(text)
            if path is None and is_in_checkpoint():
                path = os.path.abspath(text)  # noqa: PTH100 - a link is told of as it is named
            return path is not None and not _is_ours(), path
        # What somebody's own kind of path says is asked by `open` alone.
        return not _is_ours(), None

    def opened(self, number: int, opening: Opening) -> KnownFile | None:
        """Return a file that has been opened and is to be looked at."""
        try:
            facts = FSTAT(number)
        except OSError:
            return None
        if not stat.S_ISREG(facts.st_mode):
            return None
        identity = facts.st_dev, facts.st_ino
        known = self.get(number)
        if opening.known and known is not None and known.identity == identity:
            return known
        path = opening.path or self._path_of(number)
        if path is None:
            return None
        file = self[number] = KnownFile(path, identity)
        return file

    def of(self, number: int) -> KnownFile | None:
        """Return the file that a number means, if it is looked at.

        A number may mean another file by now: libraries close files that they were given.
        """
        known = self.get(number)
        if known is None:
            return None
        try:
            facts = FSTAT(number)
        except OSError:
            return None
        if (facts.st_dev, facts.st_ino) == known.identity:
            return known
        self.pop(number, None)
        return None

    def _path_of(self, number: int) -> str | None:
        try:
            path = os.readlink(f"/proc/self/fd/{number}")  # noqa: PTH115 - twice as quick
        except OSError:
            return None
        if path[:1] != "/":
            return None
        found = self.places.shown(path)
        return path if found is None and is_in_checkpoint() else found


def _is_ours() -> bool:
    # Behind this, who asks, and what hears of the opening, which is called without a frame.
    frame: Any = sys._getframe(2).f_back
    while frame is not None and frame.f_globals.get("__name__") in FOR_OTHERS:
        frame = frame.f_back
    return frame is not None and str(frame.f_globals.get("__name__")).startswith(OUR_OWN)
