"""`open`, and the files that it returns: what they read and write is recorded.

A file is Python's own, of its own class. What its lowest part, the raw file, has for reading,
writing and closing is laid over in that one object; so what is read through a buffer shows as the
reads that the system is really asked for.
"""

from __future__ import annotations

import io
import os
import sys
import weakref
from itertools import permutations
from typing import TYPE_CHECKING, Any

from dftrace_ai.annotation.built_in.stand_ins import stand_in
from dftrace_ai.integrations.wrapping.checkpoints import is_in_checkpoint

if TYPE_CHECKING:
    from dftrace_ai.integrations.files.known_files import KnownFiles
    from dftrace_ai.integrations.files.operations import KnownFile, Opening

__all__ = ["recorded_open"]

# As `open` accepts them for files without a buffer.
UNBUFFERED_MODES = frozenset(
    "".join(order)
    for letters in ("rb", "wb", "ab", "xb", "rb+", "wb+", "ab+", "xb+")
    for order in permutations(letters)
)
HOME = "io"
READING = ("readinto", "readall", "read")
WRITING = ("write",)


def recorded_open(original: Any, files: KnownFiles) -> Any:
    """Return a function in the place of `open`.

    Args:
        original: `open`.
        files: those that are looked at.
    """
    operations, is_elsewhere = files.operations, files.places.is_elsewhere

    def before(
        file: Any = None,
        mode: Any = "r",
        buffering: Any = -1,
        encoding: Any = None,
        errors: Any = None,
        newline: Any = None,
        closefd: Any = True,
        opener: Any = None,
        *_: Any,
        **unknown: Any,
    ) -> Any:
        if type(file) is str and opener is None and is_elsewhere(file) and not is_in_checkpoint():
            return None
        # What somebody's own opener opens is another file.
        meant, path = files.meant(file if opener is None else None)
        if not meant:
            return None
        is_raw = (
            type(buffering) is int
            and not buffering
            and type(mode) is str
            and mode in UNBUFFERED_MODES
        )
        if not is_raw or unknown or (encoding, errors, newline) != (None, None, None):
            return None, operations.opens(path, known=type(file) is int)
        return _without_buffer, operations.opens(path, known=type(file) is int)

    def after(begun: tuple[Any, Opening], result: Any, error: Any) -> None:
        opening = begun[1]
        if error is not None:
            operations.failed(opening, error)
            return
        raw = result if isinstance(result, io.FileIO) else getattr(result, "buffer", result).raw
        file = None
        try:
            file = files.opened(raw.fileno(), opening)
        finally:
            operations.opened(opening, file)
        if file is not None:
            record = _Record(raw, file, files)
            if isinstance(raw, _RawFile):
                raw._record = record
            else:
                record.lay_over(raw)

    return stand_in(original, HOME, before, after)


class _Record:
    """A raw file's own methods, recorded.

    The file has them, so they have no hold on it: who drops a file without closing it closes it.
    """

    __slots__ = ("_file", "_files", "_raw")

    # At the end of the interpreter modules may be empty when the last files are closed.
    _is_over = staticmethod(sys.is_finalizing)
    _of_class = io.FileIO

    def __init__(self, raw: io.FileIO, file: KnownFile, files: KnownFiles) -> None:
        self._raw = weakref.ref(raw)
        self._file = file
        self._files = files

    def lay_over(self, raw: io.FileIO) -> None:
        """Give a raw file these methods."""
        names = (
            *(READING if raw.readable() else ()),
            *(WRITING if raw.writable() else ()),
            "close",
        )
        for name in names:
            setattr(raw, name, getattr(self, name))

    def readinto(self, buffer: Any, /) -> Any:
        return self._moves("read", self._of_class.readinto, buffer)

    def readall(self) -> Any:
        return self._moves("read", self._of_class.readall)

    def read(self, size: Any = -1, /) -> Any:
        return self._moves("read", self._of_class.read, size)

    def write(self, data: Any, /) -> Any:
        return self._moves("write", self._of_class.write, data)

    def close(self) -> None:
        raw, files, file = self._there(), self._files, self._file
        if raw.closed or not raw.closefd or self._is_over():
            self._of_class.close(raw)
            return
        number, begun = raw.fileno(), files.operations.begin("close", file)
        if files.get(number) is file:
            del files[number]
        files.operations.around(begun, self._of_class.close, raw)

    def _there(self) -> io.FileIO:
        raw = self._raw()
        if raw is None:
            raise ValueError("I/O operation on closed file")
        return raw

    def _moves(self, name: Any, move: Any, *args: Any) -> Any:
        raw = self._there()
        if raw.closed or self._is_over():
            return move(raw, *args)
        return self._files.operations.moves(name, self._file, raw.fileno(), move, raw, *args)


class _RawFile(io.FileIO):
    """A file without a buffer: who has one of its methods has the file."""

    _record: _Record | None = None

    def readinto(self, buffer: Any, /) -> Any:
        return super().readinto(buffer) if self._record is None else self._record.readinto(buffer)

    def readall(self) -> Any:
        return super().readall() if self._record is None else self._record.readall()

    def read(self, size: Any = -1, /) -> Any:
        return super().read(size) if self._record is None else self._record.read(size)

    def write(self, data: Any, /) -> Any:
        return super().write(data) if self._record is None else self._record.write(data)

    def close(self) -> None:
        if self._record is None:
            super().close()
        else:
            self._record.close()

    def __reduce_ex__(self, protocol: Any, /) -> Any:
        raise TypeError("cannot pickle '_io.FileIO' object")


# It is shown by the name of Python's.
_RawFile.__name__ = _RawFile.__qualname__ = "FileIO"
_RawFile.__module__ = "_io"


def _without_buffer(
    file: Any,
    mode: str,
    buffering: int = 0,
    encoding: None = None,
    errors: None = None,
    newline: None = None,
    closefd: Any = True,
    opener: Any = None,
) -> io.FileIO:
    named = os.fspath(file) if isinstance(file, (str, bytes, os.PathLike)) else file
    return _RawFile(named, mode, closefd, opener)
