"""What JSON is in Python, where it comes in or goes out and no model says more of it."""

from __future__ import annotations

from typing import Any, TypeAlias, TypedDict, TypeGuard

JsonObject: TypeAlias = dict[str, Any]
"""An object of JSON; also the arguments by name of a call that is somebody else's."""

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""A value of JSON that was read: who uses it asks first what it is."""


class EventLine(TypedDict, total=False):
    """A line of a trace as it was read: whoever wrote it, any member may lack or be anything."""

    name: Any
    cat: Any
    ph: Any
    pid: Any
    tid: Any
    id: Any
    ts: Any
    dur: Any
    args: Any


def is_object(value: object) -> TypeGuard[EventLine]:
    """Return whether what was read from a line is an object, and so may be an event."""
    return isinstance(value, dict)
