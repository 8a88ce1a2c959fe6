"""What a victim did, told by itself: a mapped file for each of its threads, which outlives it."""

from __future__ import annotations

import mmap
import os
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from time import perf_counter_ns

WORD = 8
HEAD = 4  # words before the first span: process, thread, and a number that says "complete"
FIELDS = 8  # words for each span
BEFORE_BEGIN, AFTER_BEGIN, BEFORE_END, AFTER_END, PARENT = range(5)
COMPLETE = 0xACC0
CAPACITY = 1_300
ANY_PARENT = (1 << 64) - 1


@dataclass(frozen=True)
class Place:
    """Where a victim works: its traces, its spools, and the accounts."""

    folder: Path

    @cached_property
    def out(self) -> Path:
        """The directory of the traces."""
        return self.folder / "out"

    @cached_property
    def spools(self) -> Path:
        """The directory of the spools."""
        return (self.folder / "spools").resolve()

    @cached_property
    def diaries(self) -> Path:
        """The directory of the accounts."""
        return (self.folder / "diaries").resolve()


class Diary:
    """One thread's account. A word is stored by one instruction, so none is ever half there."""

    def __init__(self, place: Place) -> None:
        self.name, handle = self._new_file(place.diaries)
        bytes_ = (HEAD + CAPACITY * FIELDS) * WORD
        os.truncate(handle, bytes_)
        self.words = memoryview(mmap.mmap(handle, bytes_)).cast("Q")
        os.close(handle)
        self.words[0] = os.getpid()
        self.words[1] = threading.get_native_id()
        self.words[2] = COMPLETE
        _open_diaries.append(self)

    @staticmethod
    def _new_file(folder: Path) -> tuple[str, int]:
        for serial in range(1000):
            name = f"{os.getpid()}-{threading.get_native_id()}-{serial}"
            try:
                handle = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            except FileExistsError:
                continue
            return name, handle
        raise RuntimeError("a thread with a thousand diaries")

    def forget(self) -> None:
        """From here on nothing reaches the file, which is another process's."""
        self.words = memoryview(bytearray(len(self.words) * WORD)).cast("Q")


_open_diaries: list[Diary] = []


def forget_the_parents() -> None:
    """In a forked child: what it does from here on is not in its parent's accounts."""
    for diary in _open_diaries:
        diary.forget()
    _open_diaries.clear()


os.register_at_fork(after_in_child=forget_the_parents)


def note_time(place: Place, what: str) -> None:
    """Write down that this process was here, and when."""
    path = place.diaries / f"{what}.{os.getpid()}"
    new = path.with_name(f"{path.name}.new")
    new.write_text(str(perf_counter_ns()), encoding="ascii")
    new.rename(path)


@dataclass(frozen=True)
class Told:
    """What one thread told of one span; a time is 0 where the thread never came."""

    number: int
    before_begin: int
    after_begin: int
    before_end: int
    after_end: int
    parent: int | None  # number of the enclosing span; -1 for whichever was open


@dataclass(frozen=True)
class Account:
    """What one thread told, and when recording ended in its process, where that was in order."""

    name: str
    pid: int
    tid: int
    spans: list[Told]
    closing: float
    closed: float


def read_accounts(place: Place, *, spans: int = CAPACITY) -> list[Account]:
    """What the threads of all processes of a victim told, up to `spans` of each."""
    paths = [path for path in sorted(place.diaries.iterdir()) if "." not in path.name]
    found = [_read(path, place, spans) for path in paths]
    return [account for account in found if account is not None]


def _read(path: Path, place: Place, spans: int) -> Account | None:
    with path.open("rb") as file:
        data = file.read((HEAD + spans * FIELDS) * WORD)
    if len(data) < HEAD * WORD:
        return None
    pid, tid, complete = struct.unpack_from("3Q", data)
    if complete != COMPLETE:
        return None
    times = [_time(place, what, pid) for what in ("closing", "closed")]
    return Account(path.name, pid, tid, list(_spans(data)), *times)


def _spans(data: bytes) -> Iterator[Told]:
    for number, words in enumerate(struct.iter_unpack(f"{FIELDS}Q", data[HEAD * WORD :])):
        if not words[BEFORE_BEGIN]:
            return
        above = words[PARENT]
        parent = -1 if above == ANY_PARENT else above - 1 if above else None
        yield Told(number, *words[:PARENT], parent)


def _time(place: Place, what: str, pid: int) -> float:
    try:
        return int((place.diaries / f"{what}.{pid}").read_text(encoding="ascii"))
    except FileNotFoundError:
        return float("inf")


def processes_with_spans(place: Place) -> set[int]:
    """The processes of which some thread has told of the end of one of its first spans."""
    first = read_accounts(place, spans=8)
    return {account.pid for account in first if any(span.after_end for span in account.spans)}
