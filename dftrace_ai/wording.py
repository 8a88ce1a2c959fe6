"""How messages put numbers, names and values that somebody else chose, and how they are told."""

from __future__ import annotations

import logging
import os
import time
from threading import get_ident
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

LOGGER = logging.getLogger("dftrace_ai")

STANDARD_ERROR = 2

VALUE_LETTERS = 120
"""So much of a value stands in a message."""

ERROR_LETTERS = 400

SAID_S = 5.0
"""So long an end waits for another thread that tells of it; the program's handlers may be slow."""

LOOK_S = 0.001

# Control characters, marks that cannot be seen (those that turn the direction of writing are among
# them), halves of surrogates (bytes of a path that are not UTF-8), ends of lines and paragraphs.
ESCAPED = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})

# By these a spreadsheet knows that a field is to be reckoned; East Asian ones are taken alike.
FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")

# Persian, Hindi and joined emoji need these two.
JOINERS = "\u200c\u200d"


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: ``counted(2, "line") == "2 lines"``."""
    plural = "es" if noun.endswith("s") else "s"
    return f"{count:,} {noun}{'' if count == 1 else plural}"


def quoted(text: str) -> str:
    """Return a name for a message: as it is, or in quotes and escaped if it would not be seen.

    Messages end in terminals and logs, where a control character in a path can hide or
    forge what stands around it.

    Args:
        text: a path, or another text that somebody else chose.

    Returns:
        `text`, or its `repr` where it holds control characters, line breaks, marks that
        turn the direction of writing, or bytes that are not UTF-8.

    Example::

        raise ConfigError(f"{quoted(path)}: cannot be read")
    """
    return text if text.isprintable() else repr(text)


def shell_word(text: str) -> str:
    """Return a path as somebody types it in a shell: as it is, or in quotes where it needs them."""
    import shlex

    word = f"./{text}" if text.startswith("-") else text
    if word.isprintable():
        return shlex.quote(word)
    return "$'" + "".join(map(_typed, os.fsencode(word).decode("latin-1"))) + "'"


def _typed(letter: str) -> str:
    if letter in "\\'":
        return f"\\{letter}"
    return letter if letter.isascii() and letter.isprintable() else f"\\x{ord(letter):02x}"


def escaped(text: str, kept: str = "") -> str:
    r"""Return a text on one line, with escapes such as ``\x1b`` in place of what acts.

    A terminal obeys what it finds in names: escape sequences, line breaks, marks that turn the
    direction of writing.
    """
    if text.isprintable():
        return text
    from unicodedata import category

    def seen(letter: str) -> str:
        if letter in kept or letter in JOINERS or category(letter) not in ESCAPED:
            return letter
        if "\udc80" <= letter <= "\udcff":
            # How Python keeps a byte of a path that is not UTF-8.
            return f"\\x{ord(letter) - 0xDC00:02x}"
        return ascii(letter)[1:-1]

    return "".join(map(seen, text))


def in_csv(value: Any) -> Any:
    """Return a value for a field of CSV: a text that a spreadsheet would run gets ``'`` before it.

    Numbers stay what they are, also those that are texts.
    """
    if not isinstance(value, str) or not value.startswith(FORMULAS) or value == "-":
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def shortened(text: str, letters: int) -> str:
    """Return a text of so many letters at most, with an ellipsis where it was cut."""
    return text if len(text) <= letters else f"{text[: letters - 1]}…"


def in_short(value: object, letters: int = VALUE_LETTERS) -> str:
    """Return a value for a message: its representation, cut where it is long."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        # A number of thousands of digits; tables in tables.
        return f"this {type(value).__name__}"
    return shortened(text, letters)


def described(error: BaseException) -> str:
    """Return class and message of an error on one line, also of one that cannot say its message."""
    lines = filter(None, map(str.strip, _class_and_message(error).splitlines()))
    return escaped(" ".join(lines))


def briefly(error: BaseException) -> str:
    r"""Return class and message of an error on one line, cut where it is long.

    Libraries put pages into theirs, and whatever stands in the values that they were given.
    """
    first = _class_and_message(error).strip().partition("\n")[0]
    return shortened(escaped(first), ERROR_LETTERS)


def _class_and_message(error: BaseException) -> str:
    try:
        message = str(error)
    except Exception as another:  # noqa: BLE001 - the error is not ours, nor is what it does
        message = f"(its message cannot be told: {type(another).__name__})"
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def text_of(name: object) -> str:
    """Return the text of a name that may be anything, such as the key of a mapping."""
    if type(name) is str:
        return name
    try:
        return str(name)
    except Exception:  # noqa: BLE001 - the object is not ours, nor is what it does
        return f"a {type(name).__name__}"


def own_text(word: object) -> str:
    """Return a text's own letters, for which `str` of an enumeration's has the member's name."""
    return str.__str__(word) if isinstance(word, str) else str(word)


class ToldOnce:
    """What was told already: of two calls with the same key, one is the first.

    That holds for calls in several threads, too.

    Example::

        told = ToldOnce()
        if told.first("disk", path):
            log.warning("%s is full, which is told once", path)
    """

    __slots__ = ("_told",)

    def __init__(self) -> None:
        self._told: dict[tuple[object, ...], object] = {}

    def first(self, *key: object) -> bool:
        """Tell whether this is the first call with a key; it is told from now on."""
        if key in self._told:
            return False
        mine = object()
        return self._told.setdefault(key, mine) is mine

    def forget(self) -> None:
        """Begin anew: everything may be told again."""
        self._told.clear()


class LastWord:
    """What is told at an end: once, and whoever comes to that end goes on when it is told.

    A program ends its threads with itself. One that was just about to tell of a loss would tell it
    to nobody, if those who find that somebody tells did not wait for him.

    Example::

        last_word = LastWord()
        last_word.say(lambda: warn("%d events were lost", lost))  # in any thread that ends the run
    """

    __slots__ = ("_is_said", "_sayers")

    def __init__(self) -> None:
        # Appended to, for that cannot be interrupted: the first of them says it.
        self._sayers: list[tuple[int]] = []
        self._is_said = False

    def say(self, say: Callable[[], None]) -> None:
        """Say it, or wait while another thread does."""
        mine = (get_ident(),)
        self._sayers.append(mine)
        first = self._sayers[0]
        if first is mine:
            try:
                say()
            finally:
                self._is_said = True
        elif first != mine:  # else a signal handler has come from within, and would wait for itself
            until_s = time.monotonic() + SAID_S
            while not self._is_said and time.monotonic() < until_s:
                time.sleep(LOOK_S)

    def keep(self) -> None:
        """Have nobody say it any more."""
        self._sayers.insert(0, (0,))
        self._is_said = True


def tell(level: int, message: str, *values: object, exc_info: bool = False) -> None:
    """Log a line; where the program's own logging raises, write it to file number 2.

    It does where ``sys.stderr`` was closed or replaced, and where a handler, a filter or a
    formatter of the program raises. None of it may come out of a training's `stop` or `finalize`.
    """
    try:
        LOGGER.log(level, message, *values, exc_info=exc_info, stacklevel=2)
    except Exception:  # noqa: BLE001 - whatever the program's handlers and streams raise
        _write(message, values)


def warn(message: str, *values: object) -> None:
    """Log a warning as `tell` does."""
    tell(logging.WARNING, message, *values)


def _write(message: str, values: tuple[object, ...]) -> None:
    try:
        line = f"dftrace: {message % values}\n"
        os.write(STANDARD_ERROR, line.encode("utf-8", "backslashreplace"))
    except Exception:  # noqa: BLE001 - there is nobody left to be told
        return
