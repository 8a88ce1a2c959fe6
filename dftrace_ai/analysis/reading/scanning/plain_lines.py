"""A line of a trace as an event, with all digits of its numbers: as the native reader takes it."""

from __future__ import annotations

import json
import re
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

import orjson

from dftrace_ai.trace_format.names_and_phases import lettered_phase

if TYPE_CHECKING:
    from dftrace_ai.trace_format.json_types import JsonObject

__all__ = ["arguments_text", "event_of", "length_ns", "moment_ns", "whole"]

# The year 2115, in microseconds since 1970.
MOST_MICROS: Final = 4_600_000_000_000_000
MOST_DEPTH: Final = 200

# Python refuses to make integers of thousands; longer ones than these are no ids.
MOST_DIGITS: Final = 21


def event_of(line: bytes) -> JsonObject | None:
    """Return the event of a line, its phase as a letter; None for a line that holds none.

    Args:
        line: without blanks around it and the comma behind it.

    Example::

        assert event_of(b'{"name":"forward","ph":1}') == {"name": "forward", "ph": "X"}
    """
    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError:
        event = _with_all_digits(line)
    if not isinstance(event, dict) or _depth(event) > MOST_DEPTH:
        return None
    ph = lettered_phase(event.get("ph"))
    if ph is None or not isinstance(event.get("name"), str):
        return None
    if isinstance(event.get("ts"), float) or isinstance(event.get("dur"), float | int):
        event = _with_all_digits(line)
    return {**event, "ph": ph}


def arguments_text(line: str) -> str:
    """Return the arguments of an event as they stand in its line; empty where there are none.

    Args:
        line: of which `event_of` has given an event.
    """
    found = ""
    at = 1
    while True:
        at = _BLANKS.match(line, at).end()  # type: ignore[union-attr]
        if line[at] == "}":
            return found
        key, at = _DECODER.raw_decode(line, at)
        at = _BLANKS.match(line, at).end()  # type: ignore[union-attr]
        begin = at
        value, at = _DECODER.raw_decode(line, at)
        if key == "args":
            found = line[begin:at] if isinstance(value, dict) else ""


def length_ns(micros: Any) -> int | None:
    """Return microseconds as whole nanoseconds; None for what is no number, or beyond all times.

    Args:
        micros: of a line; DLIO Profiler, from which dftracer has come, writes numbers as texts.
    """
    number = _number(micros)
    rounded = None if number is None else _rounded(number)
    return None if rounded is None else int(rounded * 1000)


def moment_ns(micros: Any) -> int | None:
    """Return when an event was: the last moment of all, or the first, for what is beyond them.

    Args:
        micros: as for `length_ns`.

    Returns:
        Whole nanoseconds; None for what is no number.
    """
    number = _number(micros)
    if number is None:
        return None
    rounded = _rounded(number)
    if rounded is None:
        rounded = Decimal(MOST_MICROS if number > 0 else -MOST_MICROS)
    return int(rounded * 1000)


def _number(value: Any) -> Decimal | None:
    if isinstance(value, str):
        return Decimal(value) if _NUMBER.fullmatch(value) else None
    return Decimal(value) if type(value) in {int, float, Decimal} else None


def _rounded(micros: Decimal) -> Decimal | None:
    """Return microseconds with three decimals; None for what is beyond all times."""
    try:
        rounded = micros.quantize(Decimal("0.001"), ROUND_HALF_UP)
    except InvalidOperation:
        return None
    return rounded if abs(rounded) <= MOST_MICROS else None


def whole(value: Any, least: int = -(2**63), end: int = 2**63, otherwise: int = 0) -> int:
    """Return a number of a line; `otherwise` for what is none, or not in ``range(least, end)``."""
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        value = int(value)
    number = isinstance(value, int) and not isinstance(value, bool) and least <= value < end
    return value if number else otherwise


def _with_all_digits(line: bytes) -> Any:
    try:
        value = _DECODER.decode(line.decode())
        # Halves of surrogates are no text.
        json.dumps(value, ensure_ascii=False, default=str).encode()
    except (ValueError, RecursionError):
        return None
    return value


def _integer(digits: str) -> int | Decimal:
    return int(digits) if len(digits) <= MOST_DIGITS else Decimal(digits)


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


# Numbers of any size, with all of their digits.
_DECODER: Final = json.JSONDecoder(parse_float=Decimal, parse_int=_integer, parse_constant=_refused)
_WHOLE: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,20})")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_BLANKS: Final = re.compile(r"[ \t\r,:]*")


def _depth(value: Any) -> int:
    depth = 0
    level = [value]
    while level:
        depth += 1
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
    return depth - 1
