"""What Perfetto v52 makes of a trace line: its ways with strings and arguments, in one place."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from perfetto.engine import Scalar

LITERAL = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"')


def literals(line: str) -> Any:
    """The line's value with every string as it stands between its quotes, escapes and all."""
    return json.loads(LITERAL.sub(lambda m: json.dumps(m[1], ensure_ascii=False), line))


def shown(literal: str) -> str:
    r"""What is displayed of a JSON string, given as it stands between its quotes.

    Escapes are decoded only in a string that holds an escaped quote; any other
    is shown with its escapes as written. A decoded NUL ends the string.
    """
    if '\\"' not in literal:
        return literal
    decoded: str = json.loads(f'"{literal}"')
    return decoded.partition("\0")[0]


def flattened(args: Any, at: str = "") -> Iterator[tuple[str, Scalar]]:
    """The key and value pairs that an args object of string literals comes to.

    null, {} and [] leave nothing.
    """
    if isinstance(args, dict):
        for key, value in args.items():
            yield from flattened(value, f"{at}.{shown(key)}" if at else shown(key))
    elif isinstance(args, list):
        for i, value in enumerate(args):
            yield from flattened(value, f"{at}[{i}]")
    elif isinstance(args, str):
        yield at, shown(args)
    elif args is not None:
        yield at, args
