"""The part `io`: what is read and written by way of Python's files and `os`.

Loaded late, as a part by its name in `registry`, and by that for loaders.
"""

from __future__ import annotations

import functools
import io
import logging
import os
import sys
import weakref
from itertools import permutations
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any

from dftrace_ai._native import stand_in
from dftrace_ai.integrations.checkpoints import is_in_checkpoint
from dftrace_ai.integrations.file_operations import (
    KnownFile,
    KnownFiles,
    Operations,
    Places,
    bytes_of,
    place_of,
)
from dftrace_ai.integrations.swapping import NotInThisVersion, Swaps, needed, once_imported
from dftrace_ai.wording import tell

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

    from dftrace_ai.integrations.file_operations import Name, Opening
    from dftrace_ai.integrations.options import AutoOptions


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
    """Return a function in the place of `open`."""
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
            and not unknown
            and (encoding, errors, newline) == (None, None, None)
        )
        return _without_buffer if is_raw else None, operations.opens(path, known=type(file) is int)

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
    """A raw file's own methods, recorded."""

    __slots__ = ("_file", "_files", "_raw")

    # At the end of the interpreter modules may be empty when the last files are closed.
    _is_over = staticmethod(sys.is_finalizing)
    _of_class = io.FileIO

    def __init__(self, raw: io.FileIO, file: KnownFile, files: KnownFiles) -> None:
        # The file has this, which has no hold on it: who drops it without closing it closes it.
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


def recorded_fromfile(original: Any, files: KnownFiles) -> Any:
    """Return a function in the place of `numpy.fromfile`; `numpy.load` calls it, too."""
    operations = files.operations

    def before(file: Any = None, *_: Any, **__: Any) -> Any:
        if isinstance(file, (str, bytes, os.PathLike)):
            meant, path = files.meant(file)
            known = KnownFile(path, (0, 0)) if meant and path is not None else None
            number = -1
        else:
            try:
                number = file.fileno()
            except (AttributeError, OSError):  # numpy says so, too
                return None
            known = files.of(number)
        begun = None if known is None else operations.begin("read", known)
        return None if begun is None else (None, begun, number)

    def after(token: Any, result: Any, error: Any) -> None:
        _, begun, number = token
        count = 0 if error else bytes_of(result)
        offset = max(0, place_of(number) - count) if number >= 0 else 0
        operations.end(begun, error, {"bytes": count, "offset": offset})

    return stand_in(original, "numpy", before, after)


# By name: what it is, and which argument behind the number says where; None where the file knows.
OF_NUMBERS: dict[str, tuple[Name, int | None]] = {
    "read": ("read", None),
    "readv": ("read", None),
    "pread": ("read", 1),
    "preadv": ("read", 1),
    "write": ("write", None),
    "writev": ("write", None),
    "pwrite": ("write", 1),
    "pwritev": ("write", 1),
    "sendfile": ("write", None),
    "fsync": ("sync", None),
    "fdatasync": ("sync", None),
    "close": ("close", None),
}


def recorded_os_open(original: Any, files: KnownFiles) -> Any:
    """Return a function in the place of `os.open`."""
    operations = files.operations

    def before(path: Any = None, *_: Any, dir_fd: Any = None, **__: Any) -> Any:
        # What lies below a folder that is open is known by its number alone.
        meant, shown = files.meant(path if dir_fd is None else None)
        return (None, operations.opens(shown)) if meant else None

    def after(begun: Any, result: Any, error: Any) -> None:
        opening = begun[1]
        if error is not None:
            operations.failed(opening, error)
        else:
            file = None
            try:
                file = files.opened(result, opening)
            finally:
                operations.opened(opening, file)

    return stand_in(original, "posix", before, after)


def recorded_number(name: str, original: Any, files: KnownFiles) -> Any:
    """Return a function in the place of one of `OF_NUMBERS`."""
    operations = files.operations
    kind, place = OF_NUMBERS[name]

    def before(number: int, *given: Any, **_: Any) -> Any:
        file = files.of(number)
        if file is None:
            return None
        if kind == "close":
            files.pop(number, None)
        begun = operations.begin(kind, file)
        return None if begun is None else (None, begun, number, given)

    def after(token: Any, result: Any, error: Any) -> None:
        _, begun, number, given = token
        if kind in ("close", "sync"):
            operations.end(begun, error)
            return
        count = 0 if error else bytes_of(result)
        offset = given[place] if place is not None else max(0, place_of(number) - count)
        operations.end(begun, error, {"bytes": count, "offset": offset})

    return stand_in(original, "posix", before, after, files)


# On a writer: what has been begun with its file.
ATTRIBUTE = "_dftrace_writing"


