"""Index files: what the traces of a process add up to, in a file beside them.

One is believed while each trace is the file that it was made of: of the same length and times, with
the same number on its disk and the same bytes at both ends. Nobody but its owner, or that of the
traces, may have written it, and it holds a checksum of itself.
"""

from __future__ import annotations

import errno
import os
import stat
from hashlib import sha256
from types import NoneType
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

import orjson

from dftrace_ai import system
from dftrace_ai.analysis.reading.clock_faults import NEVER, SetBack
from dftrace_ai.analysis.reading.reach import Reach
from dftrace_ai.analysis.reading.remote import RemotePath, is_listed, opened_remote
from dftrace_ai.analysis.reading.trace_end import TraceEnd
from dftrace_ai.analysis.reading.trace_file import open_regular
from dftrace_ai.errors import DftraceError, TraceError, readable
from dftrace_ai.page.files import new_file
from dftrace_ai.trace_format.file_names import INDEX_FILE_SUFFIX, trace_name
from dftrace_ai.trace_format.header_and_footer import FooterFacts
from dftrace_ai.wording import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from dftrace_ai.analysis.reading.index_line import (
        IndexedOthers,
        IndexedSpans,
    )
    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.trace_format.json_types import Json

MARK: Final = b"dftrace index 2 "
# In which steps and epochs that lie beside a thread have time of their own.
EARLIER: Final = b"dftrace index 1 "
DIGEST_BYTES: Final = 64
MOST_BYTES: Final = 64 * 1024 * 1024
# At each end of a trace. What is changed between them and leaves its length and times as they are
# was made to be overlooked.
END_BYTES: Final = 64 * 1024
FLAGS: Final = system.TO_READ | system.O_NOFOLLOW


class IndexFileError(Exception):
    """There is an index file, which is of no use; the message says why."""


class TracedFile(NamedTuple):
    """By what a trace is known again."""

    name: str
    size: int
    modified_ns: int
    changed_ns: int
    inode: int
    ends: str


class FileFigures(NamedTuple):
    """What reading a whole trace tells of it; `tear` tells where and why it stopped, if it did."""

    tear: str | None
    end: TraceEnd
    reach: Reach | None = None
    clock: SetBack = NEVER


class ProcessFigures(NamedTuple):
    """What the traces of a process add up to: rows as of `IndexFigures`, and of each file its own.

    Spans without a duration count as events, and as unreadable.
    """

    lines: int
    spans: list[IndexedSpans]
    others: list[IndexedOthers]
    without_duration: int
    unreadable: int
    long_lines: int
    files: list[FileFigures]
    # What the spans of the main thread take together; None where that is not known.
    main_thread_ns: int | None


def index_path(parts: Sequence[Trace], suffix: str = INDEX_FILE_SUFFIX) -> Path:
    """Return where the index file of a process is: beside its traces, called as they are."""
    path = parts[0].path
    name = trace_name(path.name)
    return path.with_name((name.base if name else path.name) + suffix)


def identity_of(trace: Trace) -> TracedFile:
    """Return by what a trace is known again; of one in a store its length and its ends."""
    path = trace.path
    if isinstance(path, RemotePath):
        with opened_remote(path) as stored:
            size = path.stat().st_size
            ends = sha256(stored.read(END_BYTES))
            stored.seek(max(0, size - END_BYTES))
            ends.update(stored.read(END_BYTES))
        return TracedFile(path.name, size, 0, 0, 0, ends.hexdigest())
    with readable(path), open_regular(path) as file:
        status = os.fstat(file.fileno())
        ends = sha256(_read(file, 0, END_BYTES))
        ends.update(_read(file, max(0, status.st_size - END_BYTES), END_BYTES))
    times = status.st_mtime_ns, status.st_ctime_ns
    return TracedFile(path.name, status.st_size, *times, status.st_ino, ends.hexdigest())


def are_known(files: Sequence[TracedFile], parts: Sequence[Trace]) -> bool:
    """Whether traces are the files that something was made of."""
    if len(files) != len(parts):
        return False
    for file, trace in zip(files, parts, strict=True):
        known = file
        if trace.file.is_remote:
            known = file._replace(modified_ns=0, changed_ns=0, inode=0)
        if known != identity_of(trace):
            return False
    return True


def _read(file: BinaryIO, place: int, most: int) -> bytes:
    return system.read_at(file.fileno(), most, place)


def read_index(parts: Sequence[Trace]) -> ProcessFigures | None:
    """Return what the index file of a process says; None without one, or for one of other parts.

    One that is not to be believed is an IndexFileError.
    """
    file = opened_beside(index_path(parts), parts)
    if file is None:
        return None
    with file:
        content = file.read(MOST_BYTES + 1)
    if content.startswith(EARLIER):
        raise IndexFileError("is of an earlier version; `dftrace index` makes it again")
    text = content[len(MARK) + DIGEST_BYTES + 1 :]
    if not content.startswith(MARK + sha256(text).hexdigest().encode() + b"\n"):
        raise IndexFileError("is damaged")
    try:
        files, figures = _taken_apart(orjson.loads(text))
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise IndexFileError("is damaged") from error
    if [file.name for file in files] != [trace.path.name for trace in parts]:
        return None
    if not are_known(files, parts):
        raise IndexFileError("was made before the trace changed; `dftrace index` makes it again")
    return figures


