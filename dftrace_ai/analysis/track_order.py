"""The order of the tracks of a process: its main thread, then others, each with its lanes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import TypeAlias

# Linux gives threads no number from here on.
FIRST_LANE: Final = 0x40000000

# Between the name of a thread and what lies on a lane of it.
OF_THREAD: Final = " · "

# What torch calls the threads that run the backward pass of a device.
BACKWARD: Final = re.compile(r"pt_autograd_\d+", re.ASCII)

# What `auto` knows only afterwards: it measures the tracks below. Of further threads that train
# they have a number.
PROGRESS: Final = re.compile(r"(epochs|evaluations|steps)( [0-9]+)?")

# So many nobody looks through; others stay where the viewer puts them.
MOST_TRACKS: Final = 100_000

# Longer ones are no numbers that anybody counts by.
DIGITS: Final = re.compile(r"(\d{1,18})", re.ASCII)

_Key: TypeAlias = "tuple[int, list[str | int], int]"


def natural_key(text: str) -> list[str | int]:
    """Return by what texts are sorted so that their numbers count as such."""
    pieces: list[str | int] = list(DIGITS.split(text))
    pieces[1::2] = [int(number) for number in pieces[1::2]]
    return pieces


def tracks_in_order(pid: int, names: Mapping[int, str]) -> list[int]:
    """Return the tracks of a process in their natural order: main thread, others, their lanes."""
    threads = sorted((tid for tid in names if tid < FIRST_LANE), key=lambda tid: (tid != pid, tid))
    # Of threads with one name, the lanes stand below the first.
    owners: dict[str, int] = {}
    for tid in threads:
        owners.setdefault(names[tid], tid)

    def key(tid: int) -> tuple[_Key, bool, list[str | int], int]:
        name = names[tid]
        owner, found, _ = name.rpartition(OF_THREAD)
        if tid >= FIRST_LANE and found and owner in owners:
            above = owners[owner]
            return place(above), True, natural_key(name), tid
        return place(tid), False, [], tid

    def place(tid: int) -> _Key:
        name = names[tid]
        if tid == pid:
            group = 0
        elif tid >= FIRST_LANE:
            group = 1 if PROGRESS.fullmatch(name) else 4
        else:
            group = 2 if BACKWARD.fullmatch(name) else 3
        return group, natural_key(name), tid

    return sorted(names, key=key)


class NamedTracks:
    """Takes the names of tracks from lines, and orders them in viewers that go by it."""

    # Perfetto does from v53 on; before, it puts the main thread first, and others by their numbers.

    def __init__(self) -> None:
        self._names: dict[int, dict[int, str]] = {}
        self._count = 0
        self._ordered: set[int] = set()

    def add(self, text: bytes) -> None:
        """Take in a line, bare; all but those that name or order a track are passed over."""
        if b"thread_" not in text:
            return
        event = orjson.loads(text)
        pid, tid, args = event.get("pid"), event.get("tid"), event.get("args")
        if type(pid) is not int or type(tid) is not int or not isinstance(args, dict):
            return
        if event.get("name") == "thread_sort_index":
            self._ordered.add(pid)
        elif event.get("name") == "thread_name" and isinstance(args.get("name"), str):
            names = self._names.setdefault(pid, {})
            if tid in names or self._count < MOST_TRACKS:
                self._count += tid not in names
                names[tid] = args["name"]

    def order(self) -> Iterator[bytes]:
        """Yield a line for each track of the processes that have several."""
        for pid, names in self._names.items():
            if len(names) < 2 or pid in self._ordered:
                continue
            for place, tid in enumerate(tracks_in_order(pid, names), 1):
                line = {"name": "thread_sort_index", "cat": "dftrace", "pid": pid, "tid": tid}
                yield orjson.dumps({**line, "ph": "M", "args": {"sort_index": place}})
