"""The JSON of torch.profiler, ``{"traceEvents": [...]}``, read event by event."""

from __future__ import annotations

import codecs
import json
import math
import re
from typing import TYPE_CHECKING, Any, Final

import orjson

from dftrace_ai.analysis.reading.reader import LINE_BYTES
from dftrace_ai.analysis.reading.trace_file import Tear

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dftrace_ai.trace_format.json_types import JsonObject

__all__ = ["ProfileText", "begins_profile"]

EVENTS: Final = "traceEvents"

# Members beside the events that say something of the process, or that it is such a file at all.
KEPT: Final = frozenset({"baseTimeNanoseconds", "distributedInfo", "host_name"})
TELLING: Final = frozenset({*KEPT, "schemaVersion", "deviceProperties", "displayTimeUnit"})

BLANKS: Final = re.compile(r"[ \t\r\n]*")

LONGEST_WORD: Final = len("-Infinity")


def _number(digits: str) -> object:
    """Return a number that keeps its digits; as a text where it is larger than any."""
    return orjson.Fragment(digits) if math.isfinite(float(digits)) else digits


# NaN and the like, which are no JSON, become texts.
DECODER: Final = json.JSONDecoder(parse_float=_number, parse_constant=str, strict=False)


class _StopError(Exception):
    """The text cannot be read beyond a place."""

    def __init__(self, reason: str, *, damaged: bool) -> None:
        super().__init__(reason)
        self.damaged = damaged


def begins_profile(head: bytes) -> bool:
    """Return whether a file that begins so is an object with a list of events.

    Args:
        head: its first bytes; a line with an event is the beginning of other files.
    """
    text = ProfileText([head])
    for _ in text.events():
        return True
    return text.has_events or bool(text.members & TELLING)


class ProfileText:
    """Takes an object apart that may be far larger than memory.

    Args:
        chunks: its bytes.

    Attributes:
        facts: after the last event, those members beside the events that are of use.
        members: the names of the first members.
        has_events: there is a list of events.
        tear: after the last event, where reading had to stop; None when all was read.

    Example::

        text = ProfileText(PlainStream(file))
        for event in text.events():
            print(event["name"])
    """

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self.facts: JsonObject = {}
        self.members: set[str] = set()
        self.has_events = False
        self.tear: Tear | None = None
        self._chunks = iter(chunks)
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._text = ""
        self._at = 0
        # Bytes of the text that was let go.
        self._before = 0

    def events(self) -> Iterator[Any]:
        """Yield what the list holds: an object for each event, where nobody has broken it.

        Numbers with a fraction are fragments of orjson's, with the digits that were written.
        """
        try:
            yield from self._object()
        except _StopError as stop:
            at = self._before + len(self._text[: self._at].encode("utf-8", "replace"))
            self.tear = Tear(at, str(stop), damaged=stop.damaged)

    def _object(self) -> Iterator[Any]:
        self._take("{")
        letter = self._letter()
        while letter != "}":
            key = self._value()
            if not isinstance(key, str):
                raise _StopError("broken JSON", damaged=True)
            if len(self.members) < len(TELLING):
                self.members.add(key)
            self._take(":")
            if key == EVENTS:
                self._take("[")
                self.has_events = True
                yield from self._list()
            else:
                value = self._value()
                if key in KEPT:
                    self.facts[key] = value
            letter = self._next("}")

    def _list(self) -> Iterator[Any]:
        letter = self._letter()
        while letter != "]":
            yield self._value()
            letter = self._next("]")
        self._at += 1

    def _next(self, end: str) -> str:
        """Pass the comma before another member; or return the end, which is not passed."""
        letter = self._letter()
        if letter != end:
            self._take(",")
            letter = self._letter()
        return letter

    def _take(self, wanted: str) -> None:
        if self._letter() != wanted:
            raise _StopError("broken JSON", damaged=True)
        self._at += 1

    def _letter(self) -> str:
        while True:
            match = BLANKS.match(self._text, self._at)
            if match:
                self._at = match.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                raise _StopError("the file ends too early,", damaged=False)

    def _value(self) -> Any:
        self._letter()
        while True:
            held = len(self._text) - self._at
            try:
                value, end = DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if held > LINE_BYTES:
                    raise _StopError("broken JSON", damaged=True) from error
                # Twice as much each time, so that a long value is not read over and over.
                if not self._more(held):
                    # The end may lie within an escape or a word such as `false`.
                    near = error.pos >= len(self._text) - LONGEST_WORD
                    cut = near or error.msg.startswith("Unterminated")
                    reason = "the file ends within what begins" if cut else "broken JSON"
                    raise _StopError(reason, damaged=not cut) from error
            except RecursionError as error:
                raise _StopError("JSON that is nested too deeply", damaged=True) from error
            except ValueError as error:
                raise _StopError("a number of too many digits", damaged=True) from error
            else:
                # More digits of a number may follow.
                if end < len(self._text) or not self._more():
                    self._at = end
                    return value

    def _more(self, least: int = 1) -> bool:
        """Read on by so many letters at least; returns whether there was anything."""
        pieces = []
        size = 0
        for chunk in self._chunks:
            piece = self._decode(chunk)
            pieces.append(piece)
            size += len(piece)
            if size >= least:
                break
        if not size:
            return False
        self._before += len(self._text[: self._at].encode("utf-8", "replace"))
        self._text = "".join([self._text[self._at :], *pieces])
        self._at = 0
        return True
