"""From where on something is a finding, how severe and how sure it is, and what is not said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, TypeAlias

from dftrace_ai.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Severity = Literal["critical", "warning", "info"]
Confidence = Literal["high", "medium", "low"]

SEVERITIES: Final[tuple[Severity, ...]] = ("critical", "warning", "info")
"""The worst first."""


@dataclass(frozen=True)
class Abstention:
    """What is not said, and why."""

    what: str
    why: str


class Limit(NamedTuple):
    """The lower end of a share's interval has to reach them; what is no share itself."""

    warning: float
    critical: float | None


Limits: TypeAlias = "dict[str, Limit]"


def changed_limits(limits: Limits, changes: Iterable[str]) -> Limits:
    """Return limits with some of them changed, as by ``input=0.1,0.25`` or ``slow-step-ms=100``.

    Raises:
        ConfigError: there is no such limit, or it is none.
    """
    limits = dict(limits)
    for change in changes:
        name, _, text = change.partition("=")
        if name not in limits:
            raise ConfigError(
                f"--threshold {change}: there is no threshold {name!r}; "
                f"there are: {', '.join(limits)}"
            )
        limits[name] = _limit(change, text, limits[name].critical)
    return limits


def _limit(change: str, text: str, critical: float | None) -> Limit:
    words = text.split(",")
    try:
        numbers = [float(word) for word in words]
    except ValueError:
        numbers = []
    positive = all(0 < number < float("inf") for number in numbers)
    if len(numbers) not in {1, 2} or not positive or sorted(numbers) != numbers:
        raise ConfigError(
            f"--threshold {change}: one or two numbers above 0 are accepted, the smaller first: "
            f"--threshold {change.partition('=')[0]}=0.1,0.25"
        )
    if len(numbers) == 2:
        return Limit(*numbers)
    return Limit(numbers[0], None if critical is None else max(critical, numbers[0]))


def severity(limit: Limit, low: float) -> Severity | None:
    """Return how severe something is whose share is at least `low`; None for not at all."""
    if low < limit.warning:
        return None
    return "critical" if limit.critical is not None and low >= limit.critical else "warning"


def worst(some: Iterable[Severity | None]) -> Severity:
    """Return the worst of severities, None for no such thing; without any it is for information."""
    return min((one for one in some if one), key=SEVERITIES.index, default="info")


class Sure(Protocol):
    """A finding, as far as it is said how sure it is."""

    @property
    def severity(self) -> str:
        """How much it costs."""

    @property
    def confidence(self) -> str:
        """How sure it is."""


def sureness(finding: Sure) -> str:
    """Return severity and confidence of a finding, as they stand behind it in parentheses."""
    return f"({finding.severity}, {finding.confidence} confidence)"


def silences(abstained: Iterable[Abstention]) -> Iterator[tuple[str, str]]:
    """Yield rows of what is not said, and why; of all, why there is no verdict."""
    for one in abstained:
        yield ("because", one.why) if one.what == "run" else ("silent", f"{one.what}: {one.why}")
