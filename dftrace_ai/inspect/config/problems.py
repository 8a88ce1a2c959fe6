"""What is wrong with a config: gathered, so that all of it can be shown at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from dftrace_ai.inspect.errors import error_of

__all__ = ["Problem", "Problems", "told"]

VALUE_LETTERS = 120


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        severity: an error keeps the config from being used, a warning does not.
        where: the place as the file spells it, such as
            ``stats.transformer_engine.LogTensorStats.freq``; empty for the file as a whole.
        text: what is wrong there, and what is accepted.
        kind: the builtin class of the error that `load` raises; UserWarning for warnings.
    """

    severity: Literal["error", "warning"]
    where: str
    text: str
    kind: type[Exception]

    def __str__(self) -> str:
        return f"{self.where}: {self.text}" if self.where else self.text


@dataclass
class Problems:
    """The problems found so far."""

    found: list[Problem] = field(default_factory=list)

    def error(self, where: str, text: str, kind: type[Exception] = ValueError) -> None:
        """Note an error."""
        self.found.append(Problem("error", where, text, kind))

    def warning(self, where: str, text: str) -> None:
        """Note something that is odd, and no error."""
        self.found.append(Problem("warning", where, text, UserWarning))

    @property
    def errors(self) -> list[Problem]:
        """The problems that keep the config from being used."""
        return [problem for problem in self.found if problem.severity == "error"]

    @property
    def warnings(self) -> list[Problem]:
        """The problems that do not."""
        return [problem for problem in self.found if problem.severity == "warning"]

    def raise_first(self) -> None:
        """Raise the first error, with how many more there are.

        Raises:
            InspectError: also of the builtin class that the problem names.
        """
        if self.errors:
            first, *others = self.errors
            more = f" (and {len(others)} more: see `dftrace inspect check`)" if others else ""
            raise error_of(first.kind, f"{first}{more}")


def told(value: Any) -> str:
    """Return a value for a message: its representation, cut where it is long."""
    try:
        text = repr(value)
    except ValueError:
        # A number of thousands of digits.
        return f"this {type(value).__name__}"
    return text if len(text) <= VALUE_LETTERS else f"{text[: VALUE_LETTERS - 1]}…"
