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

from dftrace_ai import system
from dftrace_ai._version import __version__
from dftrace_ai.spare_folders import SpareFolder, is_let_go
from dftrace_ai.ui.answers import Card

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dftrace_ai.trace_format.json_types import Json
    from dftrace_ai.ui.answers import HeatHead

CARD: Final = "card.json"
FIGURES: Final = "figures.json"
READ: Final = "run.json"
METRICS: Final = "metrics.json"
NO_ROOM: Final = "there is no room left on the disk to keep what was read of it"
PICTURES: Final = "pictures.json"
# What a wide window is shown first: the steps of the whole run, and its map of ranks.
WHOLE_STEPS: Final = "whole.json"
WHOLE_HEAT: Final = "whole.heat"
MAP: Final = "tensors-{}.json"
# What is being made of a run, by who holds a lock on the folder of all that is kept of the run.
HALF: Final = ".part-"
HALVES: Final = ".*"

# Of the form in which it is kept; other versions of the package may find other things, too.
FORMAT: Final = 5
OLD_S: Final = 60 * 24 * 3600.0


def key_of(files: Iterable[tuple[str, int, int]], thresholds: Iterable[str] = ()) -> str:
    """Return what a run is known by: names, sizes and changes of its files; how it is judged."""
    told = repr((FORMAT, __version__, sorted(files), *thresholds)).encode(
        "utf-8", "surrogateescape"
    )
    return hashlib.blake2b(told, digest_size=10).hexdigest()


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that is there whole or not at all."""
    half = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:  # noqa: PTH123
            file.write(data)
        half.replace(path)
    finally:
        half.unlink(missing_ok=True)


def packed_map(head: HeatHead, cells: bytes) -> bytes:
    """Return a head in JSON, its length before it, and the cells of a map behind it."""
    said = json.dumps(head, separators=(",", ":")).encode("ascii")
    return len(said).to_bytes(4, "little") + said + cells


def parted_map(packed: bytes) -> tuple[HeatHead, bytes]:
    """Return what `packed_map` has put together; a ValueError where it is not whole."""
    end = 4 + int.from_bytes(packed[:4], "little")
    head: HeatHead = json.loads(packed[4:end])
    return head, packed[end:]


class Kept:
    """The directory in which it is kept: that of the user, or one that ends with the process."""

    def __init__(self) -> None:
        self._spare: SpareFolder | None = None
        found = _of_user()
        if found is None or not _is_ours(found):
            self._spare = SpareFolder()
            found = self._spare.path
        self.path = found
        self._cards: dict[Path, tuple[int, str, Card]] = {}
        # Where each run is kept: of those for which there is no room in that of the user elsewhere.
        self._homes: dict[Path, Path] = {}

    def of_run(self, folder: Path) -> Path:
        """Return where what is kept of a run lies, by the run's folder."""
        home = self._homes.get(folder)
        if home is None:
            name = hashlib.blake2b(os.fsencode(folder), digest_size=12).hexdigest()
            home = self._homes[folder] = self.path / name
        return home

    def move(self, folder: Path) -> bool:
        """Keep a run for as long as the process lives, elsewhere; False where it is so already."""
        home = self.of_run(folder)
        try:
            self._spare = self._spare or SpareFolder()
        except OSError:
            return False
        self._homes[folder] = self._spare.path / home.name
        return self._homes[folder] != home

    def card(self, folder: Path) -> tuple[str, Card] | None:
        """Return the card of a run, and the key of the files that it is of."""
        home = self.of_run(folder)
        path = os.path.join(home, CARD)  # a Path is slow, and this is for each row
        try:
            changed = os.stat(path).st_mtime_ns  # noqa: PTH116
            known = self._cards.get(home)
            if known is None or known[0] != changed:
                found = json.loads(Path(path).read_bytes())
                key, card = found["key"], found["card"]
                if not isinstance(key, str) or Card.__required_keys__ - card.keys():
                    return None
                known = self._cards[home] = changed, key, card
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None  # none yet, or of another form
        return known[1:]

    def read(self, folder: Path, name: str) -> tuple[bytes, Json]:
        """Return a file that is kept of a run, and the JSON that it holds; a LookupError without.

        What is not whole is forgotten with its card, so that it is made anew.
        """
        known = self.card(folder)
        if known is None:
            raise LookupError(name)
        try:
            data = (self.of_run(folder) / known[0] / name).read_bytes()
            found: Json = json.loads(data)
        except (OSError, ValueError) as error:
            self.forget(folder, known[0])
            raise LookupError(name) from error
        return data, found

    def map_of_ranks(self, folder: Path, asked: tuple[str, float, float, int]) -> bytes | None:
        """Return the map that is kept if it is what is asked for: measure, from, to, columns."""
        known = self.card(folder)
        if known is None:
            return None
        try:
            packed = (self.of_run(folder) / known[0] / WHOLE_HEAT).read_bytes()
            head, cells = parted_map(packed)
            is_it = (head["what"], head["a"], head["b"], head["cols"]) == asked
            return packed if is_it and len(cells) == len(head["rows"]) * head["cols"] else None
        except (OSError, ValueError, TypeError, KeyError):
            return None  # there is none, or it is not whole: it can be made

    def forget(self, folder: Path, key: str) -> None:
        """Let a run be read again, if what is kept of it is still of that key."""
        known = self.card(folder)
        if known is not None and known[0] == key:
            (self.of_run(folder) / CARD).unlink(missing_ok=True)

    def forget_old(self) -> None:
        """Remove what was made long ago, and what readers have left that were killed."""
        for run in self.path.iterdir():
            with suppress(OSError):  # it is gone
                if time.time() - (run / CARD).stat().st_mtime > OLD_S:
                    rmtree(run, ignore_errors=True)
            if any(run.glob(HALVES)) and is_let_go(run):
                for half in run.glob(HALVES):
                    with suppress(OSError):
                        rmtree(half) if half.is_dir() else half.unlink()


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
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != system.user() or info.st_mode & 0o022:
            return False
    return not own.st_mode & 0o077
