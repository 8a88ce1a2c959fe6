"""The made hosts of a job: their names, and what their clocks show."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import numpy as np

from dftrace_ai.generating.draws import Draws

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dftrace_ai.generating.job import Job

TIME_BASE_US: Final = 1_793_664_000_000_000
START_NS: Final = 1_795_244_523_856_368_971
"""When a made job begins, ns since 1970: one moment in all of them."""

_UP_NS: Final = 432_000_000_000_000
# Who keeps clocks by NTP sets those that are off by more, and calls the others synchronised.
_KEPT_NS: Final = 128_000_000


@dataclass(frozen=True)
class Host:
    """A made host.

    Attributes:
        number: from 0.
        name: as headers have it.
        boot_id: as its kernel would name this start of it.
        offset_ns: by how much its clock is ahead when the job begins.
        drift: by how much faster it runs, as a share.
        jumps: when it is set while the job runs, ns since the beginning, and by how many ns.
    """

    number: int
    name: str
    boot_id: str
    offset_ns: int
    drift: float
    jumps: tuple[tuple[int, int], ...]

    def shown(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return what the clock shows, ns since 1970, at times since the beginning of the job."""
        found = times + (START_NS + self.offset_ns)
        if self.drift:
            found += np.rint(times * self.drift).astype(np.int64)
        for at_ns, by_ns in self.jumps:
            found += np.where(times >= at_ns, by_ns, 0)
        return found

    @property
    def clock_offset_ns(self) -> int:
        """What the wall clock shows more than that which counts from the start of the host."""
        return START_NS + self.offset_ns - _UP_NS - self.number * 1_000_000_000

    @property
    def synchronised(self) -> bool:
        """Whether its kernel would say that the clock is kept."""
        return abs(self.offset_ns) < _KEPT_NS


def hosts_of(job: Job) -> list[Host]:
    """Return the hosts of a job, with clocks as they are asked for."""
    draws, clocks = Draws(job.seed), job.clocks
    offsets = draws.normal("offset", 1, job.hosts)[0] * clocks.offset_s * 1e9
    drifts = (2 * draws.share("drift", 1, job.hosts)[0] - 1) * clocks.drift_ppm * 1e-6
    found = []
    for number in range(job.hosts):
        digits = sha256(f"{job.seed} {number}".encode()).hexdigest()
        parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:32])
        jumps = sorted((jump.at_ns, jump.by_ns) for jump in clocks.jumps if jump.host == number)
        found.append(
            Host(
                number,
                f"node{number:04d}",
                "-".join(parts),
                round(float(offsets[number])),
                float(drifts[number]),
                tuple(jumps),
            )
        )
    return found