def opened_beside(
    path: Path, parts: Sequence[Trace], most_bytes: int = MOST_BYTES
) -> BinaryIO | None:
    """Open what is kept beside traces; None without any, an IndexFileError for what is others'."""
    try:
        file = _opened(path, most_bytes)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise IndexFileError(f"cannot be read: {error.strerror}") from error
    except TraceError as error:
        raise IndexFileError(str(error).removeprefix(f"{path}: ")) from error
    if file is None:
        raise IndexFileError("is no index")
    if isinstance(path, RemotePath):
        return file  # whoever writes to the store has written the traces
    status = os.fstat(file.fileno())
    owners = {system.user(), 0, *(trace.file.content.stat().st_uid for trace in parts)}
    if status.st_uid not in owners or stat.S_IMODE(status.st_mode) & 0o022:
        file.close()
        raise IndexFileError("may have been written by somebody else")
    return file


def _taken_apart(said: Any) -> tuple[list[TracedFile], ProcessFigures]:
    """Return what stands in the file; whether the figures can be is for others to see."""
    files = [TracedFile(*file) for file in said["files"]]
    figures = said["figures"]
    tuples = {
        "spans": [tuple(row) for row in figures["spans"]],
        "others": [tuple(row) for row in figures["others"]],
        "files": [
            FileFigures(_tear_of(tear), _end_of(*end), *_times_of(*times))
            for tear, end, *times in figures["files"]
        ],
    }
    taken = ProcessFigures(**{**figures, **tuples})
    for figure in (taken.lines, taken.without_duration, taken.unreadable, taken.long_lines):
        if type(figure) is not int or figure < 0:
            raise ValueError("no count")
    if type(taken.main_thread_ns) not in (int, NoneType):
        raise TypeError("no time")
    if len(taken.files) != len(files):
        raise ValueError("other files")
    return files, taken


def _tear_of(said: Any) -> str | None:
    if not isinstance(said, str | None):
        raise TypeError("no text")
    return said


def _times_of(reach: Any = None, clock: Any = NEVER) -> tuple[Reach | None, SetBack]:
    if not all(type(number) is int for number in (*(reach or ()), *clock)):
        raise TypeError("no moments")
    return reach and Reach(*reach), SetBack(*clock)


def _end_of(whole: bool, bracket: bool, damaged: bool, footer: Any) -> TraceEnd:
    if not isinstance(footer, dict | None):
        raise TypeError("no closing line")
    facts = None if footer is None else FooterFacts.of(footer)
    return TraceEnd(bool(whole), bool(bracket), facts, bool(damaged))


def _end_told(end: TraceEnd) -> tuple[bool, bool, bool, dict[str, Json] | None]:
    footer = end.footer
    told = footer and {**footer._asdict(), "ntp": footer.ntp and footer.ntp._asdict()}
    return end.whole, end.bracket, end.damaged, told


def check_place(path: Path, marks: tuple[bytes, ...] = (MARK, EARLIER)) -> None:
    """Hold that a file that begins so can be written, before anybody works for it."""
    if os.path.lexists(path) and not _is_ours(path, marks):
        raise TraceError(f"{quoted(str(path))}: is no index of ours, and is left as it is")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        is_frozen = os.statvfs(path.parent).f_flag & os.ST_RDONLY
        why = os.strerror(errno.EROFS if is_frozen else errno.EACCES)
        raise TraceError(f"{quoted(str(path))}: cannot be written: {why}")


def _is_ours(path: Path, marks: tuple[bytes, ...]) -> bool:
    try:
        file = _opened(path, 2**62)
    except OSError:
        return False
    if file is None:
        return False
    with file:
        return file.read(len(marks[0])) in marks


def _opened(path: Path, most_bytes: int) -> BinaryIO | None:
    """Open a regular file that may be an index; None for anything else."""
    if isinstance(path, RemotePath):
        if not is_listed(path):
            raise FileNotFoundError(path)
        return opened_remote(path) if path.stat().st_size <= most_bytes else None
    number = os.open(path, FLAGS)
    status = os.fstat(number)
    if stat.S_ISREG(status.st_mode) and status.st_size <= most_bytes:
        return os.fdopen(number, "rb")
    os.close(number)
    return None


def write_index(
    path: Path, files: Sequence[TracedFile], figures: ProcessFigures, mode: int
) -> None:
    """Write an index file, which is whole when it gets its name."""
    check_place(path)
    ends = [
        (file.tear, _end_told(file.end), file.reach and tuple(file.reach), tuple(file.clock))
        for file in figures.files
    ]
    text = as_json({"files": [*map(tuple, files)], "figures": {**figures._asdict(), "files": ends}})
    if len(text) + len(MARK) + DIGEST_BYTES >= MOST_BYTES:
        raise TraceError(f"{quoted(str(path))}: would be too large: too many names")
    write_beside(path, [MARK + sha256(text).hexdigest().encode() + b"\n" + text], mode)


def as_json(said: Any) -> bytes:
    """Return what a file beside a trace says."""
    try:
        return orjson.dumps(said)
    except orjson.JSONEncodeError as error:
        raise TraceError("has numbers beyond 64 bits") from error


def write_beside(path: Path, pieces: Iterable[bytes], mode: int) -> None:
    """Write a file that is whole when it gets its name; it can be read as `mode` lets traces be."""
    try:
        with new_file(path, 0o600 | (mode & 0o444)) as unnamed, unnamed.open("wb") as file:
            file.writelines(pieces)
    except DftraceError as error:
        raise TraceError(str(error)) from error
