"""Traces of torch.profiler, copied as lines that every reader of traces takes."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import orjson

from dftrace_ai.analysis.reading.decompression import PlainStream
from dftrace_ai.analysis.reading.forms import json_told
from dftrace_ai.analysis.reading.gathering.copies import CopyFolder, PackedLines
from dftrace_ai.analysis.reading.gathering.odd_times import OddTimes, digits_of
from dftrace_ai.analysis.reading.gathering.profile_text import DECODER, ProfileText
from dftrace_ai.analysis.reading.reader import FRAMING, LongLine, TraceReader
from dftrace_ai.analysis.reading.trace_file import Copy, SkippedFile, TraceFile
from dftrace_ai.errors import TraceError
from dftrace_ai.trace_format.header_and_footer import HeaderFacts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dftrace_ai.analysis.reading.gathering.odd_times import Mending
    from dftrace_ai.trace_format.json_types import JsonObject

__all__ = ["opened_profiles"]

# Processes and threads that are called by a text get numbers beyond those that Linux gives.
FIRST_NUMBER: Final = (1 << 22) + 1
MOST_NUMBERS: Final = 10_000

# In the order of the recorder's lines; `args` comes last.
FIRST_MEMBERS: Final = ("id", "name", "cat", "pid", "tid", "ts", "dur", "ph")

# How the names of its steps begin.
STEP: Final = "ProfilerStep#"

NS_PER_US: Final = 1000

BASE: Final = "baseTimeNanoseconds"
EVENT: Final = "ph"

# Far more than anybody puts together.
MOST_DOCUMENTS: Final = 1_000


def opened_profiles(
    file: TraceFile, skipped: list[SkippedFile], *, framed: bool = True
) -> list[TraceFile]:
    """Copy the events of a file as lines, and return the file with that copy.

    Times keep their digits. What the file says beside the events, the time since which it
    counts and the rank, becomes the header of the trace. Where several documents stand one behind
    the other, as in files that were put together, each is a trace of its own.

    Args:
        file: the file.
        skipped: gets what of the file is no trace.
        framed: its events are in a list.

    Returns:
        The traces; the file itself where it turns out to be one of lines.

    Raises:
        TraceError: it is no trace, or the operating system refuses to read it.
        DftraceError: there is no room for the copy.
    """
    stream = PlainStream(file)
    text = ProfileText(stream if framed else chain([b"["], stream))
    found: list[TraceFile] = []
    for number in range(1, MOST_DOCUMENTS + 1):
        shown = file if number == 1 else replace(file, path=file.path / str(number))
        begins_at = text.place
        copy, events = _copied(text, stream)
        if _is_trace(text, events):
            found.append(replace(shown, codec="zstd", framed=True, named=False, copy=copy))
        elif number == 1 and not events and EVENT in text.members:
            return [file]
        elif number == 1:
            raise TraceError(f"{file}: not a trace file: {_told(text)}")
        else:
            behind = f"what stands behind the first document, at byte {begins_at}, is no trace"
            skipped.append(SkippedFile(str(file), f"{behind}: {_told(text)}"))
        if text.tear or stream.tear or not text.goes_on():
            return found
    reason = f"what stands behind {MOST_DOCUMENTS} documents, at byte {text.place}, is not read"
    skipped.append(SkippedFile(str(file), reason))
    return found


def _is_trace(text: ProfileText, events: int) -> bool:
    """Return whether what was read is a trace, or the beginning of one."""
    if text.tear and not text.tear.damaged:
        return True
    return events > 0 or (text.has_events and not text.is_list) or (text.is_empty and not text.tear)


def _told(text: ProfileText) -> str:
    if text.tear:
        return f"{text.tear}, before any event"
    return json_told(text.members, is_list=text.is_list)


def _copied(text: ProfileText, stream: PlainStream) -> tuple[Copy, int]:
    """Copy a document as lines; return the copy, and how many events there are."""
    folder = CopyFolder()
    path = folder.new_file()
    odd = OddTimes()
    cpu: list[int] = []
    events = 0
    with folder.writing(), PackedLines(path) as copy:
        copy.add(b"[\n")
        for number, event in enumerate(_events(text, cpu)):
            if isinstance(event, dict) and EVENT in event:
                events += 1
                odd.add(number, event)
            copy.add(_dumped(event) + b"\n")
        tear = stream.tear or text.tear
        if tear is None:
            copy.add(b"]\n")
    odd.kineto = odd.kineto or BASE in text.facts
    mending = odd.mending()
    if mending:
        path = _mended(path, folder, mending)
    notes = tuple(mending.told()) if mending else ()
    header = _header({**text.facts, "pid": cpu[-1] if cpu else None})
    return Copy(path, folder, profile=True, header=header, tear=tear, notes=notes), events


def _mended(path: Path, folder: CopyFolder, mending: Mending) -> Path:
    """Copy the lines of a copy as they are to be, and return where they are."""
    packed = TraceFile(path, "zstd", framed=True, named=False)
    mended = folder.new_file()
    with folder.writing(), PackedLines(mended) as copy:
        for number, line in TraceReader(packed).lines():
            # The first line is a bracket, as the last one may be.
            new = line if line in FRAMING else _as_it_is_to_be(line, number - 2, mending)
            if new is not None:
                copy.add(new + b"\n")
    path.unlink()
    return mended


def _as_it_is_to_be(line: bytes, number: int, mending: Mending) -> bytes | None:
    dur_ns = mending.dur_ns.get(number)
    if isinstance(line, LongLine) or (dur_ns is None and not mending.left_out):
        return line
    try:
        event = DECODER.decode(line.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        return line  # who reads it counts it
    if not isinstance(event, dict):
        return line
    if dur_ns is not None:
        return _dumped({**event, "dur": digits_of(dur_ns)})
    return line if mending.has(event) else None


def _events(text: ProfileText, cpu: list[int]) -> Iterator[Any]:
    """Yield events, processes and threads with numbers, members in the recorder's order.

    The number of the process, by what tells it best, is added to a list.
    """
    numbers = _Numbers()
    for event in text.events():
        if not isinstance(event, dict):
            yield event
            continue
        name = event.get("name")
        if (name == "process_labels" or not cpu) and isinstance(name, str):
            cpu += _number_of_process(event, name)
        for member in ("pid", "tid"):
            name = event.get(member)
            if isinstance(name, str):
                if member == "pid" and name and name not in numbers and EVENT in event:
                    yield _process_name(name, numbers[name])
                event[member] = numbers[name]
        yield _in_order(event)


def _number_of_process(event: JsonObject, name: str) -> list[int]:
    args = event.get("args")
    labels = args.get("labels") if isinstance(args, dict) else None
    tells = name.startswith(STEP) or (name == "process_labels" and labels == "CPU")
    pid = event.get("pid")
    return [pid] if tells and type(pid) is int else []


def _process_name(name: str, number: int) -> JsonObject:
    named = {"name": "process_name", "pid": number, "tid": number, "ph": "M"}
    return {**named, "args": {"name": name}}


class _Numbers(dict[str, int]):
    """A number for each text; the same one for all beyond a limit, which no profiler reaches."""

    def __missing__(self, text: str) -> int:
        number = FIRST_NUMBER + len(self)
        if len(self) < MOST_NUMBERS:
            self[text] = number
        return number


def _in_order(event: JsonObject) -> JsonObject:
    ordered: JsonObject = {name: event.pop(name) for name in FIRST_MEMBERS if name in event}
    args = event.pop("args", None)
    ordered.update(event)
    if args is not None:
        ordered["args"] = args
    return ordered


def _dumped(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        # Integers of more than 64 bits, and halves of surrogates.
        return json.dumps(value, default=_digits, separators=(",", ":")).encode()


def _digits(fragment: Any) -> float:
    return float(orjson.dumps(fragment))


def _header(facts: JsonObject) -> HeaderFacts:
    base_ns = facts.get(BASE)
    distributed = facts.get("distributedInfo")
    said = distributed if isinstance(distributed, dict) else {}
    return HeaderFacts.of(
        {
            "host": facts.get("host_name"),
            "pid": facts.get("pid"),
            "time_base_us": base_ns // NS_PER_US if isinstance(base_ns, int) else None,
            "rank": said.get("rank"),
            "world_size": said.get("world_size"),
        }
    )
