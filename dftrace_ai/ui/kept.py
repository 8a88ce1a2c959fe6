"""What was made of runs is kept in a directory of the user's alone, by the files that it is of.

It lies in the user's cache and not beside the traces: these may be another's, who could put there
what he likes, and whoever copies traces copies no cache.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Final

from dftrace_ai._version import __version__
from dftrace_ai.spare_folders import SpareFolder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dftrace_ai.ui.answers import Card

CARD: Final = "card.json"
FIGURES: Final = "figures.json"
READ: Final = "run.json"
METRICS: Final = "metrics.json"
PICTURES: Final = "pictures.json"

# Of the form in which it is kept; other versions of the package may find other things, too.
FORMAT: Final = 1
OLD_S: Final = 60 * 24 * 3600.0


def key_of(files: Iterable[tuple[str, int, int]]) -> str:
    """Return what a run's files are known by: their names, sizes, and when they were changed."""
    told = repr((FORMAT, __version__, sorted(files))).encode("utf-8", "surrogateescape")
    return hashlib.blake2b(told, digest_size=10).hexdigest()


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that is there whole or not at all."""
    half = path.with_name(f".{path.name}.{os.getpid()}")
    with open(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:  # noqa: PTH123
        file.write(data)
    half.replace(path)


class Kept:
    """The directory in which it is kept: that of the user, or one that ends with the process."""

    def __init__(self) -> None:
        found = _of_user()
        if found is None or not _is_ours(found):
            self._spare = SpareFolder()
            found = self._spare.path
        self.path = found
        self._cards: dict[str, tuple[int, str, Card]] = {}

    def of_run(self, folder: Path) -> Path:
        """Return where what is kept of a run lies, by the run's folder."""
        name = hashlib.blake2b(os.fsencode(folder), digest_size=12).hexdigest()
        return self.path / name

    def card(self, folder: Path) -> tuple[str, Card] | None:
        """Return the card of a run, and the key of the files that it is of."""
        path = self.of_run(folder) / CARD
        try:
            changed = path.stat().st_mtime_ns
            known = self._cards.get(path.parent.name)
            if known is None or known[0] != changed:
                found = json.loads(path.read_bytes())
                known = self._cards[path.parent.name] = changed, found["key"], found["card"]
        except (OSError, ValueError, KeyError, TypeError):
            return None  # none yet, or of another form
        return known[1:]

    def forget_old(self) -> None:
        """Remove what was made long ago."""
        for card in self.path.glob(f"*/{CARD}"):
            with suppress(OSError):  # it is gone
                if time.time() - card.stat().st_mtime > OLD_S:
                    rmtree(card.parent, ignore_errors=True)


def _of_user() -> Path | None:
    place = os.environ.get("XDG_CACHE_HOME", "")
    try:
        home = Path(place) if place.startswith("/") else Path.home() / ".cache"
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = home / "dftrace-ai" / "ui"
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except (OSError, RuntimeError):  # there is no home, or nothing can be written there
        return None
    return folder


def _is_ours(folder: Path) -> bool:
    """Return whether nobody else can write there; what others may have made is never read."""
    try:
        own, above = folder.lstat(), folder.parent.lstat()
    except OSError:
        return False
    for info in (own, above):
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o022:
            return False
    return not own.st_mode & 0o077
