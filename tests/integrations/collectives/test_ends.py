"""When a collective has ended: with its future, also where the run ends at the same moment."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from conftest import Traced

from dftrace_ai.run import emitting

pytest.importorskip("torch.distributed")

from dftrace_ai.integrations.torch.collective_ends import Ends


class Work:
    """As those of gloo are for a moment: the future is done, and the work is not completed."""

    def is_completed(self) -> bool:
        return False


class Future:
    def __init__(self) -> None:
        self.is_done = False
        self.is_asked, self.may_answer = threading.Event(), threading.Event()

    def done(self) -> bool:
        return self.is_done

    def value(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            self.is_asked.set()
            self.may_answer.wait()


def test_a_run_ends_right_behind_a_collective(traced: Traced) -> None:
    future = Future()
    ends = Ends()
    with traced(perfetto=False) as run:
        span: Any = emitting.begin("all_reduce", {}, category="comm", track="collectives")
        ends.follow(span, Work(), future)
        future.is_done = True
        # By now the thread that looks at works has seen it, and has not ended the span.
        future.is_asked.wait()
        ends.settle()
    future.may_answer.set()
    ends.stop()
    assert [(one.name, one.ph) for one in run.trace.spans] == [("all_reduce", "X")]
