"""Who did not end in order, who had left before, and where the steps ended before the run."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

from dftrace_ai.analysis.texts import few, time_text
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dftrace_ai.analysis.reading.identity import Owner, Owners
    from dftrace_ai.trace_format.header_and_footer import FooterFacts

# Ranks that end together do so within this time, and by clocks of several hosts within that.
TOGETHER_NS: Final = 10_000_000
ON_HOSTS_NS: Final = 2_000_000_000
# Ranks train as long as each other where they have so much of the steps of the one in the middle.
AS_MANY: Final = 0.9
# A run has ended with its steps where so little follows them: at least, of all of it, and in steps.
QUIET_NS: Final = 10_000_000_000
QUIET_SHARE: Final = 0.1
QUIET_STEPS: Final = 20


class _End(NamedTuple):
    """How a process ended."""

    owner: Owner
    footer: FooterFacts

    @property
    def who(self) -> str:
        rank = self.owner.header.rank
        return "the program" if rank is None else f"rank {rank}"

    @property
    def is_early(self) -> bool:
        return self.footer.ended in {"exception", "died"}

    @property
    def at_ns(self) -> int:
        return self.owner.reach.last_ns

    def __str__(self) -> str:
        footer = self.footer
        if footer.ended == "exception":
            return f"{self.who} by an exception"
        told = [f"signal {footer.signal}"] if footer.signal else []
        told += [f"status {footer.exit_status}"] if footer.exit_status else []
        return f"{self.who} killed, or by os._exit{f' ({told[0]})' if told else ''}"


def early_ends(owners: Owners) -> list[str]:
    """Return which processes did not end in order, those left out that others had started.

    Ranks that had left before, as by ``sys.exit``, come first: the others waited for them.
    """
    ends = [
        _End(owner, footer)
        for owner in owners.all
        if owner.is_last and owners.parent(owner) is None
        if (footer := owner.files[-1].end.footer) is not None
    ]
    early = [one for one in ends if one.is_early]
    if not early:
        return []
    first_ns = min(one.at_ns for one in early)
    apart_ns = TOGETHER_NS if len({one.owner.host for one in ends}) < 2 else ON_HOSTS_NS
    before = [
        one
        for one in ends
        if one.owner.header.rank is not None
        and one.footer.ended in {"exit", "finalize"}
        and one.at_ns + apart_ns < first_ns
    ]
    told = []
    # Where most ranks have left, the training was over.
    if 2 * len(before) <= len(ends):
        for one in sorted(before, key=lambda one: one.at_ns):
            how = "by itself, as by sys.exit" if one.footer.ended == "exit" else "in order"
            told.append(f"{one.who} {how}, {time_text(first_ns - one.at_ns)} before the others")
    return [*told, *map(str, early)]


def fewer_steps(counts: Mapping[int, int]) -> list[str]:
    """Return which ranks have far fewer steps than most, by how many each has."""
    usual = median(counts.values()) if counts else 0
    fewer = {rank: count for rank, count in counts.items() if count < AS_MANY * usual}
    if not fewer:
        return []
    who = f"rank {next(iter(fewer))} has" if len(fewer) == 1 else f"ranks {few(fewer)} have"
    steps = counted(max(fewer.values()), "step")
    at_most = "" if len({*fewer.values()}) == 1 else " at most"
    told = f"{who} {steps}{at_most}, others {max(counts.values()):,}"
    return [f"{told}: not there to the end, or not from the beginning on"]


def quiet_end(owners: Owners, last_step_ns: int, last_ns: int, length_ns: int, step_ns: int) -> str:
    """Return how long there was no step before a run ended, and how it did; empty for nothing."""
    quiet_ns = last_ns - last_step_ns
    if quiet_ns < max(QUIET_NS, QUIET_SHARE * length_ns, QUIET_STEPS * step_ns):
        return ""
    ends = early_ends(owners)
    more = f" and {len(ends) - 2:,} more" if len(ends) > 2 else ""
    how = f"; ended: {'; '.join(ends[:2])}{more}" if ends else ""
    return f"no step for the last {time_text(quiet_ns)}{how}"
