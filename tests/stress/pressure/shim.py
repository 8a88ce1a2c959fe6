"""The words that steer shim.c, from the test and from the program it is loaded into."""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path

# In the order of `enum word`.
WORDS = (
    "writes_hang",
    "server_away",
    "hanging",
    "write_errno",
    "truncate_fails",
    "create_errno",
    "trace_room",
    "spool_room",
    "realtime_ns",
    "boottime_ns",
    "monotonic_ns",
    "clocks_stand",
    "drain_fails_at",
    "drain_allocated",
    "sampler_too",
    "stolen_names",
    "marker_kills",
    "no_tmpfile",
    "spool_kills",
    "unlink_kills",
    "renames_hang",
    "kept_within_us",
)
UNLIMITED = -1


class Shim:
    """The words, as attributes: `shim.writes_hang = 1`.

    Example::

        shim = Shim.create(tmp_path / "words")
        shim.trace_room = 4096
        subprocess.run(program, env={"LD_PRELOAD": library, "PRESSURE_SHIM": str(shim.path)})
    """

    path: Path
    _map: mmap.mmap

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        """Map the words of `path`, or those of the program that this runs in."""
        self.__dict__["path"] = Path(path if path is not None else os.environ["PRESSURE_SHIM"])
        with self.path.open("r+b") as file:
            self.__dict__["_map"] = mmap.mmap(file.fileno(), 8 * len(WORDS))

    @classmethod
    def create(cls, path: Path) -> Shim:
        """Make a file in which nothing is out of order."""
        path.write_bytes(bytes(8 * len(WORDS)))
        shim = cls(path)
        shim.trace_room = shim.spool_room = UNLIMITED
        return shim

    def __getattr__(self, word: str) -> int:
        value: int = struct.unpack_from("q", self._map, 8 * WORDS.index(word))[0]
        return value

    def __setattr__(self, word: str, value: int) -> None:
        struct.pack_into("q", self._map, 8 * WORDS.index(word), value)
