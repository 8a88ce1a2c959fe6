"""Regular expressions of a config, found in names without ever taking long.

Those whose repeats are few and not within each other are left to `re`. The others, of which `re`
may try more ways than it ever comes to the end of, become an automaton that reads each letter once.
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# How an expression is read; the same in all Pythons up to now, by another name before 3.11.
_PARSER: Final[Any] = import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")
_COMPILER: Final[Any] = import_module(
    "re._compiler" if sys.version_info >= (3, 11) else "sre_compile"
)

MOST_LONG: Final = 2
"""Repeats of any length in an expression that `re` gets: it tries all their lengths together."""
MOST_WAYS: Final = 64
"""What the other choices in it may come to."""
SHORT: Final = 8
MOST_WRITTEN: Final = 10_000
"""Letters of an expression."""
MOST_LETTERS: Final = 500
"""Of a name that `re` gets."""
MOST_STEPS: Final = 2_000
"""Of an automaton, so that no letter of a name takes long."""
MOST_KNOWN: Final = 50_000
"""Steps that an automaton remembers."""

_REPEATS: Final = frozenset({"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"})
_LETTERS: Final = frozenset({"LITERAL", "NOT_LITERAL", "ANY", "IN"})
_REMEMBERS: Final = "looks back at what it has found"
_UNSUPPORTED: Final = {
    "GROUPREF": _REMEMBERS,
    "GROUPREF_EXISTS": _REMEMBERS,
    "ATOMIC_GROUP": "holds on to what it has found",
    "POSSESSIVE_REPEAT": "holds on to what it has found",
}


@lru_cache(maxsize=256)
def searcher(pattern: str) -> Callable[[str], bool]:
    r"""Return what tells whether a regular expression has a match anywhere in a name."""
    if len(pattern) > MOST_WRITTEN:
        raise ValueError(f"is not accepted: it has more than {MOST_WRITTEN:,} letters")
    try:
        compiled = re.compile(pattern)
        tree = _PARSER.parse(pattern)
        cheap = _is_cheap(tree)
        try:
            by_letters = _Automaton(tree, tree.state.flags).search
        except ValueError:
            if not cheap:
                raise
            return lambda name: compiled.search(name) is not None
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"is no regular expression: {error}") from error
    if not cheap:
        return by_letters
    return lambda name: (
        compiled.search(name) is not None if len(name) <= MOST_LETTERS else by_letters(name)
    )


def _is_cheap(tree: Any) -> bool:
    """Tell whether the ways that `re` may have to try are few, on names of any kind."""
    long, ways = 0, 1
    pending = [(tree, False, 1)]
    while pending:
        items, repeated, times = pending.pop()
        for op, argument in items:
            within, often = repeated, times
            inner, choices = _inside(op.name, argument), 1
            if op.name in _REPEATS:
                least, most, _ = argument
                choices = most - least + 1
                within |= most > 1
                often *= max(least, 1)
            elif op.name == "BRANCH":
                choices = len(argument[1])
            elif op.name in _UNSUPPORTED:
                choices = 2
            if choices > 1 and repeated:
                return False
            if choices > SHORT:
                long += 1
            else:
                ways *= choices
            if long > MOST_LONG or ways > MOST_WAYS or often > MOST_LETTERS:
                return False
            pending += [(one, within, often) for one in inner]
    return True


def _inside(name: str, argument: Any) -> Iterable[Any]:
    """Return the expressions within one."""
    if name in _REPEATS:
        return (argument[2],)
    if name == "BRANCH":
        return tuple(argument[1])
    if name == "SUBPATTERN":
        return (argument[3],)
    if name in {"ASSERT", "ASSERT_NOT"}:
        return (argument[1],)
    if name == "GROUPREF_EXISTS":
        return tuple(one for one in argument[1:] if one is not None)
    return (argument,) if name == "ATOMIC_GROUP" else ()


_Known = dict[tuple[int, int], bool]
"""What looks around at each place of a name have found, so that each is done once."""


class _Step(NamedTuple):
    """A step of an automaton."""

    # Tells whether a letter is the one that is needed; then it goes on behind.
    letter: Callable[[str], object] | None = None
    targets: tuple[int, ...] = ()  # where it goes on otherwise, wherever that leads
    condition: int | None = None  # the number of what has to hold here; None for nothing


class _Automaton:
    """An expression as steps, all of which are taken at once."""

    def __init__(self, tree: Any, flags: int) -> None:
        self._steps: list[_Step] = []
        self._conditions: list[Callable[[str, int, _Known], bool]] = []
        self._known: dict[Any, tuple[bool, frozenset[int]]] = {}
        self._add(tree, flags)
        self._end = len(self._steps)

    # Steps are put down in the order of the expression; the last one goes on to the end.

    def _put(self, step: _Step) -> int:
        if len(self._steps) >= MOST_STEPS:
            raise ValueError("may take very long on some names: what it repeats is too much")
        self._steps.append(step)
        return len(self._steps) - 1

    def _add(self, items: Any, flags: int) -> None:
        for op, argument in items:
            name = op.name
            if name in _LETTERS:
                self._put(_Step(_compiled((op, argument), flags).fullmatch))
            elif name == "BRANCH":
                self._add_any_of(argument[1], flags)
            elif name == "SUBPATTERN":
                _, added, removed, inner = argument
                self._add(inner, _COMPILER._combine_flags(flags, added, removed))
            elif name in {"MAX_REPEAT", "MIN_REPEAT"}:
                self._add_repeat(argument, flags)
            elif name == "FAILURE":
                self._put(_Step())
            else:
                self._add_condition(op, argument, flags)

    def _add_any_of(self, alternatives: list[Any], flags: int) -> None:
        fork = self._put(_Step())
        begins, ends = [], []
        for one in alternatives:
            begins.append(len(self._steps))
            self._add(one, flags)
            ends.append(self._put(_Step()))
        self._steps[fork] = _Step(targets=tuple(begins))
        for end in ends:
            self._steps[end] = _Step(targets=(len(self._steps),))

    def _add_repeat(self, argument: Any, flags: int) -> None:
        least, most, inner = argument
        for _ in range(least):
            before = len(self._steps)
            self._add(inner, flags)
            if len(self._steps) == before:
                break  # nothing, however often
        if most is _PARSER.MAXREPEAT:
            fork = self._put(_Step())
            self._add(inner, flags)
            self._put(_Step(targets=(fork,)))
            self._steps[fork] = _Step(targets=(fork + 1, len(self._steps)))
            return
        forks = []
        for _ in range(most - least):
            forks.append(self._put(_Step()))
            self._add(inner, flags)
        for fork in forks:
            self._steps[fork] = _Step(targets=(fork + 1, len(self._steps)))

    def _add_condition(self, op: Any, argument: Any, flags: int) -> None:
        number = len(self._conditions)
        if op.name == "AT":
            place = _compiled((op, argument), flags)
            self._conditions.append(lambda text, at, _: place.match(text, at) is not None)
        elif op.name in {"ASSERT", "ASSERT_NOT"}:
            direction, inner = argument
            wanted = op.name == "ASSERT"
            behind = inner.getwidth()[0] if direction < 0 else None
            looked = _Automaton(inner, flags)
            self._conditions.append(
                lambda text, at, known: looked.holds(text, at, behind, known) is wanted
            )
        else:
            why = _UNSUPPORTED.get(op.name, f"has a {op.name}")
            raise ValueError(f"may take for ever on some names: it {why} among many repeats")
        self._put(_Step(condition=number))

    # Reading a name

    def search(self, text: str) -> bool:
        """Tell whether there is a match anywhere."""
        return self._run(text, 0, len(text), {}, anywhere=True)

    def holds(self, text: str, at: int, behind: int | None, known: _Known) -> bool:
        """Tell whether there is a match at a place."""
        # It begins at the place, or so many letters before it (None: at it), and then has to end
        # there.
        key = (id(self), at)
        if key not in known:
            if behind is None:
                known[key] = self._run(text, at, len(text), known)
            else:
                known[key] = at >= behind and self._run(text, at - behind, at, known, whole=True)
        return known[key]

    def _run(
        self,
        text: str,
        begin: int,
        stop: int,
        known: _Known,
        *,
        anywhere: bool = False,
        whole: bool = False,
    ) -> bool:
        at_begin = frozenset({0})
        here = at_begin
        for at in range(begin, stop + 1):
            truths = tuple(condition(text, at, known) for condition in self._conditions)
            letter = text[at] if at < stop else ""
            key = (here, truths, letter)
            found = self._known.get(key)
            if found is None:
                if len(self._known) >= MOST_KNOWN:
                    self._known.clear()
                found = self._known[key] = self._go(here, truths, letter)
            ended, here = found
            if ended and (not whole or at == stop):
                return True
            if anywhere:
                here |= at_begin
            elif not here:
                return False
        return False

    def _go(
        self, here: frozenset[int], truths: tuple[bool, ...], letter: str
    ) -> tuple[bool, frozenset[int]]:
        """Return whether the end is reached without a letter, and where the letter leads."""
        reached = set(here)
        pending = list(here)
        behind = set()
        while pending:
            place = pending.pop()
            if place == self._end:
                continue
            step = self._steps[place]
            targets = step.targets
            if step.letter is not None:
                if letter and step.letter(letter):
                    behind.add(place + 1)
            elif step.condition is not None and truths[step.condition]:
                targets = (place + 1,)
            for target in targets:
                if target not in reached:
                    reached.add(target)
                    pending.append(target)
        return self._end in reached, frozenset(behind)


def _compiled(item: Any, flags: int) -> re.Pattern[str]:
    """Return a single piece of an expression by itself."""
    state = _PARSER.State()
    state.flags = flags
    compiled: re.Pattern[str] = _COMPILER.compile(_PARSER.SubPattern(state, [item]), flags)
    return compiled
