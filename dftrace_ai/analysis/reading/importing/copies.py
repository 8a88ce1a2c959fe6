"""Copies of traces that cannot be read where they are: in memory while small, else in TMPDIR."""

from __future__ import annotations

import os
import tempfile
import weakref
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dftrace_ai.analysis.reading.trace_file import OPEN_FILES
from dftrace_ai.errors import DftraceError
from dftrace_ai.spare_folders import SpareFolder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

    from typing_extensions import Self

    from dftrace_ai.analysis.reading.trace_file import Codec

# Of all copies together: a job has profiles by the hundred. Each that is in memory holds a
# descriptor, of which a process has few.
MOST_MEMORY_BYTES = 64 * 1024 * 1024
MOST_IN_MEMORY: Final = 64

# Each is a frame of its own, so that threads share the reading.
FRAME_BYTES: Final = 1024 * 1024


class Copied:
    """A copy, which can be read at `path` for as long as something refers to this."""

    def __init__(self, path: Path, codec: Codec, folder: SpareFolder | None = None) -> None:
        self.path = path
        self.codec = codec
        self.folder = folder


@dataclass
class _Kept:
    """The copies of this process: what they hold in memory, and the directory of the others."""

    bytes: int = 0
    count: int = 0
    files: int = 0
    folder: weakref.ref[SpareFolder] | None = None

    def in_memory(self, text: bytearray) -> Copied | None:
        """Return a copy that has no name; None where there are no such files, or too many."""
        if self.count >= MOST_IN_MEMORY or not OPEN_FILES.is_dir():
            return None
        with suppress(OSError, AttributeError):
            descriptor = os.memfd_create("dftrace-copy")
            copied = Copied(OPEN_FILES / str(descriptor), "plain")
            self.bytes += len(text)
            self.count += 1
            weakref.finalize(copied, self._let_go, descriptor, len(text))
            left = memoryview(text)
            while left:
                left = left[os.write(descriptor, left) :]
            return copied
        return None

    def _let_go(self, descriptor: int, size: int) -> None:
        os.close(descriptor)
        self.bytes -= size
        self.count -= 1

    def new_file(self) -> tuple[Path, SpareFolder]:
        """Return a name in the directory of copies, which all share, and that."""
        folder = self.folder() if self.folder else None
        if folder is None:
            folder = SpareFolder()
            self.folder = weakref.ref(folder)
        self.files += 1
        return folder.path / str(self.files), folder


_KEPT: Final = _Kept()


class CopiedText:
    """Takes a text, cut anywhere; `copied` is the copy when its ``with`` block has ended.

    What is more than the memory for copies becomes a file: zstd frames of whole lines, or the text
    as it is where it `is_packed`. `packed_bytes` are those that it takes there, or would.
    """

    copied: Copied
    is_packed = False

    def __init__(self) -> None:
        self._held = bytearray()
        self._file: tuple[Path, SpareFolder, BinaryIO] | None = None
        self.packed_bytes = 0

    def add(self, text: bytes) -> None:
        """Add text; a DftraceError where there is no room for it."""
        self._held += text
        if self.is_packed:
            self.packed_bytes += len(text)
        if self._file is None and len(self._held) > MOST_MEMORY_BYTES - _KEPT.bytes:
            self._file = self._open()
        while self._file and len(self._held) >= FRAME_BYTES:
            # A line longer than that has to be in frames that end within it.
            size = self._held.rfind(b"\n", 0, FRAME_BYTES) + 1 or FRAME_BYTES
            self._write(self._file[2], size)

    def _open(self) -> tuple[Path, SpareFolder, BinaryIO]:
        with _told():
            path, folder = _KEPT.new_file()
            return path, folder, path.open("xb")

    def _write(self, out: BinaryIO, size: int) -> None:
        import zstandard

        text = bytes(self._held[:size])
        del self._held[:size]
        if text and not self.is_packed:
            text = zstandard.ZstdCompressor(level=1).compress(text)
            self.packed_bytes += len(text)
        with _told():
            out.write(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *raised: object) -> None:
        try:
            if kind is None:
                in_memory = None if self._file else _KEPT.in_memory(self._held)
                self.copied = in_memory or self._filed()
        finally:
            if self._file:
                self._file[2].close()

    def _filed(self) -> Copied:
        self._file = path, folder, out = self._file or self._open()
        self._write(out, len(self._held))
        with _told():
            out.flush()
        copied = Copied(path, "zstd", folder)
        weakref.finalize(copied, _remove, path, os.getpid())
        return copied


def _remove(path: Path, owner: int) -> None:
    # A forked child that ends has the object, too.
    if os.getpid() == owner:
        path.unlink(missing_ok=True)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DftraceError(
            f"temporary files cannot be written to {tempfile.gettempdir()}: {error.strerror}; "
            "choose another place with TMPDIR"
        ) from error
