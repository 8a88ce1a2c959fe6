"""What can be planted into a made job: causes of lateness, by their words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, get_args

from dftrace_ai.errors import ConfigError
from dftrace_ai.wording import quoted

CauseKind = Literal[
    "slow-rank",
    "slow-host",
    "loader",
    "rotating",
    "gc",
    "checkpoint",
    "link",
    "stage",
    "sequence",
    "memory",
    "dead",
    "late-start",
    "flight:missing",
    "flight:op",
    "flight:size",
    "flight:dtype",
    "flight:unstarted",
]


class _Form(NamedTuple):
    """What stands behind a kind: whose number, and of what."""

    words: str
    of: Literal["rank", "host", "stage", ""] = ""


FORMS: Final[dict[CauseKind, _Form]] = {
    "slow-rank": _Form("R:MS", "rank"),
    "slow-host": _Form("H:PCT", "host"),
    "loader": _Form("R:MS", "rank"),
    "rotating": _Form("MS"),
    "gc": _Form("MS:EVERY"),
    "checkpoint": _Form("MS:EVERY"),
    "link": _Form("H:PCT", "host"),
    "stage": _Form("S:PCT", "stage"),
    "sequence": _Form("PCT"),
    "memory": _Form("R", "rank"),
    "dead": _Form("R:STEP", "rank"),
    "late-start": _Form("R:S", "rank"),
    "flight:missing": _Form("R:STEP", "rank"),
    "flight:op": _Form("R:STEP", "rank"),
    "flight:size": _Form("R:STEP", "rank"),
    "flight:dtype": _Form("R:STEP", "rank"),
    "flight:unstarted": _Form("R:STEP", "rank"),
}
MOST: Final = 1_000_000


@dataclass(frozen=True)
class Cause:
    """Something that makes ranks of a made job late, or their traces odd.

    Attributes:
        kind: what it is.
        at: the rank, host or stage that it is of; 0 where it is of none.
        size: milliseconds, of `late-start` seconds, of shares percent, of `dead` and hangs the
            step.
        every: of what comes now and then, once in so many steps.
    """

    kind: CauseKind
    at: int = 0
    size: float = 0.0
    every: int = 1

    @property
    def words(self) -> str:
        """The cause as it is asked for: ``slow-rank:17:6``."""
        form = FORMS[self.kind].words.split(":")
        told = {
            "MS": f"{self.size:g}",
            "PCT": f"{self.size:g}",
            "S": f"{self.size:g}",
            "STEP": f"{self.size:g}",
            "EVERY": str(self.every),
        }
        first = [str(self.at)] if FORMS[self.kind].of else []
        return ":".join([self.kind, *first, *(told[word] for word in form[len(first) :])])

    @property
    def size_ns(self) -> int:
        """The size as a time, of kinds whose size is one."""
        return round(self.size * (1e9 if self.kind == "late-start" else 1e6))

    @property
    def hangs(self) -> bool:
        """Whether the job hangs by it, and leaves dumps."""
        return self.kind.startswith("flight:")

    @property
    def factor(self) -> float:
        """The size as what times are multiplied by, of kinds whose size is a share."""
        return 1 + self.size / 100


def cause_of(words: str) -> Cause:
    """Read a cause: `cause_of("slow-rank:17:6")` is of rank 17 and takes 6 ms of each step.

    Raises:
        ConfigError: this is none.
    """
    kind, *numbers = words.split(":")
    if kind == "flight" and numbers:
        kind += f":{numbers.pop(0)}"
    known = next((one for one in get_args(CauseKind) if one == kind), None)
    if known is None:
        raise ConfigError(
            f"--cause takes {', '.join(f'{one}:{form.words}' for one, form in FORMS.items())}, "
            f"not {quoted(words)}"
        )
    form = FORMS[known].words.split(":")
    whole = [FORMS[known].of != "", *(word in {"EVERY", "STEP"} for word in form[1:])]
    values = [_number(number, whole=one) for number, one in zip(numbers, whole, strict=False)]
    at, *rest = values if FORMS[known].of else [0.0, *values]
    size, every = [*rest, *(0.0, 1.0)[len(rest) :]][:2]
    if len(numbers) != len(form) or any(value is None for value in values) or not every:
        raise ConfigError(
            f"--cause {known} takes {FORMS[known].words}, each a number from 0 to {MOST:,}, "
            f"not {quoted(words)}"
        )
    return Cause(known, int(at or 0), size or 0.0, int(every))


def _number(text: str, *, whole: bool) -> float | None:
    """Return a number from 0 up to the most; None for anything else."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value <= MOST and not (whole and value % 1) else None
