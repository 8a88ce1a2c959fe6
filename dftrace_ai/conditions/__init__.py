"""Conditions that users write, such as ``cat = 'comm' and dur_us > 500``: how they are read.

Whoever takes some says which names there are, and what of it a name stands for; what a comparison
means, and what is said of one that is none, is the same everywhere.
"""

from __future__ import annotations

import fnmatch
import operator
import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from dftrace_ai.errors import ConfigError
from dftrace_ai.wording import in_short

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = [
    "MISSING",
    "OPERATORS",
    "Comparison",
    "Condition",
    "Grammar",
    "Joined",
    "Not",
    "Written",
    "all_of",
    "compares",
    "condition_of",
    "holds",
    "kind_of",
    "names_in",
    "near",
    "written",
]

MISSING: Final = object()
"""What something has of a name that it has not got."""

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

_WORDS: Final = {"true": True, "false": False, "null": None, "none": None}
_NOT_FINITE: Final = frozenset({"nan", "inf", "infinity"})
_RESERVED: Final = frozenset({"and", "or", "not", "like", "in", *_WORDS})
# Who nests deeper has made a mistake.
_MOST_DEPTH: Final = 50

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<text>'(?:[^']|'')*')
    |(?P<quoted>"(?:[^"]|"")*")
    |(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.\-/:]))
    |(?P<figure>\.[^\W\d]\w*)
    |(?P<word>[^\W\d][\w.\-/:]*)
    |(?P<sign><=|>=|!=|<>|==|=|<|>|\(|\)|,))""",
    re.VERBOSE,
)

# A name, in double quotes where it has signs, a sign, and all that is behind it.
_WRITTEN: Final = re.compile(
    r'(?:"(?P<quoted>[^"]+)"(?P<behind>[^<>=!"]*)|(?P<name>[^<>="]*?))'
    r"(?P<sign><=|>=|!=|==|=|<|>)(?P<value>.*)",
    re.DOTALL,
)


def kind_of(value: Any) -> str:
    """Return what a value is; only two of a kind can be greater or smaller."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return "text" if isinstance(value, str) else "null" if value is None else "other"


def compares(value: Any, sign: str, operand: Any) -> bool:
    """Return whether a value compares so; one of another kind is unequal, and no more."""
    compared = OPERATORS[sign]
    if kind_of(value) != kind_of(operand):
        return compared is operator.ne
    if kind_of(value) in {"null", "other"} and compared not in {operator.eq, operator.ne}:
        return False
    return bool(compared(value, operand))


def near(name: str, names: Iterable[str]) -> str | None:
    """Return the name that is meant, where one is nearly the same."""
    return next(iter(get_close_matches(name, sorted(names), 1)), None)


class Written(NamedTuple):
    """One comparison as it was written.

    Attributes:
        name: what is compared.
        quoted: it stood in double quotes.
        behind: what stands between these and the sign.
        sign: how.
        value: all that is behind the sign.
    """

    name: str
    quoted: bool
    behind: str
    sign: str
    value: str


def written(text: str) -> Written | None:
    """Split one comparison whose value may be any text; None where it is none."""
    match = _WRITTEN.fullmatch(text.strip())
    if match is None:
        return None
    name = match["quoted"] or match["name"].rstrip()
    if not name:
        return None
    behind = (match["behind"] or "").rstrip()
    return Written(name, bool(match["quoted"]), behind, match["sign"], match["value"].strip())


@dataclass(frozen=True)
class Comparison:
    """A name that is held against values; what has nothing of the name never meets it.

    Attributes:
        name: what is compared.
        holds: whether a value meets it.
        number: an operator and a number, where that is all it is held against.
    """

    name: str
    holds: Callable[[Any], bool]
    number: tuple[str, int | float] | None = None


@dataclass(frozen=True)
class Not:
    """What does not hold."""

    inner: Condition


@dataclass(frozen=True)
class Joined:
    """All hold, or for `any` one of them."""

    conditions: tuple[Condition, ...]
    any: bool


Condition: TypeAlias = "Comparison | Not | Joined"


class Grammar(NamedTuple):
    """What conditions are about.

    Attributes:
        option: by which they are given.
        accepted: what one looks like, for a message.
        names: what can be compared; empty where that is not known beforehand.
        prefix: of further names that can.
    """

    option: str
    accepted: str
    names: tuple[str, ...] = ()
    prefix: str = ""


def all_of(texts: Sequence[str]) -> str:
    """Return the condition that all of some conditions hold."""
    return texts[0] if len(texts) == 1 else " and ".join(f"({text})" for text in texts)


def holds(condition: Condition, value_of: Callable[[str], Any]) -> bool:
    """Return whether a condition is met by something of which a name is `MISSING` or a value."""
    if isinstance(condition, Not):
        return not holds(condition.inner, value_of)
    if isinstance(condition, Joined):
        joined = any if condition.any else all
        return joined(holds(each, value_of) for each in condition.conditions)
    value = value_of(condition.name)
    return value is not MISSING and condition.holds(value)


def names_in(condition: Condition) -> Iterator[str]:
    """Yield the names that a condition compares, from left to right."""
    if isinstance(condition, Comparison):
        yield condition.name
    elif isinstance(condition, Not):
        yield from names_in(condition.inner)
    else:
        for each in condition.conditions:
            yield from names_in(each)


def condition_of(text: str, grammar: Grammar) -> Condition:
    """Read comparisons that are joined by ``and``, ``or``, ``not`` and parentheses.

    Comparisons are ``=``, ``!=``, ``<``, ``<=``, ``>``, ``>=``, ``like`` (``%`` for any letters,
    ``_`` for one) and ``in (...)``, with numbers, ``true``, ``false``, ``null``, and texts, which
    stand in quotes unless they are one word. A name may stand in double quotes.

    Raises:
        ConfigError: it is none.
    """
    reader = _Reader(text, grammar)
    condition = reader.either(0)
    reader.end()
    return condition


