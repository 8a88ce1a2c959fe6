"""Jobs of three ranks on gloo that hang, or do not, and what the flight recorder of each rank says.

`torchrun --nproc-per-node 3 gloo_jobs.py FOLDER CASE...` writes `FOLDER/CASE/fr_RANK`, a pickle, and
`fr_RANK.json`. Each case is a fork of its own, after torch was imported once. A rank dumps behind a call
that it has begun and not waited for, so nobody has to be interrupted.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

RANK = int(os.environ.get("RANK", "0"))
RANKS = 3


class Case:
    """A job: the groups of it, and what its ranks tell each other beside them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = dist.FileStore(str(folder / "store"), RANKS)
        dist.init_process_group(
            "gloo", store=dist.PrefixStore("job", self.store), rank=RANK, world_size=RANKS
        )
        self.first = dist.new_group([0, 1, 2])
        self.second = dist.new_group([0, 1, 2])
        self.x = torch.ones(4)
        for group in (None, self.first, self.second):
            dist.all_reduce(self.x, group=group)
        self.settle()

    def come(self, to: str, ranks: int = RANKS) -> None:
        """Tell that this rank is there, and wait until so many are."""
        self.store.add(to, 1)
        while self.store.add(to, 0) < ranks:
            time.sleep(0.005)

    def dump(self) -> None:
        """Write both forms of a dump; lines of the program, which cost a second, in one alone."""
        recorder = torch._C._distributed_c10d
        lines = RANK == 0 and self.folder.name == "missing"
        (self.folder / f"fr_{RANK}").write_bytes(recorder._dump_fr_trace(True, lines, False))
        text = _bytes(recorder._dump_fr_trace_json(True, False))
        (self.folder / f"fr_{RANK}.json").write_bytes(text)

    def settle(self) -> None:
        """Wait until the recorder knows that all calls have ended, which it does soon."""
        recorder = torch._C._distributed_c10d
        while b'"retired":false' in _bytes(recorder._dump_fr_trace_json(True, False)):
            time.sleep(0.005)

    def dump_when_done(self) -> None:
        self.settle()
        self.dump()


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


def odd_call(case: Case, call: Callable[[bool], object]) -> None:
    """Rank 1 calls another thing when the others have called and dumped: gloo may end these."""
    if RANK == 1:
        while case.store.add("dumped", 0) < RANKS - 1:
            time.sleep(0.005)
    call(RANK == 1)
    case.dump()
    case.come("dumped")


def missing(case: Case) -> None:
    if RANK != 1:
        dist.all_reduce(case.x, async_op=True)
        case.dump()
    else:
        case.dump_when_done()
    case.come("dumped")


def op(case: Case) -> None:
    def call(odd: bool) -> None:
        if odd:
            dist.broadcast(case.x, 0, async_op=True)
        else:
            dist.all_reduce(case.x, async_op=True)

    odd_call(case, call)


def size(case: Case) -> None:
    odd_call(case, lambda odd: dist.all_reduce(torch.ones(8 if odd else 4), async_op=True))


def gathered(case: Case) -> None:
    def call(odd: bool) -> None:
        mine = torch.ones(6 if odd else 4)
        dist.all_gather([mine.clone() for _ in range(RANKS)], mine, async_op=True)

    odd_call(case, call)


def dtype(case: Case) -> None:
    kinds = {True: torch.float64, False: torch.float32}
    odd_call(case, lambda odd: dist.all_reduce(torch.ones(4, dtype=kinds[odd]), async_op=True))


def order(case: Case) -> None:
    dist.all_reduce(case.x, group=case.second if RANK == 1 else case.first, async_op=True)
    case.dump()
    case.come("dumped")


def clean(case: Case) -> None:
    for _ in range(5):
        dist.all_reduce(case.x)
    case.dump_when_done()


def late(case: Case) -> None:
    if RANK != 1:
        work = dist.all_reduce(case.x, async_op=True)
        case.come("called")
        work.wait()
    else:
        case.come("called")
        dist.all_reduce(case.x)
    case.dump_when_done()


def uneven(case: Case) -> None:
    given = [[1, 2, 3], [2, 1, 1], [1, 1, 2]]
    taken = [row[RANK] for row in given]
    dist.all_to_all_single(torch.ones(sum(taken)), torch.ones(sum(given[RANK])), taken, given[RANK])
    dist.all_reduce(case.x)
    case.dump_when_done()


def rooted(case: Case) -> None:
    parts = [torch.ones(4) for _ in range(RANKS)]
    dist.gather(case.x, parts if RANK == 0 else None, 0)
    dist.scatter(case.x, parts if RANK == 2 else None, 2)
    dist.reduce(case.x, 1)
    dist.broadcast(case.x, 2)
    case.dump_when_done()


def pairs(case: Case) -> None:
    # Groups that have one rank in common take turns in any order.
    left, right = dist.new_group([0, 1]), dist.new_group([1, 2])
    for group in (right, left) if RANK == 1 else (left, right):
        if RANK != {left: 2, right: 0}[group]:
            dist.all_reduce(case.x, group=group)
    case.dump_when_done()


def messages(case: Case) -> None:
    if RANK:
        dist.recv(case.x, RANK - 1)
    if RANK + 1 < RANKS:
        dist.send(case.x, RANK + 1)
    dist.barrier()
    case.dump_when_done()


CASES: dict[str, Callable[[Case], None]] = {
    one.__name__: one
    for one in (
        *(missing, op, size, gathered, dtype, order),
        *(clean, late, uneven, rooted, pairs, messages),
    )
}


def main() -> None:
    folder, *names = sys.argv[1:]
    for name in names:
        child = os.fork()
        if not child:
            place = Path(folder, name)
            place.mkdir(exist_ok=True)
            try:
                CASES[name](Case(place))
            finally:
                os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
