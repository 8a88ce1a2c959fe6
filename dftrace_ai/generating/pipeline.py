"""A step of a pipeline in the order of one forward, one backward: who waits for whose message."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from dftrace_ai.generating.job import Job

DIRECTIONS: Final = ("forward", "backward")
MESSAGE_NS, SEND_NS, BETWEEN_NS = 100_000, 5_000, 10_000


class Pass(NamedTuple):
    """What a stage computes at a time."""

    direction: int  # 0 forward, 1 backward
    microbatch: int

    @property
    def name(self) -> str:
        """By which times of it are called."""
        return f"{DIRECTIONS[self.direction]} {self.microbatch}"

    def before(self, stage: int) -> int:
        """Return the stage that it has to wait for; none has that number at the ends."""
        return stage + (1 if self.direction else -1)

    def behind(self, stage: int) -> int:
        """Return the stage that waits for it."""
        return stage + (-1 if self.direction else 1)


def passes_of(stage: int, stages: int, microbatches: int) -> list[Pass]:
    """Return what a stage computes in a step, in its order."""
    early = min(stages - stage, microbatches)
    found = [Pass(0, number) for number in range(early)]
    for number in range(microbatches):
        found.append(Pass(1, number))
        if early + number < microbatches:
            found.append(Pass(0, early + number))
    return found


class Pipeline:
    """The passes of all stages of a job, in an order in which each is behind what it needs."""

    def __init__(self, job: Job, links: NDArray[np.float64]) -> None:
        self._stages, self._size = job.pp, job.a_stage
        self._links = links.reshape(job.pp, job.a_stage)
        rest = [deque(passes_of(stage, job.pp, job.microbatches)) for stage in range(job.pp)]
        self._order: list[tuple[int, Pass]] = []
        there: set[tuple[int, Pass]] = set()
        while any(rest):
            for stage, passes in enumerate(rest):
                while passes:
                    needs = passes[0].before(stage)
                    if 0 <= needs < job.pp and (stage, passes[0]) not in there:
                        break
                    done = passes.popleft()
                    self._order.append((stage, done))
                    there.add((done.behind(stage), done))
        self.names = [*dict.fromkeys(one.name for _, one in self._order)]

    def run(
        self,
        found: dict[str, NDArray[np.int64]],
        at: NDArray[np.int64],
        took: list[NDArray[np.int64]],
        notices: list[NDArray[np.int64]],
        shared: Callable[[str, slice, NDArray[np.int64]], NDArray[np.int64]] | None = None,
    ) -> NDArray[np.int64]:
        """Add times of passes and messages to `found`, from when each rank begins.

        Of each pass, by twice its microbatch and its direction, there is how long it takes and how
        late it is seen that what it needs has arrived. Where ranks share what is computed, `shared`
        says of a pass and some ranks when each has the whole. Returns when ranks have computed all.
        """
        for name in self.names:
            for what in ("receive", "received", "compute", "computed", "send", "sent"):
                found[f"{what} {name}"] = np.zeros_like(at)
        now = [at[:, self._columns(stage)] for stage in range(self._stages)]
        there: dict[tuple[int, Pass], NDArray[np.int64]] = {}
        for stage, one in self._order:
            columns, number = self._columns(stage), 2 * one.microbatch + one.direction
            begin = now[stage]
            if 0 <= one.before(stage) < self._stages:
                found[f"receive {one.name}"][:, columns] = begin
                arrived = np.maximum(there.pop((stage, one)), begin) + notices[number][:, columns]
                found[f"received {one.name}"][:, columns] = arrived
                begin = arrived + BETWEEN_NS
            end = begin + took[number][:, columns]
            end = end if shared is None else shared(one.name, columns, end)
            found[f"compute {one.name}"][:, columns] = begin
            found[f"computed {one.name}"][:, columns] = end
            end = end + BETWEEN_NS
            behind = one.behind(stage)
            if 0 <= behind < self._stages:
                found[f"send {one.name}"][:, columns] = end
                end = end + SEND_NS
                found[f"sent {one.name}"][:, columns] = end
                slower = np.maximum(self._links[stage], self._links[behind])
                there[behind, one] = end + np.rint(MESSAGE_NS * slower).astype(np.int64)
                end = end + BETWEEN_NS
            now[stage] = end
        return np.concatenate(now, axis=1)

    def _columns(self, stage: int) -> slice:
        return slice(stage * self._size, (stage + 1) * self._size)
