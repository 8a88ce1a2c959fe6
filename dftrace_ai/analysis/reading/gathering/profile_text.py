"""JSON with events, an object with ``traceEvents`` or a list, read event by event."""

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

__all__ = ["DECODER", "ProfileText"]

EVENTS: Final = "traceEvents"

# Members beside the events that say something of the process.
KEPT: Final = frozenset({"baseTimeNanoseconds", "distributedInfo", "host_name"})

# Names of members that are kept, by which people know what a file is.
MOST_MEMBERS: Final = 64

BLANKS: Final = re.compile(r"[ \t\r\n]*")

# Behind a document zero bytes are passed over as well, which file systems leave.
BLANKS_BEHIND: Final = re.compile(r"[ \t\r\n\0]*")

# Text in quotes, its last one missing where the text that was read ends before; or a bracket.
NESTING: Final = re.compile(r'"(?:[^"\\]|\\.)*("?)|[\[\]{}]', re.DOTALL)

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


class ProfileText:
    """Takes documents apart that may be far larger than memory.

    Args:
        chunks: their bytes.

    Attributes:
        facts: after the last event, those members beside the events that are of use.
        members: the names of the first members; none of a list.
        is_list: the document is a list.
        is_empty: it is a list without anything in it.
        has_events: there is a list of events, if only its beginning.
        tear: after the last event, where reading had to stop; None when all was read.

    Example::

        text = ProfileText(PlainStream(file))
        for event in text.events():
            print(event["name"])
    """

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._begin()
        self._chunks = iter(chunks)
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._text = ""
        self._at = 0
        # Bytes of the text that was let go.
        self._before = 0

    def _begin(self) -> None:
        self.facts: JsonObject = {}
        self.members: dict[str, None] = {}
        self.is_list = self.is_empty = self.has_events = False
        self.tear: Tear | None = None

    def events(self) -> Iterator[Any]:
        """Yield what the list of the next document holds: mostly an object for each event.

        Numbers with a fraction are fragments of orjson's, with the digits that were written.
        A list need not have an end, as Chrome's need none.
        """
        self._begin()
        try:
            if self._letter() == "[":
                self.is_list = self.has_events = self.is_empty = True
                for event in self._list(endless=True):
                    self.is_empty = False
                    yield event
            else:
                yield from self._object()
        except _StopError as stop:
            self.tear = Tear(self.place, str(stop), damaged=stop.damaged)

    @property
    def place(self) -> int:
        """Bytes of the text that were read."""
        return self._before + len(self._text[: self._at].encode("utf-8", "replace"))

    def goes_on(self) -> bool:
        """Return whether more than blanks stands behind the document that was read."""
        return self._peek(BLANKS_BEHIND) != ""

    def _object(self) -> Iterator[Any]:
        self._take("{")
        letter = self._letter()
        while letter != "}":
            key = self._value()
            if not isinstance(key, str):
                raise _StopError("broken JSON", damaged=True)
            if len(self.members) < MOST_MEMBERS:
                self.members[key] = None
            self._take(":")
            if key == EVENTS and self._letter() == "[":
                self.has_events = True
                yield from self._list()
            elif key in KEPT:
                self.facts[key] = self._value()
            else:
                self._pass()
            letter = self._next("}")
        self._at += 1

    def _list(self, *, endless: bool = False) -> Iterator[Any]:
        self._take("[")
        while True:
            # A comma may stand behind the last one, too.
            letter = self._peek() if endless else self._letter()
            if letter in ("]", ""):
                break
            yield self._value()
            letter = self._peek() if endless else self._letter()
            if letter == "," or not (endless and letter == "{"):
                if letter in ("]", ""):
                    break
                self._take(",")
        self._at += len(letter)

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
        letter = self._peek()
        if not letter:
            raise _StopError("the file ends too early,", damaged=False)
        return letter

    def _peek(self, blanks: re.Pattern[str] = BLANKS) -> str:
        """Return the next letter that is no blank; nothing at the end."""
        # Mostly there is none, and an event has several such letters around it.
        if (letter := self._text[self._at : self._at + 1]) > " ":
            return letter
        while True:
            match = blanks.match(self._text, self._at)
            if match:
                self._at = match.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def _pass(self) -> None:
        """Pass over a value of any size."""
        if self._letter() not in "[{":
            self._value()
            return
        depth = 0
        while True:
            found = NESTING.search(self._text, self._at)
            if found is None:
                self._at = len(self._text)
                self._letter()
                continue
            token = found[0]
            if token.startswith('"') and not found[1]:
                self._at = found.start()
                held = len(self._text) - self._at
                if held > LINE_BYTES:
                    raise _StopError("broken JSON", damaged=True)
                if not self._more(held):
                    raise _StopError("the file ends within what begins", damaged=False)
                continue
            self._at = found.end()
            depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token, 0)
            if depth == 0:
                return

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
