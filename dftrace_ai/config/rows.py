"""What a setting is: its type and bounds, how a value of it is read, and what is said of a bad one.

No package does this: to load pydantic takes longer than all else that begins a run.
"""

from __future__ import annotations

from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

from dftrace_ai.errors import ConfigError
from dftrace_ai.wording import in_short

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from typing_extensions import Self, dataclass_transform
else:

    def dataclass_transform(**_: object) -> Callable[[type], type]:
        """Change nothing: what type checkers know of `Settings` is nothing that happens."""
        return lambda kind: kind


Value: TypeAlias = "bool | int | float | str | Path | None"
"""What a setting can be, by its type in the table."""

PREFIX = "DFTRACE_"
MESSAGE_LETTERS = 200

TRUE_WORDS = frozenset({"1", "true", "t", "yes", "y", "on"})
FALSE_WORDS = frozenset({"0", "false", "f", "no", "n", "off"})


def _as_it_is(value: Any) -> Any:
    return value


class Given(NamedTuple):
    """A value and the words that name its source, such as ``trace.yaml:3: compression``."""

    value: object
    origin: str


class Setting:
    """A row of the table of settings.

    Args:
        default: its value where none is given.
        about: what it does, for the documentation.
        least: of a number.
        most: of a number; None for no end.
        read: reads what was given before it is held against the type; its ValueError is a fault.
        accepted: what is accepted, in words; empty where the type says it.
        variable: of the environment.
        alias: dftracer's variable that means the same; empty where there is none.
        read_alias: makes of the text of that variable what ours would hold.
        core: the name that the native core has for it; empty where the core is not told of it.
        to_core: makes of the value what the core takes: text, a whole number or a truth value.

    Of its name and annotation in the class it has `name`, `kind` (the type of its values),
    `optional` (it may be None) and `words` (what alone is accepted as text; empty for any text).
    """

    def __init__(
        self,
        *,
        default: Any,
        about: str,
        least: float | None = None,
        most: float | None = None,
        read: Callable[[object], object] | None = None,
        accepted: str = "",
        variable: str = "",
        alias: str = "",
        read_alias: Callable[[str], object] = _as_it_is,
        core: str = "",
        to_core: Callable[[Any], str | int] = _as_it_is,
    ) -> None:
        self.default = default
        self.about = about
        self.least, self.most = least, most
        self.read = read
        self.accepted = accepted
        self.variable = variable
        self.alias, self.read_alias = alias, read_alias
        self.core, self.to_core = core, to_core

    def declare(self, name: str, annotation: Any) -> None:
        """Take what its name and annotation in the class say."""
        kinds = getattr(annotation, "__args__", (annotation,))  # of a union, or words
        self.name = name
        self.variable = self.variable or PREFIX + name.upper()
        self.words: tuple[str, ...] = kinds if isinstance(kinds[0], str) else ()
        self.kind: type = str if self.words else kinds[0]
        self.optional = NoneType in kinds

    def taken(self, value: object) -> Value:
        """Return a value as the setting has it, or raise: ValueError, TypeError, OverflowError."""
        if value is None and self.optional:
            return None
        if self.read is not None:
            value = self.read(value)
        if self.kind is bool:
            return _truth(value)
        if self.kind is str:
            return _text(value, self.words)
        if self.kind is Path:
            if not isinstance(value, Path):
                raise ValueError("no path")
            return value
        number = _whole(value) if self.kind is int else _number(value)
        # Asked so that NaN is refused, which is neither more nor less.
        if self.least is not None and not number >= self.least:
            raise ValueError("too small")
        if self.most is not None and not number <= self.most:
            raise ValueError("too large")
        return number


def _truth(value: object) -> bool:
    if isinstance(value, bool):
        return value
    word = value.lower() if isinstance(value, str) else str(_whole(value))
    if word not in TRUE_WORDS | FALSE_WORDS:
        raise ValueError("no truth value")
    return word in TRUE_WORDS


def _text(value: object, words: tuple[str, ...]) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    text = str.__str__(value)
    if words and text not in words:
        raise ValueError("no such word")
    return text


def _whole(value: Any) -> int:
    if isinstance(value, bool):  # it would be 1 or 0
        raise TypeError("a truth value")
    if isinstance(value, str):
        whole, point, rest = value.strip().partition(".")
        if not value.isascii() or (point and (not rest or rest.strip("0"))):
            raise ValueError("no whole number")
        return int(whole)
    if hasattr(value, "__index__"):  # whole numbers of NumPy and torch are among these
        return int(value.__index__())
    number = float(value)
    if number % 1 or abs(number) > 2**53:  # beyond it is no number that somebody meant
        raise ValueError("no whole number")
    return int(number)


