"""When all ranks of a job do what in each step, by true time.

Each step ends with a collective of all ranks, which nobody leaves before the last has come. So what
happens in a step counts from the end of the one before, and many steps are worked out at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from dftrace_ai.generating.draws import Draws
from dftrace_ai.generating.pipeline import Pipeline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from dftrace_ai.generating.job import Job

MS: Final = 1_000_000
FORWARD_NS, BACKWARD_NS = 8 * MS, 16 * MS
WAIT_NS, GAP_NS, OPTIMIZER_NS, ZERO_NS = 400_000, 50_000, 2 * MS, 300_000
TRANSFER_NS, GATHER_NS, NORM_NS = 1_200_000, 80_000, 100_000
ITEM_NS, COLLATE_NS = 6 * MS, 300_000
COMPUTE_SPREAD: Final = 0.04
_OF_PASS: Final = (FORWARD_NS, BACKWARD_NS)
_BEHIND_NS, _AFTER_NS = 400, 5_000
NOTICE_NS: Final = 60_000
NOTICE_BOUND_NS: Final = 300_000
"""So late at most, but for one in a million, is the end of a collective seen."""
_POLL_LEAST_NS, _POLL_MOST_NS, _POLL_SHARE = 200_000, 5 * MS, 8


class _Planted(NamedTuple):
    """What causes do to some steps, ns: (steps, ranks)."""

    wait: NDArray[np.int64]
    backward: NDArray[np.int64]
    pause: NDArray[np.int64]
    save: NDArray[np.int64]
    lengths: NDArray[np.int64] | None  # what computing is multiplied by, in 2^-10


class Timing:
    """The times of a job, some steps after the other.

    Times are ns since the beginning of the job, by name: (steps, ranks).
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self._draws = draws = Draws(job.seed)
        ranks = job.ranks
        self.host = np.arange(ranks) // job.per_host
        self.speed = 1 + 0.01 * draws.normal("speed", 1, ranks)[0]
        self._late = np.zeros(ranks, np.int64)
        for host, late_ns in job.clocks.late_hosts:
            self._late[self.host == host] += late_ns
        self._links = np.ones(ranks)
        self._begins = draws.levels("begin", 1, ranks)[0].astype(np.int64) * (40 * MS) >> 16
        for cause in job.causes:
            if cause.kind == "slow-host":
                self.speed[self.host == cause.at] *= cause.factor
            elif cause.kind == "stage":
                self.speed[np.arange(ranks) // job.a_stage == cause.at] *= cause.factor
            elif cause.kind == "link":
                self._links[self.host == cause.at] *= cause.factor
            elif cause.kind == "late-start":
                self._begins[cause.at] += cause.size_ns
        self._pipeline = Pipeline(job, self._links) if job.pp > 1 else None
        self._step = 0
        # When all had left the last collective, and how long from then until a rank's next step.
        self._over = 0
        self._until_next = self._begins

    def next(self, count: int) -> dict[str, NDArray[np.int64]]:
        """Return the times of so many more steps."""
        job, ranks, draw = self.job, self.job.ranks, self._draws
        planted = self._planted(count)
        wait = draw.lognormal("wait", WAIT_NS, 0.6, count, ranks) + planted.wait
        gap = draw.lognormal("gap", GAP_NS, 0.3, count, ranks)
        optimizer = draw.lognormal("optimizer", OPTIMIZER_NS, 0.05, count, ranks)
        zero = draw.lognormal("zero", ZERO_NS, 0.1, count, ranks)
        seen = self._notice("last", count)
        saved = seen + (_BEHIND_NS + 3 * _AFTER_NS) + optimizer + zero + planted.save
        until_next = saved + gap + 1_000
        # All counts from the end of the last collective before, which is added when it is known.
        begin = np.concatenate([self._until_next[None, :], until_next[:-1]])
        found = {"begin": begin, "fetched": begin + wait, "forward": begin + wait + gap}
        found |= {"pause": found["forward"], "paused": found["forward"] + planted.pause}
        over = self._learn(found, planted, seen, gap)
        found["backward end"] = over[:, None] + seen + _BEHIND_NS
        found["optimizer"] = found["backward end"] + _AFTER_NS
        found["optimizer end"] = found["optimizer"] + optimizer
        found["zeroing"] = found["optimizer end"] + _AFTER_NS
        found["zeroed"] = found["zeroing"] + zero
        found["save"] = found["zeroed"] + _AFTER_NS
        found["saved"] = found["save"] + planted.save
        found["end"] = found["saved"] + 500
        if job.workers:
            # The batch is there when it is fetched.
            item = draw.lognormal("item", ITEM_NS, 0.2, count, ranks) + planted.wait
            found["collated"] = found["fetched"] - 20_000
            found["loaded"] = found["collated"] - COLLATE_NS
            found["load"] = found["loaded"] - item
        after = np.cumsum(over) + self._over
        before = np.concatenate([[self._over], after[:-1]])
        self._over, self._until_next = int(after[-1]), until_next[-1]
        self._step += count
        return {name: times + before[:, None] for name, times in found.items()}

    def _planted(self, count: int) -> _Planted:
        """Return what causes do to so many more steps."""
        steps, ranks = np.arange(self._step, self._step + count), self.job.ranks
        wait, backward, pause, save = np.zeros((4, count, ranks), np.int64)
        for cause in self.job.causes:
            if cause.kind == "slow-rank":
                backward[:, cause.at] += cause.size_ns
            elif cause.kind == "loader":
                wait[:, cause.at] += cause.size_ns
            elif cause.kind == "rotating":
                backward[np.arange(count), self.turns(count)] += cause.size_ns
            elif cause.kind == "gc":
                now = (steps[:, None] + 7 * np.arange(ranks)) % cause.every == 0
                pause += now * cause.size_ns
            elif cause.kind == "checkpoint":
                save[steps % cause.every == cause.every - 1] += cause.size_ns
        return _Planted(wait, backward, pause, save, self._lengths(count))

    def _learn(
        self,
        found: dict[str, NDArray[np.int64]],
        planted: _Planted,
        seen: NDArray[np.int64],
        gap: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """Add forward and backward; return when the collective is over that ends them."""
        job, at, count = self.job, found["paused"], len(gap)
        if self._pipeline is not None:
            passes = 2 * job.microbatches
            took = [
                self._compute(f"pass {number}", _OF_PASS[number % 2] // job.microbatches, planted)
                + (planted.backward // job.microbatches if number % 2 else 0)
                for number in range(passes)
            ]
            notices = [self._notice(f"pass {number}", count) for number in range(passes)]
            names = self._pipeline.names
            at = self._pipeline.run(found, at, took, notices, self._shared(found, count, names))
            parts = [np.zeros_like(at)] * job.buckets
        else:
            shared = self._shared(found, count, map(str, range(job.layers)))
            for layer in range(job.layers):
                at = at + self._compute(f"forward {layer}", FORWARD_NS // job.layers, planted)
                at = at if shared is None else shared(str(layer), slice(job.ranks), at)
                found[f"layer {layer}"] = at
            found["forward end"] = at + 900
            at = found["backward"] = at + 900 + gap
            parts = [
                self._compute(f"backward {bucket}", BACKWARD_NS // job.buckets, planted)
                + planted.backward // job.buckets
                for bucket in range(job.buckets)
            ]
        return self._reduce(found, at, parts, seen)

    def turns(self, count: int) -> NDArray[np.int64]:
        """Return whose turn it is to be late in so many more steps."""
        return self._draws.below("turn", self.job.ranks, count)

    def _lengths(self, count: int) -> NDArray[np.int64] | None:
        """Return how long sequences are, in 2^-10; None where all are as long."""
        shares = [cause.size / 100 for cause in self.job.causes if cause.kind == "sequence"]
        if not shares:
            return None
        return self._draws.lognormal("sequence", 1 << 10, sum(shares), count, self.job.ranks)

    def _compute(self, name: str, mean_ns: int, planted: _Planted) -> NDArray[np.int64]:
        """Return how long ranks compute something, by themselves."""
        count, ranks = planted.wait.shape
        took = self._draws.lognormal(name, mean_ns, COMPUTE_SPREAD, count, ranks)
        if planted.lengths is not None:
            took = took * planted.lengths >> 10
        found: NDArray[np.int64] = (took * self.speed).astype(np.int64)
        return found

    def _notice(self, name: str, count: int) -> NDArray[np.int64]:
        """Return how much later than it is over ranks see that something is over."""
        share = self._draws.normal(f"notice {name}", count, self.job.ranks)
        found: NDArray[np.int64] = np.rint(np.abs(share) * NOTICE_NS).astype(np.int64)
        return found + (3_000 + self._late)

    def _transfer(self, name: str, mean_ns: int, count: int) -> NDArray[np.int64]:
        """Return how long a collective takes when all have come."""
        even = 0.95 + 0.1 * self._draws.share(f"transfer {name}", count, 1)[:, 0]
        return np.rint(even * mean_ns).astype(np.int64)

    def _shared(
        self, found: dict[str, NDArray[np.int64]], count: int, names: Iterable[str]
    ) -> Callable[[str, slice, NDArray[np.int64]], NDArray[np.int64]] | None:
        """Return what has the ranks that share a layer gather what each makes of it.

        It takes what is gathered by its name, some ranks and when each comes to it, and returns
        when they have all; None where none share any.
        """
        size = self.job.tp
        if size == 1:
            return None
        notices = {name: self._notice(f"gather {name}", count) for name in names}
        for name, notice in notices.items():
            found[f"gather {name}"] = np.zeros_like(notice)
            found[f"gathered {name}"] = np.zeros_like(notice)

        def gather(name: str, ranks: slice, at: NDArray[np.int64]) -> NDArray[np.int64]:
            last = np.repeat(at.reshape(count, -1, size).max(axis=2), size, axis=1)
            took = np.rint(GATHER_NS * self._links[ranks]).astype(np.int64)
            left: NDArray[np.int64] = last + took + notices[name][:, ranks]
            found[f"gather {name}"][:, ranks] = at
            found[f"gathered {name}"][:, ranks] = left
            return left

        return gather

    def _reduce(
        self,
        found: dict[str, NDArray[np.int64]],
        at: NDArray[np.int64],
        backward: list[NDArray[np.int64]],
        seen: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """Reduce gradients, each when its part of backward is done; return when all is over."""
        job, count, buckets = self.job, len(at), self.job.buckets
        # Of a pipeline each slice of a stage by itself: (stages, replicas, slices).
        shape = (job.pp, job.replicas, -1)
        slowest = self._links.reshape(shape).max(axis=1, keepdims=True)
        free = np.zeros((count, *slowest.shape), np.int64)
        for bucket, took in enumerate(backward):
            at = at + took
            came = at.reshape(count, *shape).max(axis=2, keepdims=True)
            even = self._transfer(f"reduce {bucket}", TRANSFER_NS, count)
            transfer = even[:, None, None, None] * slowest
            free = np.maximum(came, free) + np.rint(transfer).astype(np.int64)
            over = np.repeat(free, job.replicas, axis=2).reshape(count, -1)
            last = bucket == buckets - 1 and self.job.pp == 1
            left = over + (seen if last else self._notice(f"reduce {bucket}", count))
            later = self._polled(bucket, over - at) if self.job.poll else 0
            found[f"reduce {bucket}"], found[f"reduced {bucket}"] = at, left + later
        if self.job.pp == 1:
            only: NDArray[np.int64] = free[:, 0, 0, 0]
            return only
        # Of a pipeline all ranks add up the norm of their gradients.
        at = left + _AFTER_NS
        norm = self._transfer("norm", NORM_NS, count) * self._links.max()
        all_over: NDArray[np.int64] = at.max(axis=1) + np.rint(norm).astype(np.int64)
        found["norm"], found["normed"] = at, all_over[:, None] + seen
        return all_over

    def _polled(self, bucket: int, waited: NDArray[np.int64]) -> NDArray[np.int64]:
        share = self._draws.share(f"poll {bucket}", len(waited), self.job.ranks)
        return (share * poll_bound(waited)).astype(np.int64)


def poll_bound(waited: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how late at most a thread that looks now and then sees what was waited for so long."""
    return np.clip(waited // _POLL_SHARE, _POLL_LEAST_NS, _POLL_MOST_NS)
