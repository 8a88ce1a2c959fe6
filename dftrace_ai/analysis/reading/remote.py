"""Files of object stores and other places that fsspec knows, of which ranges are fetched.

What is looked at of a file, its beginning and its end, is all that is fetched of it. Who reads the
whole gets all of it, in pieces, and it is let go of when others have been read.
"""

from __future__ import annotations

import errno
import io
import os
import re
import tempfile
import threading
from collections import OrderedDict
from pathlib import Path, PosixPath
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar

from dftrace_ai import system
from dftrace_ai.analysis.reading.unnamed_file import UnnamedFile
from dftrace_ai.errors import DftraceError, TraceError, missing_package
from dftrace_ai.wording import quoted

if TYPE_CHECKING:
    from collections.abc import Callable

Answered = TypeVar("Answered")

WILD: Final = "*?["
# A path that went through pathlib has one stroke left.
URL: Final = re.compile(r"([a-z][a-z0-9+.-]+):/+(.*)", re.DOTALL)
PAGE_BYTES: Final = 64 * 1024
PIECE_BYTES: Final = 8 * 1024 * 1024
# A store that says nothing for so long has gone.
ANSWER_S: Final = 60.0
# Of what was fetched so much is kept for who reads it again.
MOST_KEPT_BYTES: Final = 1024 * 1024 * 1024
MOST_KEPT_FILES: Final = 32


class _Listed(TypedDict, total=False):
    """What a store says of a file."""

    type: str
    size: int | None


class RemotePath(PosixPath):
    """The place of a file in a store, ``s3://bucket/out/trace.pfw.gz``, as paths of files are."""

    def __str__(self) -> str:
        """Return it with both strokes."""
        scheme, _, rest = super().__str__().partition(":/")
        return f"{scheme}://{rest.lstrip('/')}"

    __fspath__ = __str__

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Return what the store says of the file: its size; an OSError where it says nothing."""
        try:
            size = _known[str(self)] if str(self) in _known else _known[str(files_at(self)[0])]
        except TraceError as error:
            raise FileNotFoundError(errno.ENOENT, str(error), str(self)) from error
        return os.stat_result((0o100444, 0, 0, 1, system.user(), 0, size, 0, 0, 0))

    def absolute(self) -> RemotePath:
        """Return itself."""
        return self


# The sizes of the files that were found, by their places, and all that a folder was said to have.
_known: dict[str, int] = {}
_listed: set[str] = set()


def remote_path(path: str | os.PathLike[str]) -> Path | None:
    """Return a path as one of a store, where it is; a file of this machine for ``file://``."""
    text = os.fspath(path)
    found = URL.fullmatch(text)
    if found is None or os.path.lexists(text):
        return None
    scheme, rest = found.groups()
    return Path("/", rest) if scheme == "file" else RemotePath(f"{scheme}://{rest}")


def local_path(path: Path) -> Path:
    """Return a path of this machine, also behind ``file://``; a TraceError for that of a store."""
    found = remote_path(path)
    if isinstance(found, RemotePath):
        raise TraceError(f"{found}: only directories of this machine can be looked at here")
    return found or path


def files_at(path: RemotePath, suffixes: tuple[str, ...] = ("",)) -> list[RemotePath]:
    """Return the files that a place stands for: itself, those of a pattern, or those below it.

    Raises:
        TraceError: there are none, or the store does not answer, or refuses.
        DftraceError: what speaks to such a store is not installed.
    """
    text = str(path)
    scheme = text.partition("://")[0]

    def listed() -> dict[str, _Listed]:
        store = _store_of(text)
        if any(letter in text for letter in WILD):
            return dict(store.glob(text, detail=True))
        if not text.endswith(suffixes):
            # A page of links is a file as well.
            below = store.find(text, detail=True)
            _listed.update(_whole(name, scheme) for name in below)
            there = {name: about for name, about in below.items() if name.endswith(suffixes)}
            if there:
                return there
        return {text: store.info(text)}

    found: list[RemotePath] = []
    for name, about in sorted(_answer(text, listed).items()):
        whole = RemotePath(_whole(name, scheme))
        if about.get("type") != "file":
            continue
        size = about.get("size")
        if size is None:
            size = _answer(str(whole), lambda: _store_of(text).size(str(whole)))  # noqa: B023 - called at once
        if size is None:
            raise TraceError(f"{whole}: cannot be read: its server does not say how long it is")
        _known[str(whole)] = int(size)
        found.append(whole)
    if not found:
        raise TraceError(f"{text}: no such file, and none below it is called a trace")
    return found


def _whole(name: str, scheme: str) -> str:
    return name if "://" in name else f"{scheme}://{name.lstrip('/')}"


def is_listed(path: RemotePath) -> bool:
    """Whether a folder that was looked at has a file; nothing is asked for it."""
    return str(path) in _listed


