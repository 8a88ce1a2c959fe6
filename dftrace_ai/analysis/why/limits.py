"""From which share on something is a finding, and from which on critical; and other bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from dftrace_ai.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dftrace_ai.analysis.why.model import Severity

__all__ = ["LIMITS", "Limit", "Limits", "limits_of", "severity"]


class Limit(NamedTuple):
    """The lower end of a share's interval has to reach them; what is no share itself."""

    warning: float
    critical: float | None


Limits: TypeAlias = "dict[str, Limit]"

LIMITS: Final[Limits] = {
    "input": Limit(0.10, 0.25),
    "comm": Limit(0.10, 0.25),
    "transfer": Limit(0.10, 0.25),
    "checkpoint": Limit(0.05, 0.20),
    "optimizer": Limit(0.60, 0.80),
    "other": Limit(0.15, 0.30),
    "host": Limit(0.15, 0.30),
    "not-annotated": Limit(0.20, 0.40),
    "evaluation": Limit(0.25, 0.50),
    "start-up": Limit(0.20, 0.50),
    "warm-up": Limit(0.10, 0.30),
    "loop-start": Limit(0.05, 0.20),
    "between": Limit(0.20, 0.40),
    "slower": Limit(0.20, 0.50),
    "periodic": Limit(0.05, None),
    "two-kinds": Limit(0.15, None),
    "compute": Limit(0.70, None),
    "slow-step": Limit(0.01, None),
    "memory": Limit(0.05, None),
    # These are no shares. What a busy machine did to runs with which nothing was wrong: stalls,
    # first steps and beginnings of a quarter of a second, and slow spells of some tenths. A run
    # of less than a minute is a try, whose start says nothing of a longer one's. Some milliseconds
    # are what frameworks do for each step.
    "slow-step-ms": Limit(250, None),
    "warm-up-ms": Limit(300, None),
    "start-up-ms": Limit(500, None),
    "start-up-run-s": Limit(60, None),
    "loops-ms": Limit(250, None),
    "not-annotated-ms": Limit(5, None),
    "slower-ms": Limit(500, None),
    "memory-mb": Limit(64, None),
    "rhythm": Limit(0.8, None),
    "steps": Limit(20, 50),
}


def limits_of(changes: Iterable[str]) -> Limits:
    """Return the limits with some of them changed.

    Args:
        changes: such as ``input=0.1,0.25``: the name, from where on it is a warning,
            and, where it is given, from where on it is critical; or ``slow-step-ms=100``.

    Raises:
        ConfigError: there is no such limit, or it is none.

    Example::

        assert limits_of(["comm=0.05"])["comm"].warning == 0.05
    """
    limits = dict(LIMITS)
    for change in changes:
        name, _, text = change.partition("=")
        if name not in limits:
            raise ConfigError(
                f"--limit {change}: there is no limit {name!r}; there are: {', '.join(limits)}"
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
            f"--limit {change}: one or two numbers above 0 are accepted, the smaller first: "
            "--limit input=0.1,0.25"
        )
    if len(numbers) == 2:
        return Limit(*numbers)
    return Limit(numbers[0], None if critical is None else max(critical, numbers[0]))


def severity(limit: Limit, low: float) -> Severity | None:
    """Return how severe something is whose share is at least `low`; None for not at all."""
    if low < limit.warning:
        return None
    return "critical" if limit.critical is not None and low >= limit.critical else "warning"
