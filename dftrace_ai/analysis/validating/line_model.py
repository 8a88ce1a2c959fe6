"""One line held against the models of the format, in memory that the line cannot raise."""

from __future__ import annotations

import json
import math
from itertools import islice
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from dftrace_ai.analysis.reading.reader import LINE_BYTES, LongLine
from dftrace_ai.trace_format import lines
from dftrace_ai.trace_format.line_bases import OpenArgs

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LineFaultError", "LineModel"]

# The models list everything that is wrong with a line, which for 16 MiB of nulls takes 30 GiB.
# Longer lines are looked through first, up to the first fault.
MODELLED_BYTES = 16 * 1024

# As deep as the models go.
MOST_DEPTH = 200

MESSAGE_LETTERS = 300

NOT_KEPT = (
    "not a value that viewers keep: text, true, false, a finite "
    "number, an integer of 64 bits, an object, or a list without null"
)


class LineFaultError(Exception):
    """A line is not as the format has it; the message says why in one line."""


class LineModel:
    """Turns lines into events, or says what is wrong with them.

    Example::

        model = LineModel()
        event = model.event(b'{"id":1,"name":"forward",...}')
        print(event.ph, event.name)
    """

    def __init__(self) -> None:
        self._validate = lines.event_adapter().validator.validate_json
        # Arguments that the format itself knows; all others may be anything that viewers keep.
        self._known = {
            name
            for model in vars(lines).values()
            if isinstance(model, type) and issubclass(model, OpenArgs)
            for name in model.model_fields
        }

    def event(self, line: bytes) -> Any:
        """Return the model of a line's event; of a long one without the user's arguments.

        Raises:
            LineFaultError: the line departs from the format.
        """
        if isinstance(line, LongLine):
            raise LineFaultError(
                f"the line has {line.size:,} bytes; readers pass over lines of more than "
                f"{LINE_BYTES // 2**20} MiB"
            )
        if len(line) > MODELLED_BYTES:
            return self._modelled(self._without_arguments(_decoded(line)))
        event = self._modelled(line)
        # As many colons behind quotes as members: no name stands there twice. With spaces between
        # the two, which the recorder does not write, they have to be looked for.
        spaced = b'" ' in line or b"\t" in line or b"\r" in line
        if spaced or line.count(b'":') != _members(event):
            _decoded(line)
        return event

    def _without_arguments(self, event: Any) -> bytes:
        """Return the line without the user's arguments, which are found to be as they should.

        Of members that no line has only some are left: one is enough to tell.
        """
        if not isinstance(event, dict):
            raise LineFaultError("not an object")
        args = event.get("args")
        if isinstance(args, dict):
            counter = event.get("ph") == "C"
            for name, value in args.items():
                if not (_is_number(value) if counter else _is_kept(value)):
                    raise LineFaultError(f"args.{name[:100]}: {NOT_KEPT}")
            known = {} if counter else self._known
            event["args"] = {name: args[name] for name in known if name in args}
        return json.dumps({name: event[name] for name in islice(event, 32)}).encode()

    def _modelled(self, line: bytes) -> Any:
        try:
            return self._validate(line)
        except ValidationError as error:
            raise LineFaultError(_in_short(error)[:MESSAGE_LETTERS]) from error


def _members(event: Any) -> int:
    """Return how many members an event and its arguments have, those of inner objects excepted."""
    args = event.__dict__.get("args")
    if args is None:
        return len(event.__pydantic_fields_set__)
    inner = args if isinstance(args, dict) else args.__pydantic_fields_set__
    return len(event.__pydantic_fields_set__) + len(inner)


def _decoded(line: bytes) -> Any:
    """Return what a line says, if no name stands twice in any object of it."""
    try:
        return json.loads(line.decode(), object_pairs_hook=_object, parse_constant=_no_number)
    except RecursionError as error:
        raise LineFaultError("nested too deeply") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise LineFaultError(f"invalid JSON: {str(error)[:200]}") from error
    except ValueError as error:
        # Python's own limit: reading one takes time with the square of its length.
        raise LineFaultError("a number of thousands of digits") from error


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise LineFaultError(f"the name {name[:100]!r} stands twice in one object")
            seen.add(name)
    return found


def _no_number(text: str) -> Any:
    raise LineFaultError(f"{text} is no number of JSON")


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, (int, float)) and _is_kept(value)


def _is_kept(value: Any) -> bool:
    """Return whether viewers keep a value; looks at everything inside of it, in a loop."""
    open_values: list[Iterator[Any]] = [iter((value,))]
    while open_values:
        for one in open_values[-1]:
            if isinstance(one, (dict, list)):
                if len(open_values) > MOST_DEPTH or (isinstance(one, list) and None in one):
                    return False
                open_values.append(iter(one.values() if isinstance(one, dict) else one))
                break
            if isinstance(one, float):
                if not math.isfinite(one):
                    return False
            elif isinstance(one, int) and not -(2**63) <= one < 2**63:
                return False
        else:
            open_values.pop()
    return True


def _in_short(error: ValidationError) -> str:
    """Return the first fault that the model found, in one line."""
    faults = error.errors(include_url=False, include_input=False)
    first = faults[0]
    message = str(first["msg"])
    if first["type"] == "union_tag_not_found":
        return f"no {first['ctx']['discriminator']}: the kind of the line is not known"
    if not first["loc"]:
        return message[0].lower() + message[1:]
    # The location begins with the values of ph, and of name or cat, that chose the model.
    tags = 2 if first["loc"][0] in {"M", "i"} else 1
    place = [str(part)[:100] for part in first["loc"][tags:]]
    if not place or first["type"].startswith("union_tag"):
        return message[0].lower() + message[1:]
    if place[0] in {"ts", "dur"} and first["type"] != "missing":
        return f"{place[0]}: not a finite number of microseconds, 0 or more"
    if len(place) > 2:
        return f"{'.'.join(place[:2])}: {NOT_KEPT}"
    return f"{'.'.join(place)}: {message[0].lower()}{message[1:]}"
