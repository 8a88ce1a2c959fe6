"""What a made job is like: ranks, layout, steps, causes, and how clocks of its hosts stand."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

from dftrace_ai.errors import ConfigError
from dftrace_ai.generating.causes import FORMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dftrace_ai.generating.causes import Cause

MOST_RANKS: Final = 1 << 17
MOST_OFFSET_S: Final = 86_400.0
MOST_DRIFT_PPM: Final = 500.0
# So many steps of each rank are worked out at once, and make a block: it depends on the job alone.
_ROWS: Final = 131_072
_LEAST_STEPS, _MOST_STEPS = 16, 256


class Jump(NamedTuple):
    """A clock that is set while the job runs."""

    host: int
    at_ns: int  # since the job began
    by_ns: int


@dataclass(frozen=True)
class JobClocks:
    """How the clocks of a job's hosts stand.

    Attributes:
        offset_s: standard deviation of by how much they are ahead, seconds.
        drift_ppm: they run faster or slower by up to so many millionths.
        jumps: clocks that are set while the job runs.
        late_hosts: hosts whose ranks see the ends of collectives later, always, and by how many ns.
    """

    offset_s: float = 0.0
    drift_ppm: float = 0.0
    jumps: tuple[Jump, ...] = ()
    late_hosts: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Job:
    """A made job: what `dftrace generate` is asked for.

    Attributes:
        ranks: how many.
        steps: how many each trains.
        per_host: how many share a host.
        buckets: all_reduces of gradients in a step.
        layers: parts of a forward.
        tp: ranks that share each layer, which neighbours on a host are; 1 for none.
        pp: stages of a pipeline, over which ranks are dealt in blocks; 1 for none.
        microbatches: of a step of a pipeline.
        workers: loader processes of each rank.
        seed: of all that is drawn.
        poll: ends of collectives are seen as late as a thread that looks now and then sees them.
        causes: what is planted.
        clocks: how clocks of hosts stand.

    Raises:
        ConfigError: these do not go together.
    """

    ranks: int = 8
    steps: int = 100
    per_host: int = 8
    buckets: int = 4
    layers: int = 4
    tp: int = 1
    pp: int = 1
    microbatches: int = 8
    workers: int = 0
    seed: int = 0
    poll: bool = False
    causes: tuple[Cause, ...] = ()
    clocks: JobClocks = field(default_factory=JobClocks)

    def __post_init__(self) -> None:
        fewest = {
            "ranks": MOST_RANKS,
            "steps": 1 << 24,
            "per_host": 512,
            "buckets": 64,
            "layers": 64,
        }
        fewest |= {"tp": 512, "pp": 64, "microbatches": 256, "workers": 64}
        for name, most in fewest.items():
            least = 0 if name == "workers" else 1
            if not least <= getattr(self, name) <= most:
                option = name.replace("_", "-")
                raise ConfigError(f"--{option} takes a number from {least} to {most:,}")
        if not 0 <= self.seed < 1 << 63:
            raise ConfigError("--seed takes a number from 0 to 2^63 - 1")
        if self.ranks % self.tp or self.per_host % self.tp:
            raise ConfigError("--tp has to divide --ranks and --per-host")
        if self.ranks % (self.pp * self.tp):
            raise ConfigError("--pp, times --tp, has to divide --ranks")
        for cause in self.causes:
            of = FORMS[cause.kind].of
            known = {"rank": self.ranks, "host": self.hosts, "stage": self.pp, "": 1}[of]
            if of == "stage" and self.pp == 1:
                raise ConfigError(f"--cause {cause.words} needs --pp")
            if cause.at >= known:
                raise ConfigError(f"--cause {cause.words}: the last {of} is {known - 1}")
            if cause.size >= self.steps + (cause.kind == "dead") and (
                cause.hangs or cause.kind == "dead"
            ):
                raise ConfigError(f"--cause {cause.words}: there are {self.steps:,} steps")
            if cause.hangs and (self.ranks == 1 or cause != self.hang):
                raise ConfigError(f"--cause {cause.words}: a job of two ranks and more hangs once")
        clocks = self.clocks
        if not 0 <= clocks.offset_s <= MOST_OFFSET_S / 6:
            raise ConfigError(f"--offset-s takes seconds from 0 to {MOST_OFFSET_S / 6:,.0f}")
        if not 0 <= clocks.drift_ppm <= MOST_DRIFT_PPM:
            raise ConfigError(f"--drift-ppm takes millionths from 0 to {MOST_DRIFT_PPM:,.0f}")
        named = [jump.host for jump in clocks.jumps] + [host for host, _ in clocks.late_hosts]
        if any(not 0 <= host < self.hosts for host in named):
            raise ConfigError(f"--step-clock and --late-host: the last host is {self.hosts - 1}")
        if any(abs(jump.by_ns) > MOST_OFFSET_S * 1e9 for jump in clocks.jumps):
            raise ConfigError("--step-clock sets a clock by a day at most")

    @property
    def hang(self) -> Cause | None:
        """What the job hangs by; None where it ends."""
        return next((cause for cause in self.causes if cause.hangs), None)

    @property
    def hosts(self) -> int:
        """How many hosts there are."""
        return -(-self.ranks // self.per_host)

    @property
    def a_stage(self) -> int:
        """Ranks of a stage of the pipeline."""
        return self.ranks // self.pp

    @property
    def at_once(self) -> int:
        """Steps that are worked out at once."""
        return min(max(_ROWS // self.ranks, _LEAST_STEPS), _MOST_STEPS)

    @property
    def run(self) -> str:
        """32 hexadecimal digits, the same for the same job."""
        return sha256(repr(self).encode()).hexdigest()[:32]

    def host_of(self, rank: int) -> int:
        """Return the host of a rank."""
        return rank // self.per_host

    @property
    def replicas(self) -> int:
        """Ranks that reduce gradients among themselves."""
        return self.ranks if self.pp == 1 else self.a_stage // self.tp

    def reducing(self, rank: int) -> str:
        """Return the group in which a rank reduces gradients: of its stage those of its slice."""
        return "0" if self.pp == 1 else str(1 + self.stage_of(rank) * self.tp + rank % self.tp)

    def sharing(self, rank: int) -> str:
        """Return the group in which a rank shares layers."""
        return str(1 + (self.pp * self.tp if self.pp > 1 else 0) + rank // self.tp)

    def stage_of(self, rank: int) -> int:
        """Return the stage of the pipeline that a rank is in."""
        return rank // self.a_stage

    def groups_of(self, rank: int) -> list[tuple[str, str, Sequence[int]]]:
        """Return names, descriptions and ranks of a rank's process groups; the first has all."""
        found: list[tuple[str, str, Sequence[int]]] = [("0", "default_pg", range(self.ranks))]
        if self.pp > 1:
            first = self.stage_of(rank) * self.a_stage
            some = range(first + rank % self.tp, first + self.a_stage, self.tp)
            found.append((self.reducing(rank), "mesh_dp", some))
        if self.tp > 1:
            first = rank // self.tp * self.tp
            found.append((self.sharing(rank), "mesh_tp", range(first, first + self.tp)))
        return found

    def layout_of(self, rank: int) -> str:
        """Return the rank in each dimension, as headers have it; empty for one dimension."""
        found = {"dp": rank % self.a_stage // self.tp}
        if self.pp > 1:
            found["pp"] = self.stage_of(rank)
        if self.tp > 1:
            found["tp"] = rank % self.tp
        return ",".join(f"{name}={at}" for name, at in found.items()) if len(found) > 1 else ""
