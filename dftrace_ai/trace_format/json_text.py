"""JSON of what the first line of a trace says, made without loading Python's own writer of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["json_text"]

_SHORT = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
_ESCAPES = str.maketrans({**{chr(code): f"\\u{code:04x}" for code in range(32)}, **_SHORT})


def json_text(value: object, *, ascii_only: bool = False) -> str:
    r"""Return a value as JSON on one line, without spaces between its parts.

    A text never ends with ``\\``, by which Perfetto would lose the rest of the file.

    Args:
        value: None, a truth value, a number, text, or a list, tuple or mapping of these; keys are
            text.
        ascii_only: other letters are escaped, halves of surrogates among them.

    Raises:
        TypeError: there is something else in it.

    Example::

        json_text({"rank": 3, "host": "node7"})  # {"rank":3,"host":"node7"}
    """
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return _text(value, ascii_only)
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return _list(value, ascii_only)
    if isinstance(value, dict):
        return _object(value, ascii_only)
    raise TypeError(f"a {type(value).__name__} has no form in JSON")


def _list(values: Sequence[object], ascii_only: bool) -> str:
    return f"[{','.join(json_text(one, ascii_only=ascii_only) for one in values)}]"


def _object(values: Mapping[str, object], ascii_only: bool) -> str:
    parts = (
        f"{_text(name, ascii_only)}:{json_text(value, ascii_only=ascii_only)}"
        for name, value in values.items()
    )
    return f"{{{','.join(parts)}}}"


def _text(value: str, ascii_only: bool) -> str:
    text = value.translate(_ESCAPES)
    if value.endswith("\\"):
        text = text[:-1] + "u005c"
    if ascii_only and not text.isascii():
        text = "".join(one if one.isascii() else _units(one) for one in text)
    return f'"{text}"'


def _units(letter: str) -> str:
    data = letter.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[at : at + 2].hex()}" for at in range(0, len(data), 2))
