"""Who did not end in order, who had left before, and where the steps ended before the run."""

from __future__ import annotations

import re
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

from dftrace_ai.analysis.texts import few, time_text
from dftrace_ai.errors import TraceError
from dftrace_ai.wording import counted, shortened

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dftrace_ai.analysis.reading.identity import Owner, Owners
    from dftrace_ai.trace_format.header_and_footer import FooterFacts

# SIGHUP, SIGINT and SIGTERM of Linux, by which somebody ends a program.
ORDERED: Final = (1, 2, 15)
# Ranks that end together do so within this time, and by clocks of several hosts within that.
TOGETHER_NS: Final = 10_000_000
ON_HOSTS_NS: Final = 2_000_000_000
# That a process lives is seen each second, if it writes in time.
SEEN_NS: Final = 2_000_000_000
# Ranks train as long as each other where they have so much of the steps of the one in the middle.
AS_MANY: Final = 0.9
# A run has ended with its steps where so little follows them: at least, of all of it, and in steps.
QUIET_NS: Final = 10_000_000_000
QUIET_SHARE: Final = 0.1
QUIET_STEPS: Final = 20
ENDS_LETTERS: Final = 400
# Of few ranks is told which step was their last, for which their files are read, up to this size.
MOST_LOOKED_INTO: Final = 8
MOST_READ_BYTES: Final = 256 * 1024 * 1024
STEP: Final = b'"name":"step","cat":"pipeline"'


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
        return self.footer.ended in {"exception", "died"} or self.has_status

    @property
    def has_status(self) -> bool:
        """Whether it has left in order, and said that something was wrong."""
        return self.footer.ended in {"exit", "finalize"} and bool(self.footer.exit_status)

    @property
    def is_of_others(self) -> int:
        """How likely others have made it end: least where a signal that is no request has."""
        if self.owner.header.rank is None:
            return 4  # it has started the ranks
        if self.footer.signal not in {None, *ORDERED}:
            return 0
        if self.footer.ended != "died":
            return 1
        return 3 if self.footer.signal else 2

    @property
    def at_ns(self) -> int:
        """When it was last seen: of a process that died, by its last event or its spool."""
        alive_us = self.footer.alive_us
        base_us = self.owner.header.time_base_us or 0
        return max(self.owner.reach.last_ns, (base_us + alive_us) * 1000 if alive_us else 0)

    @property
    def unsure_ns(self) -> int:
        """So much later it may have ended."""
        return SEEN_NS if self.footer.ended == "died" else TOGETHER_NS

    def __str__(self) -> str:
        footer = self.footer
        if self.has_status:
            return f"{self.who} by exit status {footer.exit_status}"
        if footer.ended == "exception":
            return f"{self.who} by an exception"
        told = [f"signal {footer.signal}"] if footer.signal else []
        told += [f"status {footer.exit_status}"] if footer.exit_status else []
        return f"{self.who} killed, or by os._exit{f' ({told[0]})' if told else ''}"


def ends_early(owner: Owner) -> bool:
    """Return whether a process did not end in order: its last step may be a broken one."""
    footer = owner.files[-1].end.footer
    return footer is not None and _End(owner, footer).is_early


def breaks_off(owners: Owners) -> bool:
    """Return whether a rank did not end in order: the last step that all have may be broken."""
    return any(one.is_early and one.owner.header.rank is not None for one in _ends(owners))


def _ends(owners: Owners) -> list[_End]:
    return [
        _End(owner, footer)
        for owner in owners.all
        if owner.is_last and owners.employer(owner) is None
        if (footer := owner.files[-1].end.footer) is not None
    ]


def early_ends(owners: Owners) -> list[str]:
    """Return which processes did not end in order, those left out that work for others.

    The first comes first, for the others waited for it, as ranks that had left before in order.
    """
    ends = _ends(owners)
    apart_ns = TOGETHER_NS if len({one.owner.host for one in ends}) < 2 else ON_HOSTS_NS
    early = _by_time([one for one in ends if one.is_early], apart_ns)
    if not early:
        return []
    first_ns = min(one.at_ns for one in early)
    before = [
        one
        for one in ends
        if one.owner.header.rank is not None
        and one.footer.ended in {"exit", "finalize"}
        and not one.has_status
        and one.at_ns + apart_ns < first_ns
    ]
    told = []
    # Where most ranks have left, the training was over.
    if 2 * len(before) <= len(ends):
        for one in sorted(before, key=lambda one: one.at_ns):
            how = "by itself, as by sys.exit" if one.footer.ended == "exit" else "in order"
            told.append(f"{one.who} {how}, {time_text(first_ns - one.at_ns)} before the others")
    if len(told) + len(early) > MOST_LOOKED_INTO:
        return [*told, *map(str, early)]
    return [*told, *(f"{one}{_after_step(one)}" for one in early)]


def _by_time(ends: list[_End], apart_ns: int) -> list[_End]:
    """Return ends in order; of those that may be at one time by who may have begun it."""
    together: list[list[_End]] = []
    until_ns = -1
    for end in sorted(ends, key=lambda one: one.at_ns):
        if not together or end.at_ns > until_ns:
            together.append([])
        together[-1].append(end)
        until_ns = max(until_ns, end.at_ns + max(end.unsure_ns, apart_ns))
    return [
        end
        for some in together
        for end in sorted(some, key=lambda one: (one.is_of_others, one.at_ns))
    ]


def ends_told(owners: Owners) -> list[str]:
    """Return the same as a line, of which there is one at most."""
    ends = early_ends(owners)
    return [shortened(f"ended: {'; '.join(ends)}", ENDS_LETTERS)] if ends else []


def _after_step(end: _End) -> str:
    """Return behind which step a rank ended, by its last file; nothing where that is not told."""
    last = b""
    trace = end.owner.files[-1]
    if end.owner.header.rank is None or (end.footer.bytes or 0) > MOST_READ_BYTES:
        return ""
    try:
        for text in trace.reader().texts():
            at = text.rfind(STEP)
            if at >= 0:
                last = text[at : text.find(b"\n", at)]
    except TraceError:
        return ""
    step = step_in(last)
    return "" if step is None else f" after step {step:,}"


def step_in(line: bytes) -> int | None:
    """Return the number of the step that the line of a step tells; None for another line."""
    found = re.search(rb'"step":(\d{1,18})\b', line)
    return int(found[1]) if found else None


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
