"""The ranks of a merged trace with their collectives: whose clock shows what, and who is late.

Loaded late, for it needs NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from dftrace_ai.analysis.merging.shown_times import Measured
from dftrace_ai.analysis.ranks.clock_offsets import clocks_of
from dftrace_ai.analysis.ranks.job import RanksOfJob, read_ranks
from dftrace_ai.analysis.ranks.lateness import lateness_of
from dftrace_ai.analysis.ranks.matching import Matching
from dftrace_ai.analysis.ranks.model import limits_of
from dftrace_ai.analysis.reading import TraceSet
from dftrace_ai.analysis.texts import time_text
from dftrace_ai.wording import counted, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dftrace_ai.analysis.executors import Spread
    from dftrace_ai.analysis.ranks.clock_offsets import Clocks
    from dftrace_ai.analysis.reading.trace import Trace

MOST_NAMED: Final = 8


class Joined(NamedTuple):
    """Ranks as `dftrace ranks` reads them, and the clocks of their hosts."""

    files: TraceSet
    job: RanksOfJob
    names: tuple[str, ...]  # of the clocks
    clocks: Clocks

    @classmethod
    def of(cls, traces: Sequence[Trace], spread: Spread | None = None) -> Joined:
        """Read them, or have them read.

        Raises:
            DftraceError: they are no ranks of one job, or cannot be read.
        """
        files = TraceSet(tuple(traces))
        job = read_ranks(files, spread=spread)
        order = Matching(job.ranks).ranks
        return cls(files, job, order.clocks, clocks_of(job, order))

    @property
    def measured(self) -> Measured:
        """The clocks, for who shows times by them."""
        constants: dict[str, int] = {}
        own_clocks: dict[int, str] = {}
        for number, rank in enumerate(self.job.ranks):
            own, name = rank.place.clock_offset_ns, self.names[int(self.clocks.clock[number])]
            if own is not None:
                constants.setdefault(name, own + int(self.clocks.shift_ns[number]))
            if name != rank.place.clock:
                own_clocks[rank.place.rank] = name
        return Measured(self.clocks, self.names, constants, own_clocks)

    @property
    def late(self) -> list[int]:
        """The ranks for which others wait, the latest first."""
        rows = lateness_of(self.job, limits_of(())).scores
        late = [row for row in rows if row.late_ns > 0]
        return [row.rank for row in sorted(late, key=lambda row: -row.late_ns)]

    def slowest_ns(self) -> tuple[int, int] | None:
        """Return when the slowest step begins and ends, since 1970; None where there is none."""
        best: tuple[int, int, int] | None = None
        for block in self.job.blocks("steps"):
            time = block.time_ns.max(0)
            at = int(time.argmax())
            if best is None or int(time[at]) > best[0]:
                rank = int(block.time_ns[:, at].argmax())
                rows = block.tables.steps.rows
                row = int(block.at[rank, at])
                start, end = int(rows.start_ns[row]), int(rows.end_ns[row])
                best = int(time[at]), start, end
        return best and best[1:]

    def set_back(self) -> Iterator[str]:
        """Yield a line about clocks that were set back: what they show twice is not told apart."""
        back = [(-min(one.jumps_ns, default=0), one.host) for one in self.clocks.hosts]
        if most := max(back, default=(0, ""))[0]:
            hosts = [host for ns, host in back if ns > 0]
            more = ", ..." if len(hosts) > MOST_NAMED else ""
            yield (
                f"{counted(len(hosts), 'clock')} set back while it ran, by up to "
                f"{time_text(most)} ({', '.join(map(quoted, hosts[:MOST_NAMED]))}{more}): of times "
                "that are shown twice the later is meant, and a viewer leaves spans out that lie "
                "across others"
            )

    def uncalibrated(self) -> Iterator[str]:
        """Yield a line about hosts whose times are shown as their clocks have them, and why."""
        hosts = [one for one in self.clocks.hosts if one.host in self.clocks.unjoined]
        if hosts:
            named = ", ".join(f"{quoted(one.host)}: {one.told()}" for one in hosts[:MOST_NAMED])
            more = ", ..." if len(hosts) > MOST_NAMED else ""
            yield f"clocks of {len(hosts):,} of {len(self.clocks.hosts):,} hosts: {named}{more}"