def _number(value: Any) -> float:
    if isinstance(value, bool) or (isinstance(value, str) and not value.isascii()):
        raise ValueError("no number")
    return float(value)


def accepted_values(row: Setting) -> str:
    """Say in words what is accepted, such as ``a whole number from 1 to 60000``."""
    if row.accepted:
        return row.accepted
    optional = " or none" if row.optional else ""
    if row.words:
        *most, last = (repr(word) for word in row.words)
        return f"{', '.join(most)} or {last}"
    if row.kind is bool:
        return "true or false (also 1 and 0, yes and no, on and off)"
    if row.kind in {int, float}:
        noun = "a whole number" if row.kind is int else "a number"
        bounds = (
            f", {row.least} or more" if row.most is None else f" from {row.least} to {row.most}"
        )
        return noun + bounds + optional
    return f"{'a path' if row.kind is Path else 'text'}{optional}"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint such as ``; did you mean 'rank'?``, or nothing when no name is near."""
    import difflib

    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""


def setting(**row: Any) -> Any:
    """Return a `Setting`, as type checkers see it: what stands for a value of any type."""
    return Setting(**row)


class _Signature:
    """What `help` and notebooks show of the keywords; made when it is asked for."""

    def __get__(self, _: object, owner: type[Settings]) -> object:
        import inspect

        kind = inspect.Parameter.KEYWORD_ONLY
        return inspect.Signature(
            [
                inspect.Parameter(name, kind, default=row.default)
                for name, row in owner._table.items()
            ]
        )


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(setting,))
class Settings:
    """Frozen settings: a class whose attributes are rows of a table, and defaults when it is made.

    A class of them has no future import of annotations: the types are read from it.
    """

    _table: ClassVar[dict[str, Setting]] = {}
    __signature__ = _Signature()

    def __init_subclass__(cls) -> None:
        """Make the table of what stands in the class, below that of the class it is made from."""
        cls._table = dict(cls._table)
        # A user's subclass may have attributes of its own, whose types nobody asks for.
        rows = {name: row for name, row in vars(cls).items() if isinstance(row, Setting)}
        for name, row in rows.items():
            row.declare(name, cls.__annotations__[name])
            cls._table[name] = row
            setattr(cls, name, row.default)

    # Hidden from type checkers, which take the signature from the rows.
    if not TYPE_CHECKING:

        def __init__(self, **values: object) -> None:
            self._take({name: Given(value, name) for name, value in values.items()})

    @classmethod
    def _from(cls, given: Mapping[str, Given]) -> Self:
        made = cls.__new__(cls)
        made._take(given)
        return made

    def _take(self, given: Mapping[str, Given]) -> None:
        values: dict[str, Value] = {}
        faults: list[str] = []
        for name, row in self._table.items():
            if name not in given:
                continue
            value, origin = given[name]
            try:
                values[name] = row.taken(value)
            except (ValueError, TypeError, OverflowError):
                faults.append(
                    f"{origin}: {in_short(value, MESSAGE_LETTERS)} is not accepted; "
                    f"accepted: {accepted_values(row)}"
                )
        faults += [
            f"unknown setting {name!r}{nearest(name, self._table)}"
            for name in given
            if name not in self._table
        ]
        # Not by assignment, which is refused.
        vars(self).update(values, _given=frozenset(given))
        disagreement = "" if faults else self._disagreement()
        if disagreement:
            origins = [given[name].origin for name in given if name in disagreement.split()]
            faults.append(f"{', '.join(origins)}: {disagreement}" if origins else disagreement)
        if faults:
            raise ConfigError("\n".join(faults))

    def _disagreement(self) -> str:
        """Return what is wrong with settings that do not agree; empty where they do."""
        return ""

    def _values_given(self) -> dict[str, Value]:
        """Return what somebody gave, by name in the order of the table."""
        given: frozenset[str] = vars(self)["_given"]
        return {name: getattr(self, name) for name in self._table if name in given}

    def _with(self, values: Mapping[str, Value]) -> Self:
        """Return settings with some replaced, which are not checked and count as given."""
        made = self.__class__.__new__(self.__class__)
        given = vars(self)["_given"] | values.keys()
        vars(made).update({**vars(self), **values}, _given=given)
        return made

    def __setattr__(self, name: str, value: object) -> None:
        raise ConfigError(f"{type(self).__name__} is frozen: {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise ConfigError(f"{type(self).__name__} is frozen: {name} cannot be deleted")

    def __iter__(self) -> Iterator[tuple[str, object]]:
        return ((name, getattr(self, name)) for name in self._table)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self)})"
