"""What every routine has: it takes values on the training's thread, makes records on another."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from dftrace_ai.loggers.config import EntryConfig
    from dftrace_ai.loggers.records import Point, Record


class BaseLogger(abc.ABC):
    """A routine: one kind of value that is logged.

    A subclass with a `key` is known to configs as soon as it is defined.

    Args:
        settings: those of the entry that has it first; how values are converted is alike in all.

    Attributes:
        key: in a config.
        accepts: which values it takes, in words.
        packages: what must be importable, by the names of the modules.

    Example::

        class TextLogger(BaseLogger):
            key = "text"
            accepts = "any object with a str()"

            def take(self, value):
                return str(value)

            def records(self, name, taken, at):
                yield TextRecord(name, taken, at)
    """

    key: ClassVar[str] = ""
    accepts: ClassVar[str] = "any value"
    packages: ClassVar[tuple[str, ...]] = ()

    known: ClassVar[dict[str, type[BaseLogger]]] = {}

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if cls.__dict__.get("key"):
            BaseLogger.known[cls.key] = cls

    def __init__(self, settings: EntryConfig) -> None:
        self.settings = settings

    def untracked(self, data: Collection[str]) -> Sequence[str]:
        """Return the names that are logged of the data where none are configured."""
        return ()

    @abc.abstractmethod
    def take(self, value: Any) -> Any:
        """Keep a value as it is now; called on the training's thread, which may change it next.

        Args:
            value: what stands in the data.

        Returns:
            Something that nobody changes.

        Raises:
            TypeError: the routine does not take such a value.
            ValueError: likewise, for its shape or content.
        """

    @abc.abstractmethod
    def records(self, name: str, taken: Any, at: Point) -> Iterable[Record]:
        """Make records of what was taken; called on a thread of its own.

        Args:
            name: of the variable.
            taken: what `take` has returned.
            at: when it was logged.
        """

    def iteration_records(self, at: Point) -> Iterable[Record]:
        """Make records that each iteration has besides those of its variables."""
        return ()

    def epoch_records(self, at: Point) -> Iterable[Record]:
        """Make records of what was logged since the epoch before."""
        return ()
