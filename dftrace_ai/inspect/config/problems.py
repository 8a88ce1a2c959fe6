"""What is wrong with a config: gathered, so that all of it can be shown at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from dftrace_ai.inspect.errors import error_of
from dftrace_ai.wording import in_short

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Checked = TypeVar("Checked")


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong."""

    # An error keeps the config from being used, a warning does not.
    severity: Literal["error", "warning"]
    # The place as the file spells it, such as ``stats.transformer_engine.LogTensorStats.freq``;
    # empty for the file as a whole.
    where: str
    text: str  # what is wrong there, and what is accepted
    # The builtin class of the error that `load` raises; UserWarning for warnings.
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
        """Raise the first error, with how many more there are."""
        if self.errors:
            first, *others = self.errors
            more = f" (and {len(others)} more: see `dftrace inspect check`)" if others else ""
            raise error_of(first.kind, f"{first}{more}")


def as_written(value: Any) -> str:
    """Return a value for a message, as a file of YAML has it: null, true, a text in quotes."""
    words = {None: "null", True: "true", False: "false"}
    return words[value] if value is None or isinstance(value, bool) else in_short(value)


def all_checked(check: Callable[[Any], Checked], entries: Iterable[Any]) -> tuple[Checked, ...]:
    """Return what a check makes of entries."""
    checked: list[Checked] = []
    faults: list[Exception] = []
    for entry in entries:
        try:
            checked.append(check(entry))
        except (AssertionError, ValueError) as error:  # noqa: PERF203 - all of them are told
            faults.append(error)
    if faults:
        raise type(faults[0])("; ".join(dict.fromkeys(map(str, faults))))
    return tuple(checked)
