"""Where gevent patches threads behind `auto`, those of the collectives are of the kind that it makes."""

from __future__ import annotations

import queue
from concurrent.futures import Future

import pytest
from conftest import Traced

from dftrace_ai.run import emitting

pytest.importorskip("torch.distributed")


class Work(Future):  # type: ignore[type-arg]
    """A collective that is done when it is told to be."""

    is_completed = Future.done

    def get_future(self) -> Work:
        return self

    def value(self) -> None:
        return self.result()


class Patched(queue.SimpleQueue):  # type: ignore[type-arg]
    """Stands for a queue in which a greenlet may wait."""


def test_a_thread_waits_in_a_queue_of_its_own_kind(
    traced: Traced, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dftrace_ai.integrations.torch.collective_ends import Ends

    with traced(perfetto=False) as rec:
        ends, work = Ends(), Work()
        # As `gevent.monkey.patch_all()` does it, together with the making of threads.
        monkeypatch.setattr(queue, "SimpleQueue", Patched)
        span = emitting.begin("all_reduce", category="comm", track="collectives")
        ends.follow(span, work, work.get_future())
        waits_in = ends._calls
        work.set_result(None)
        ends.stop()
    assert isinstance(waits_in, Patched)
    assert rec.trace.names == {"all_reduce": 1}
