"""What a file is, by its beginning: lines of a trace, JSON as a whole, or what it is instead."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, Literal

from dftrace_ai.analysis.reading.reader import FRAMING, event_of
from dftrace_ai.wording import quoted, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable


FileKind = Literal["lines", "documents", "objects", "tar", "zip", "none"]
"""An event on each line, JSON as a whole that may hold events, events of torch.profiler or over
several lines one behind the other without a list around them, an archive, or none of these."""

ARCHIVES: Final = frozenset({"tar", "zip"})

# Of a tar: its header and all else in it takes whole blocks.
BLOCK: Final = 512
TAR_MAGIC: Final = slice(257, 262)

# Of a ZIP: a member, and the end of the directory.
LOCAL_MAGIC: Final = b"PK\3\4"
END_MAGIC: Final = b"PK\5\6"

# As recorders write lines.
LINES_BEGIN: Final = b'[\n{"name":"process_name"'

# Of lines, so many are looked at for one that is an event.
MOST_LINES: Final = 64

# Categories of torch.profiler's library, in small letters. Its events are put right while they are
# copied, however they are laid out.
KINETO: Final = frozenset(
    {"cpu_op", "user_annotation", "cuda_runtime", "hip_runtime", "python_function", "operator"}
    | {"kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation"}
)

EVENT: Final = "ph"
EVENTS: Final = "traceEvents"

LONGEST_WORD: Final = len("-Infinity")

NAMED: Final = 4
NAME_LETTERS: Final = 40

MAGICS: Final = (
    (b"\x89PNG\r\n\x1a\n", "an image, PNG"),
    (b"\xff\xd8\xff", "an image, JPEG"),
    (b"%PDF-", "a document, PDF"),
    (b"\x89HDF\r\n\x1a\n", "data in HDF5"),
    (b"\xef\xbb\xbf", "text behind a byte order mark, which JSON has none"),
    ((b"\xff\xfe", b"\xfe\xff"), "text in UTF-16; JSON is UTF-8"),
    (b"SQLite format 3\0", "a database of SQLite, as Nsight Systems and rocprof write them"),
    (b"PAR1", "a table of Parquet"),
    (b"\xfd7zXZ\0", "compressed by xz, which is not read"),
    (b"BZh", "compressed by bzip2, which is not read"),
    (b"\x04\x22\x4d\x18", "compressed by lz4, which is not read"),
    (b"7z\xbc\xaf", "an archive of 7-Zip, which is not read"),
    (b"\x7fELF", "a program or a library"),
)

CONTROL: Final = re.compile(rb"[\0-\x08\x0e-\x1a\x1c-\x1f]")

# The names of members by which one knows what writes such files.
KNOWN: Final = (
    ({"schema", "nodes"}, "an execution trace of PyTorch, whose nodes are no spans"),
    ({"rocprofiler-sdk-tool"}, "results of rocprofv3, which are no events of a trace"),
    ({"format", "by", "spans", "files"}, "what 'dftrace summary --json' prints"),
    ({"nbformat", "cells"}, "a notebook"),
)


def file_kind(head: bytes, *, whole: bool, named: bool = False) -> FileKind:
    """Return what a file is whose first bytes, unpacked, are `head`.

    It has no others where it is `whole`; `named` tells that it is called as files of lines are.
    """
    if head.startswith(LINES_BEGIN):
        return "lines"
    if is_zip(head):
        return "zip"
    if is_tar(head):
        return "tar"
    start = head.lstrip()
    if not start:
        return "lines"
    if not start.startswith((b"[", b"{")):
        return "none"
    first, _, others = start.partition(b"\n")
    framed = first.strip() == b"["
    if start.startswith(b"[") and not framed:
        return "documents"
    return _kind_of_lines(others if framed else start, framed=framed, whole=whole, named=named)


def is_zip(head: bytes) -> bool:
    """Return whether a file begins as a ZIP does."""
    return head.startswith((LOCAL_MAGIC, END_MAGIC))


def is_tar(head: bytes) -> bool:
    """Return whether a file begins as a tar does."""
    header = head[:BLOCK]
    return header[TAR_MAGIC] == b"ustar" and len(header) == BLOCK and is_tar_header(header)


def is_tar_header(header: bytes) -> bool:
    """Return whether a block of a tar has the sum that it says."""
    return tar_number(header[148:156]) == sum(header) - sum(header[148:156]) + 8 * ord(" ")


def tar_number(field: bytes) -> int | None:
    """Return what a field of a tar says; None where that is no number."""
    if field[0] & 0x80:
        # In base 256, for what eight digits do not hold; a sign makes no sense.
        number = int.from_bytes(field, "big") & ((1 << 8 * len(field) - 1) - 1)
        return None if field[0] & 0x40 or number >= 1 << 63 else number
    try:
        return int(field.strip(b" \0") or b"0", 8)
    except ValueError:
        return None


def _kind_of_lines(body: bytes, *, framed: bool, whole: bool, named: bool) -> FileKind:
    while framed and (line := body.partition(b"\n"))[1] and line[0].strip() in FRAMING:
        body = line[2]
    ends = len(body) if whole else body.rfind(b"\n") + 1
    lines = [line.strip().removesuffix(b",") for line in body[:ends].split(b"\n")]
    lines = [line for line in lines if line not in FRAMING][:MOST_LINES]
    objects = [event_of(line) for line in lines]
    if not objects and not body[ends:].strip():
        return "lines"
    found = [each for each in objects if each is not None]
    of_kineto = any(str(each.get("cat")).lower() in KINETO for each in found)
    if named and framed and not of_kineto and lines[:1] != [b"{"]:
        return "lines"  # whatever has become of them
    first = objects[0] if objects else None
    first_value, event = _first_value(body) if first is None else ("whole", first)
    if first_value == "cut":
        # So short it is a line that was being written.
        return "lines" if framed and whole and b"\n" not in body.strip() else "documents"
    # A line that is whole but for letters that are none is one that was damaged.
    alone = bool(objects) and (objects[0] is not None or _is_whole(lines[0]))
    mangled = alone and objects[0] is None
    over_lines = bool(objects) and first_value == "whole" and not alone
    event = found[0] if event is None and found else event or {}
    if not framed and (over_lines or of_kineto) and EVENT in event and EVENTS not in event:
        return "objects"
    document = of_kineto or any(EVENTS in each for each in found)
    events = any(EVENT in each or (framed and "name" in each) for each in found)
    broken = framed and (first_value == "broken" or mangled)
    return "lines" if (events or broken) and not (over_lines or document) else "documents"


def _is_whole(line: bytes) -> bool:
    """Return whether a line is one object, if its letters were letters."""
    try:
        return isinstance(json.loads(line.decode("utf-8", "replace"), strict=False), dict)
    except (RecursionError, ValueError):
        return False


def _first_value(text: bytes) -> tuple[Literal["whole", "cut", "broken"], Any]:
    """Return how a text begins, with a value in JSON, the beginning of one, or none; and it."""
    letters = text.decode("utf-8", "replace").strip()
    try:
        value, _ = json.JSONDecoder(strict=False).raw_decode(letters)
    except json.JSONDecodeError as error:
        # The end may lie within a word such as `false`.
        near_end = error.pos >= len(letters) - LONGEST_WORD
        return ("cut" if near_end or error.msg.startswith("Unterminated") else "broken"), None
    except (RecursionError, ValueError):
        return "cut", None
    return "whole", value


def other_told(head: bytes) -> str:
    """Return what a file is that begins so and is no JSON of events, for people."""
    for magic, told in MAGICS:
        if head.startswith(magic):
            return told
    try:
        # A letter may be cut at the end.
        head[:-3].decode()
    except UnicodeDecodeError:
        return "binary data"
    # Text has blanks and line breaks, and no other letters that control something.
    return "binary data" if CONTROL.search(head) else "text that is no JSON"


def json_told(members: Iterable[str], *, is_list: bool, has_events: bool) -> str:
    """Return what JSON is that holds no event, for people.

    It is a list, or an object with such members; `has_events` if one of them is a list of events.
    """
    if is_list:
        return "a list in JSON of which nothing is an event"
    if has_events:
        return f"an object in JSON with {EVENTS} of which nothing is an event"
    names = list(members)
    if EVENTS in names:
        return f"an object in JSON whose {EVENTS} is no list of events"
    for known, told in KNOWN:
        if known <= set(names):
            return told
    named = ", ".join(quoted(shortened(name, NAME_LETTERS)) for name in names[:NAMED])
    more = ", ..." if len(names) > NAMED else ""
    return f"an object in JSON without {EVENTS}" + (f"; it has {named}{more}" if names else "")
