"""Which events are meant: ``cat = 'comm' and dur_us > 500``, read, and held against columns."""

from __future__ import annotations

import fnmatch
import operator
import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np

from dftrace_ai.errors import ConfigError
from dftrace_ai.wording import in_short

if TYPE_CHECKING:
    from collections.abc import Callable

    from dftrace_ai.analysis.reading.event_columns import EventColumns, Integers

__all__ = ["FIELDS", "Where", "where_of"]

FIELDS: Final = ("cat", "name", "rank", "host", "pid", "tid", "dur_us")
"""What is asked of an event, beside ``args.`` with the name of an argument."""

ARGS: Final = "args."
WORDS: Final = {"true": True, "false": False, "null": None}
RESERVED: Final = frozenset({"and", "or", "not", "like", "in", *WORDS})
# Who nests deeper has made a mistake.
MOST_DEPTH: Final = 50

OPERATORS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

TOKEN: Final = re.compile(
    r"""\s*(?:(?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*")
    |(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
    |(?P<word>[^\W\d][\w.\-/:]*)
    |(?P<sign><=|>=|!=|<>|==|=|<|>|\(|\)|,))""",
    re.VERBOSE,
)

MISSING: Final = object()

# Smaller numbers are the same as floats.
EXACT: Final = 2**53


class _Token(NamedTuple):
    """A piece of the text: its kind, what it means, and where it begins."""

    kind: str
    value: Any
    at: int


@dataclass(frozen=True)
class _Comparison:
    """A field that is held against values; an event without the field never meets it.

    Attributes:
        field: its name.
        holds: whether a value meets it.
        number: an operator and a number, where that is all it is held against.
    """

    field: str
    holds: Callable[[Any], bool]
    number: tuple[str, int | float] | None = None


@dataclass(frozen=True)
class _Not:
    """What does not hold."""

    inner: _Node


@dataclass(frozen=True)
class _Both:
    """Both hold, or for `any` one of them."""

    first: _Node
    second: _Node
    any: bool


_Node: TypeAlias = "_Comparison | _Not | _Both"


@dataclass(frozen=True)
class Where:
    """A condition on events.

    Attributes:
        text: as it was given.
    """

    text: str
    _node: _Node

    def rows(self, columns: EventColumns) -> Integers:
        """Return which events of a trace meet it, as a mask.

        Args:
            columns: of one file.
        """
        return _held(self._node, columns, np.arange(len(columns)))


def where_of(text: str) -> Where:
    """Read a condition.

    Comparisons ``=``, ``!=``, ``<``, ``<=``, ``>``, ``>=``, ``like`` (``%`` for any letters, ``_``
    for one) and ``in (...)`` of `FIELDS` or ``args.NAME`` with texts in quotes, numbers,
    ``true``, ``false`` and ``null``; ``and``, ``or``, ``not`` and parentheses.

    Raises:
        ConfigError: it is none.

    Example::

        where = where_of("cat = 'compute' and not args.epoch in (0, 1)")
        for columns in event_columns(open_traces(["out/"])):
            print(columns.trace, where.rows(columns).sum())
    """
    reader = _Reader(text)
    node = reader.either(0)
    reader.end()
    return Where(text, node)


