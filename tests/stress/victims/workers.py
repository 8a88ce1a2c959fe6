"""Workers of multiprocessing."""

from __future__ import annotations

import multiprocessing
import os

import dftrace_ai
from stress.account import Place, processes_with_spans
from stress.nursery import wait_until
from stress.victims.work import Maker, begin, never


def some_spans(place: Place) -> int:
    """The work of one that ends."""
    Maker(place).steps(10)
    return os.getpid()


def spans_without_end(place: Place) -> None:
    """The work of one that has to be terminated."""
    Maker(place).until(never, at_leisure=True)


def processes(place: Place, method: str, terminated: bool) -> None:
    """Two Process objects."""
    begin(place)
    context = multiprocessing.get_context(method)
    target = spans_without_end if terminated else some_spans
    maker = Maker(place)

    def work() -> None:
        workers = [context.Process(target=target, args=(place,)) for _ in range(2)]
        for worker in workers:
            worker.start()
        if terminated:
            wait_until(lambda: processes_with_spans(place) >= {w.pid for w in workers})
            for worker in workers:
                worker.terminate()
        for worker in workers:
            worker.join()

    maker.span(work)
    dftrace_ai.finalize()


def pools(place: Place, method: str, terminated: bool) -> None:
    """A Pool of two."""
    begin(place)
    pool = multiprocessing.get_context(method).Pool(2)
    maker = Maker(place)

    def work() -> None:
        if terminated:
            pool.map_async(spans_without_end, [place] * 4, chunksize=1)
            wait_until(lambda: len(processes_with_spans(place) - {os.getpid()}) == 2)
            pool.terminate()
        else:
            assert len(pool.map(some_spans, [place] * 10, chunksize=1)) == 10
            pool.close()
        pool.join()

    maker.step()
    maker.span(work)
    dftrace_ai.finalize()
