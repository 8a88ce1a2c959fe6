"""Which processes of a run did not end in order, and who had left before them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from dftrace_ai.analysis.texts import time_text

if TYPE_CHECKING:
    from dftrace_ai.analysis.reading.identity import Owner, Owners
    from dftrace_ai.trace_format.header_and_footer import FooterFacts

# Ranks that end together do so within this time, and by clocks of several hosts within that.
TOGETHER_NS: Final = 10_000_000
ON_HOSTS_NS: Final = 2_000_000_000


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