def _store_of(text: str) -> Any:
    import fsspec

    return fsspec.core.url_to_fs(text)[0]


def _answer(text: str, call: Callable[[], Answered]) -> Answered:
    """Return what a store answers; a sentence for each way in which it does not."""
    found: list[Answered] = []
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            found.append(call())
        except BaseException as error:  # noqa: BLE001 - told by who has asked
            errors.append(error)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(ANSWER_S)
    if found:
        return found[0]
    if not errors:
        raise TraceError(f"{text}: cannot be read: nothing came for {ANSWER_S:g} s")
    error = errors[0]
    if isinstance(error, ImportError):
        if error.name == "fsspec":
            raise missing_package("fsspec", text, "fsspec") from error
        raise DftraceError(f"{text} needs another package: {error}") from error
    if isinstance(error, FileNotFoundError):
        # Where nothing answers, some stores say that there is nothing.
        why = f": {error.__cause__}" if error.__cause__ else ""
        raise TraceError(f"{text}: no such file or directory{why}") from error
    if isinstance(error, PermissionError):
        raise TraceError(f"{text}: cannot be read: the store refuses it: {error}") from error
    if isinstance(error, KeyboardInterrupt | SystemExit):
        raise error
    raise TraceError(f"{text}: cannot be read: {str(error) or type(error).__name__}") from error


def opened_remote(path: RemotePath) -> io.FileIO:
    """Return a file that fetches what is read of it.

    Raises:
        TraceError: it is not there, or the store does not answer, or refuses.
    """
    if str(path) not in _known:
        files_at(path)
    with _lock:
        stored = _kept.pop(str(path), None) or _Stored(str(path))
        _kept[str(path)] = stored
        room = 0
        for name in [*reversed(_kept)]:
            room += _kept[name].fetched_bytes
            if name != str(path) and room > MOST_KEPT_BYTES:
                del _kept[name]
        while len(_kept) > MOST_KEPT_FILES:
            _kept.popitem(last=False)
    return _Remote(stored)


class _Stored:
    """What has been fetched of a file, in a file without a name in TMPDIR."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.size = _known[text]
        self.fetched_bytes = 0
        self._there: set[int] = set()
        self._lock = threading.Lock()
        try:
            self._file = UnnamedFile("dftrace-remote-")
            self.number = self._file.number
            os.truncate(self.number, self.size)
        except OSError as error:
            raise _full(error) from error

    def need(self, begin: int, end: int) -> None:
        """Fetch what is missing between two bytes.

        Raises:
            TraceError: the store does not answer, refuses, or has another file by now.
        """
        with self._lock:
            pages = range(begin // PAGE_BYTES, -(-min(end, self.size) // PAGE_BYTES))
            missing = [page for page in pages if page not in self._there]
            while missing:
                first, most = missing[0], PIECE_BYTES // PAGE_BYTES
                count = next(
                    (at for at, page in enumerate(missing) if page != first + at), len(missing)
                )
                self._fetch(first, min(count, most))
                del missing[: min(count, most)]

    def _fetch(self, page: int, count: int) -> None:
        begin = page * PAGE_BYTES
        end = min(begin + count * PAGE_BYTES, self.size)
        text = self.text
        content: bytes = _answer(text, lambda: _store_of(text).cat_file(text, start=begin, end=end))
        if len(content) != end - begin:
            raise TraceError(
                f"{text}: cannot be read: {len(content):,} of {end - begin:,} bytes came"
            )
        try:
            os.pwrite(self.number, content, begin)
        except OSError as error:
            raise _full(error) from error
        self._there.update(range(page, page + count))
        self.fetched_bytes += len(content)


def _full(error: OSError) -> DftraceError:
    place = quoted(tempfile.gettempdir())
    return DftraceError(f"{place}: cannot be written: {error.strerror}")


# Those that were read last, the latest behind.
_kept: OrderedDict[str, _Stored] = OrderedDict()
_lock = threading.Lock()


class _Remote(io.FileIO):
    """A reader with a place of its own; who asks for its number gets all of the file."""

    def __init__(self, stored: _Stored) -> None:
        super().__init__(os.dup(stored.number))
        self._stored = stored
        self._at = 0

    def fileno(self) -> int:
        self._stored.need(0, self._stored.size)
        return super().fileno()

    def read(self, size: int | None = -1, /) -> bytes:
        left = max(0, self._stored.size - self._at)
        wanted = left if size is None or size < 0 else min(size, left)
        self._stored.need(self._at, self._at + wanted)
        text = system.read_at(self._stored.number, wanted, self._at)
        self._at += len(text)
        return text

    def seek(self, place: int, whence: int = 0, /) -> int:
        self._at = {0: 0, 1: self._at, 2: self._stored.size}[whence] + place
        return self._at
