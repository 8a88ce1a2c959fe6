"""Traces of torch.profiler, copied as lines that every reader of traces takes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import orjson

from dftrace_ai.analysis.reading.decompression import PlainStream
from dftrace_ai.analysis.reading.gathering.copies import CopyFolder, PackedLines
from dftrace_ai.analysis.reading.gathering.profile_text import ProfileText
from dftrace_ai.analysis.reading.trace_file import Copy
from dftrace_ai.trace_format.header_and_footer import HeaderFacts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dftrace_ai.analysis.reading.trace_file import TraceFile
    from dftrace_ai.trace_format.json_types import JsonObject

__all__ = ["opened_profile"]

# Processes and threads that are called by a text get numbers beyond those that Linux gives.
FIRST_NUMBER: Final = (1 << 22) + 1
MOST_NUMBERS: Final = 10_000

# In the order of the recorder's lines; `args` comes last.
FIRST_MEMBERS: Final = ("id", "name", "cat", "pid", "tid", "ts", "dur", "ph")

# How the names of its steps begin.
STEP: Final = "ProfilerStep#"

NS_PER_US: Final = 1000


def opened_profile(file: TraceFile, folder: CopyFolder | None = None) -> TraceFile:
    """Copy the events of a file as lines, and return the file with that copy.

    Times keep their digits. What the file says beside the events, the time since which it
    counts and the rank, becomes the header of the trace.

    Args:
        file: the file.
        folder: for the copy; None for one of its own.

    Raises:
        TraceError: the operating system refuses to read the file.
        DftraceError: there is no room for the copy.
    """
    folder = folder or CopyFolder()
    path = folder.new_file()
    stream = PlainStream(file)
    text = ProfileText(stream)
    cpu: list[int] = []
    with folder.writing(), PackedLines(path) as copy:
        copy.add(b"[\n")
        for line in _lines(text, cpu):
            copy.add(line + b"\n")
        tear = stream.tear or text.tear
        if tear is None:
            copy.add(b"]\n")
    header = _header({**text.facts, "pid": cpu[-1] if cpu else None})
    made = Copy(path, folder, profile=True, header=header, tear=tear)
    return replace(file, codec="zstd", framed=True, named=False, copy=made)


def _lines(text: ProfileText, cpu: list[int]) -> Iterator[bytes]:
    """Yield a line for each event; the number of the process, by what tells it best, is added."""
    numbers = _Numbers()
    for event in text.events():
        if not isinstance(event, dict):
            yield _dumped(event)
            continue
        name = event.get("name")
        if (name == "process_labels" or not cpu) and isinstance(name, str):
            cpu += _number_of_process(event, name)
        for member in ("pid", "tid"):
            name = event.get(member)
            if isinstance(name, str):
                if member == "pid" and name and name not in numbers:
                    yield _process_name(name, numbers[name])
                event[member] = numbers[name]
        yield _dumped(_in_order(event))


def _number_of_process(event: JsonObject, name: str) -> list[int]:
    args = event.get("args")
    labels = args.get("labels") if isinstance(args, dict) else None
    tells = name.startswith(STEP) or (name == "process_labels" and labels == "CPU")
    pid = event.get("pid")
    return [pid] if tells and type(pid) is int else []


def _process_name(name: str, number: int) -> bytes:
    named = {"name": "process_name", "pid": number, "tid": number, "ph": "M"}
    return _dumped({**named, "args": {"name": name}})


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
    base_ns = facts.get("baseTimeNanoseconds")
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
