"""What Perfetto v52 makes of a trace line: its ways with strings and arguments, in one place."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from perfetto.engine import Scalar

QUOTED = json.JSONEncoder(ensure_ascii=False).encode
LITERAL = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"')


def literals(line: str) -> Any:
    """The line's value with every string as it stands between its quotes, escapes and all."""
    return json.loads(LITERAL.sub(lambda m: QUOTED(m[1]), line) if "\\" in line else line)


def unescaped(literal: str) -> str:
    """The string between the quotes, decoded only where it holds an escaped quote."""
    if '\\"' not in literal:
        return literal
    decoded: str = json.loads(f'"{literal}"')
    return decoded


def shown(literal: str) -> str:
    """What is displayed of a JSON string, given as it stands between its quotes.

    Escapes are decoded only in a string that holds an escaped quote; any other
    is shown with its escapes as written. A decoded NUL ends what is shown.
    """
    return unescaped(literal).partition("\0")[0]


def track(name: str, series: str) -> str:
    """The name of the track of a counter's series, both given as literals."""
    return f"{unescaped(name)} {unescaped(series)}".partition("\0")[0]


def flattened(args: Any) -> Iterator[tuple[str, Scalar]]:
    """The key and value pairs that an args object of string literals comes to.

    null, {} and [] leave nothing. A decoded NUL in a key ends the whole path.
    """
    for path, value in _paths(args, None):
        yield path.partition("\0")[0], shown(value) if isinstance(value, str) else value


def _paths(value: Any, at: str | None) -> Iterator[tuple[str, Scalar]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _paths(item, unescaped(key) if at is None else f"{at}.{unescaped(key)}")
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _paths(item, f"{at}[{i}]")
    elif value is not None:
        assert at is not None, "args is an object"
        yield at, value