class _Token(NamedTuple):
    """A piece of the text: its kind, what it means, and where it begins."""

    kind: str
    value: Any
    at: int


class _Reader:
    """Reads the text from left to right."""

    def __init__(self, text: str, grammar: Grammar) -> None:
        self._text = text
        self._grammar = grammar
        self._tokens: list[_Token] = []
        self._next = 0
        at, end = 0, len(text.rstrip())
        while at < end:
            match = _TOKEN.match(text, at)
            if match is None:
                raise self._wrong(at)
            try:
                self._tokens.append(_token(match))
            except ValueError as error:  # Python reads no whole number of so many digits
                raise self._wrong(at) from error
            at = match.end()
        self._tokens.append(_Token("end", "", len(text)))

    def either(self, depth: int) -> Condition:
        """Read what ``or`` joins."""
        if depth > _MOST_DEPTH:
            raise ConfigError(
                f"{self._grammar.option}: more than {_MOST_DEPTH} parentheses within each other"
            )
        return self._joined("or", lambda: self._joined("and", lambda: self._single(depth)))

    def end(self) -> None:
        """Refuse what stands behind the condition."""
        if self._token.kind != "end":
            raise self._wrong(self._token.at)

    def _joined(self, word: str, read: Callable[[], Condition]) -> Condition:
        conditions = [read()]
        while self._takes(word):
            conditions.append(read())
        return Joined(tuple(conditions), any=word == "or") if len(conditions) > 1 else conditions[0]

    def _single(self, depth: int) -> Condition:
        negated = False
        while self._takes("not"):
            negated = not negated
        if self._takes("("):
            condition = self.either(depth + 1)
            self._must_take(")")
        else:
            condition = self._comparison()
        return Not(condition) if negated else condition

    def _comparison(self) -> Comparison:
        name = self._name()
        negated = self._takes("not")
        if self._takes("in"):
            self._must_take("(")
            values = [self._value()]
            while self._takes(","):
                values.append(self._value())
            self._must_take(")")
            return Comparison(
                name, lambda value: any(compares(value, "=", v) for v in values) is not negated
            )
        if self._takes("like"):
            pattern = self._value()
            if not isinstance(pattern, str):
                raise self._wrong(self._tokens[self._next - 1].at)
            like = _like(pattern)
            return Comparison(
                name, lambda value: isinstance(value, str) and bool(like(value)) is not negated
            )
        token = self._token
        if negated or token.value not in OPERATORS or token.kind != "sign":
            raise self._wrong(token.at)
        self._next += 1
        operand = self._value()
        number = (str(token.value), operand) if kind_of(operand) == "number" else None
        return Comparison(name, lambda value: compares(value, token.value, operand), number)

    def _name(self) -> str:
        token = self._token
        is_word = token.kind == "word" and token.value not in _RESERVED
        if not is_word and (token.kind != "quoted" or not token.value):
            raise self._wrong(token.at)
        self._next += 1
        name = str(token.value)
        if not is_word and self._token.kind == "figure":
            name += self._token.value
            self._next += 1
        names, prefix = self._grammar.names, self._grammar.prefix
        if names and name not in names and not (name.startswith(prefix) and name != prefix):
            meant = near(name, names)
            hint = f"did you mean {meant!r}? " if meant else ""
            raise ConfigError(
                f"{self._grammar.option} {in_short(self._text)}: there is no {in_short(name)}; "
                f"{hint}there are: {', '.join(names)}, and {prefix}NAME"
            )
        return name

    def _value(self) -> Any:
        token = self._token
        is_bare = token.kind == "word" and token.value not in _RESERVED
        if token.kind == "word" and token.value in _WORDS:
            self._next += 1
            return _WORDS[token.value]
        if token.kind not in {"text", "quoted", "number"} and not is_bare:
            raise self._wrong(token.at)
        self._next += 1
        if is_bare and token.value.lower() in _NOT_FINITE:
            return float(token.value)
        return token.value

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _takes(self, what: str) -> bool:
        token = self._token
        is_there = token.kind in {"word", "sign"} and token.value == what
        self._next += is_there
        return is_there

    def _must_take(self, what: str) -> None:
        if not self._takes(what):
            raise self._wrong(self._token.at)

    def _wrong(self, at: int) -> ConfigError:
        rest = self._text[at:].strip()
        where = f"at {in_short(rest, 40)}" if rest else "at its end"
        return ConfigError(
            f"{self._grammar.option} {in_short(self._text)} is not accepted {where}; accepted: "
            f"{self._grammar.accepted}"
        )


def _token(match: re.Match[str]) -> _Token:
    kind = str(match.lastgroup)
    text = match[kind]
    at = match.start(kind)
    if kind in {"text", "quoted"}:
        quote = text[0]
        return _Token(kind, text[1:-1].replace(quote * 2, quote), at)
    if kind == "number":
        return _Token(kind, int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text), at)
    # An argument may be called as a word of the grammar.
    return _Token(kind, text.lower() if text.lower() in _RESERVED else text, at)


def _like(pattern: str) -> Callable[[str], object]:
    # The expressions of fnmatch take each % as short as can be, once and for all: `.*` many times
    # over would be tried in more ways than ever come to an end.
    pieces = {"%": "*", "_": "?", "*": "[*]", "?": "[?]", "[": "[[]"}
    shell = "".join(pieces.get(letter, letter) for letter in pattern)
    return re.compile(fnmatch.translate(shell)).match