class _Reader:
    """Reads the text from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[_Token] = []
        self._next = 0
        at = 0
        while text[at:].strip():
            found = TOKEN.match(text, at)
            if found is None:
                raise self._wrong(at + len(text[at:]) - len(text[at:].lstrip()))
            self._tokens.append(_token(found))
            at = found.end()
        self._tokens.append(_Token("end", "", len(text)))

    def either(self, depth: int) -> _Node:
        """Read what ``or`` joins."""
        if depth > MOST_DEPTH:
            raise ConfigError(f"--where: more than {MOST_DEPTH} parentheses within each other")
        node = self._both(depth)
        while self._takes("or"):
            node = _Both(node, self._both(depth), any=True)
        return node

    def end(self) -> None:
        """Refuse what stands behind the condition."""
        if self._token.kind != "end":
            raise self._wrong(self._token.at)

    def _both(self, depth: int) -> _Node:
        node = self._one(depth)
        while self._takes("and"):
            node = _Both(node, self._one(depth), any=False)
        return node

    def _one(self, depth: int) -> _Node:
        negated = False
        while self._takes("not"):
            negated = not negated
        if self._takes("("):
            node = self.either(depth + 1)
            self._must_take(")")
        else:
            node = self._comparison()
        return _Not(node) if negated else node

    def _comparison(self) -> _Node:
        field = self._field()
        negated = self._takes("not")
        if self._takes("in"):
            self._must_take("(")
            values = [self._value()]
            while self._takes(","):
                values.append(self._value())
            self._must_take(")")
            return _Comparison(field, lambda value: _is_in(value, values) is not negated)
        if self._takes("like"):
            pattern = self._value()
            if not isinstance(pattern, str):
                raise self._wrong(self._tokens[self._next - 1].at)
            like = _like(pattern)
            return _Comparison(
                field, lambda value: isinstance(value, str) and bool(like(value)) is not negated
            )
        token = self._token
        if negated or token.value not in OPERATORS or token.kind != "sign":
            raise self._wrong(token.at)
        self._next += 1
        operand = self._value()
        number = (str(token.value), operand) if _kind(operand) == "number" else None
        return _Comparison(field, lambda value: _compares(value, token.value, operand), number)

    def _field(self) -> str:
        token = self._token
        if token.kind != "word" or token.value in RESERVED:
            raise self._wrong(token.at)
        self._next += 1
        name = str(token.value)
        if name not in FIELDS and not (name.startswith(ARGS) and name != ARGS):
            near = get_close_matches(name, FIELDS, 1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise ConfigError(
                f"--where {in_short(self._text)}: there is no {in_short(name)}; {hint}there are: "
                f"{', '.join(FIELDS)}, and args.NAME; texts stand in quotes"
            )
        return name

    def _value(self) -> Any:
        token = self._token
        if token.kind == "word" and token.value in WORDS:
            self._next += 1
            return WORDS[token.value]
        if token.kind not in {"text", "number"}:
            raise self._wrong(token.at)
        self._next += 1
        return token.value

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _takes(self, what: str) -> bool:
        token = self._token
        found = token.kind in {"word", "sign"} and token.value == what
        self._next += found
        return found

    def _must_take(self, what: str) -> None:
        if not self._takes(what):
            raise self._wrong(self._token.at)

    def _wrong(self, at: int) -> ConfigError:
        rest = self._text[at:].strip()
        where = f"at {in_short(rest, 40)}" if rest else "at its end"
        return ConfigError(
            f"--where {in_short(self._text)} is not accepted {where}; accepted: comparisons "
            "such as cat = 'comm', dur_us > 500, name like 'fetch%', args.step in (1, 2), joined "
            "by and, or, not and parentheses"
        )


def _token(found: re.Match[str]) -> _Token:
    kind = str(found.lastgroup)
    text = found[kind]
    at = found.start(kind)
    if kind == "text":
        quote = text[0]
        return _Token(kind, text[1:-1].replace(quote * 2, quote), at)
    if kind == "number":
        return _Token(kind, int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text), at)
    # An argument may be called as a word of the grammar.
    return _Token(kind, text.lower() if text.lower() in RESERVED else text, at)


def _like(pattern: str) -> Callable[[str], object]:
    # The expressions of fnmatch take each % as short as can be, once and for all: `.*` many times
    # over would be tried in more ways than ever come to an end.
    pieces = {"%": "*", "_": "?", "*": "[*]", "?": "[?]", "[": "[[]"}
    shell = "".join(pieces.get(letter, letter) for letter in pattern)
    return re.compile(fnmatch.translate(shell)).match


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return "text" if isinstance(value, str) else "null" if value is None else "other"


def _compares(value: Any, compared: str, operand: Any) -> bool:
    if _kind(value) != _kind(operand):
        return OPERATORS[compared] is operator.ne
    if _kind(value) in {"null", "other"} and OPERATORS[compared] not in {operator.eq, operator.ne}:
        return False
    return bool(OPERATORS[compared](value, operand))


def _is_in(value: Any, values: list[Any]) -> bool:
    return any(_compares(value, "=", each) for each in values)


def _held(node: _Node, columns: EventColumns, rows: Integers) -> Integers:
    """Return which of some events meet a condition."""
    if isinstance(node, _Not):
        return ~_held(node.inner, columns, rows)
    if isinstance(node, _Both):
        held = _held(node.first, columns, rows)
        # The second is asked only where it matters: arguments are slow to read.
        open_rows = np.flatnonzero(~held if node.any else held)
        held[open_rows] = _held(node.second, columns, rows[open_rows])
        return held
    return _compared(node, columns, rows)


def _compared(node: _Comparison, columns: EventColumns, rows: Integers) -> Integers:
    field = node.field
    if field in {"cat", "name"}:
        codes, which = np.unique(columns.label[rows], return_inverse=True)
        held = [node.holds(getattr(columns.labels[code], field)) for code in codes.tolist()]
        return np.array(held, bool)[which]
    if field in {"rank", "host"}:
        header = columns.trace.header
        value = getattr(header, field) if header is not None else None
        return np.full(len(rows), value is not None and node.holds(value))
    if field.startswith(ARGS):
        name = field.removeprefix(ARGS)
        values = (columns.args(row).get(name, MISSING) for row in rows.tolist())
        return np.array([value is not MISSING and node.holds(value) for value in values], bool)
    found = columns.dur_ns if field == "dur_us" else getattr(columns, field)
    figures: Integers = found[rows]
    if node.number and abs(node.number[1]) < EXACT and np.abs(figures).max(initial=0) < EXACT:
        compared, operand = node.number
        if field == "dur_us":
            return np.asarray((figures >= 0) & OPERATORS[compared](figures / 1000, operand))
        return np.asarray(OPERATORS[compared](figures, operand))
    # Of numbers there are few that differ: threads, processes and rounded durations.
    numbers, which = np.unique(figures, return_inverse=True)
    if field == "dur_us":
        held = [number >= 0 and node.holds(number / 1000) for number in numbers.tolist()]
    else:
        held = [node.holds(number) for number in numbers.tolist()]
    return np.array(held, bool)[which]