def recorded_opening(files: KnownFiles, original: Any) -> Any:
    """Return what opens such a writer, recorded; what is written is one ``write`` from then on."""
    operations = files.operations

    @functools.wraps(original)
    def opens(writer: Any, name: Any) -> None:
        # A path with other letters is opened by Python, and recorded there.
        written_in_c = str(name).isascii()
        meant, path = files.meant(name) if written_in_c else (False, None)
        if not meant or path is None:
            original(writer, name)
            return
        opening = operations.opens(path)
        try:
            original(writer, name)
        except BaseException as error:
            operations.failed(opening, type(error))
            raise
        file = KnownFile(path, (0, 0))
        operations.opened(opening, file)
        setattr(writer, ATTRIBUTE, (file, operations.begin("write", file)))

    return opens


def recorded_closing(files: KnownFiles, original: Any) -> Any:
    """Return what closes such a writer; how much was written is known behind it."""
    operations = files.operations

    @functools.wraps(original)
    def closes(writer: Any, *raised: Any) -> Any:
        file, begun = vars(writer).pop(ATTRIBUTE, (None, None))
        if file is None:
            return original(writer, *raised)
        try:
            return original(writer, *raised)
        finally:
            if begun is not None:
                operations.end(begun, raised[0] if raised else None, _written(writer.name))
            operations.around(operations.begin("close", file), lambda: None)

    return closes


def _written(path: str) -> dict[str, int]:
    try:
        return {"bytes": os.stat(path).st_size, "offset": 0}  # noqa: PTH116 - given as text
    except OSError:  # somebody has taken it away again
        return {"bytes": 0, "offset": 0}


# Where the same functions stand, and are the same to who compares or pickles them. What imports
# modules goes by `_io.open`.
HOMES_OF_OPEN = ("builtins", "io")
HOMES_OF_NUMBERS = ("os", "posix")
# What functions of `os` can do.
ABLE = (os.supports_dir_fd, os.supports_fd, os.supports_effective_ids, os.supports_follow_symlinks)

_operations: Operations | None = None


def install(options: AutoOptions) -> Callable[[], None]:
    """Record what is read and written in the folders that the options name, and by checkpoints."""
    if not options.folders:
        tell(
            logging.WARNING,
            "auto(io=True) records the files of checkpoints alone: data_dir, which names the "
            "folders of the data, is not set",
        )
    return record_files(options)


def record_files(options: AutoOptions) -> Callable[[], None]:
    """Record files in this process; where that is done already, it is done by these options."""
    global _operations
    if _operations is not None:
        _operations.options = options
        return lambda: None
    operations = Operations(options)
    files = KnownFiles(Places(options.folders), operations)
    with Swaps() as swaps:
        _put(swaps, HOMES_OF_OPEN, "open", lambda original: recorded_open(original, files))
        _put(swaps, HOMES_OF_NUMBERS, "open", lambda original: recorded_os_open(original, files))
        for name in OF_NUMBERS:
            if hasattr(os, name):
                make = functools.partial(recorded_number, name, files=files)
                _put(swaps, HOMES_OF_NUMBERS, name, make)
    removals = [
        swaps.restore,
        once_imported("io", "numpy", functools.partial(_record_arrays, files)),
        once_imported("io", "torch.serialization", functools.partial(_record_writer, files)),
    ]
    _operations = operations

    def remove() -> None:
        global _operations
        _operations = None
        while removals:
            removals.pop()()

    return remove


def _put(swaps: Swaps, homes: Sequence[str], name: str, make: Callable[[Any], Any]) -> None:
    home, *others = (sys.modules[module] for module in homes)
    original = getattr(home, name)
    if not isinstance(original, BuiltinFunctionType):
        raise NotInThisVersion(f"{home.__name__}.{name} as a built-in function")
    made = make(original)
    swaps.put(home, name, made)
    for other in others:
        if getattr(other, name, None) is original:
            swaps.put(other, name, made)
    for able in ABLE:
        # Asked with the function itself, as `shutil` asks when it is imported.
        if original in able:
            able.add(made)
            swaps.then(functools.partial(able.discard, made))


def _record_arrays(files: KnownFiles, swaps: Swaps, numpy: ModuleType) -> None:
    _put(swaps, [numpy.__name__], "fromfile", lambda original: recorded_fromfile(original, files))


def _record_writer(files: KnownFiles, swaps: Swaps, home: ModuleType) -> None:
    writer = needed(home, "_open_zipfile_writer_file")
    swaps.swap(writer, "__init__", functools.partial(recorded_opening, files))
    swaps.swap(writer, "__exit__", functools.partial(recorded_closing, files))
