"""What victims have in common: spans that are made and accounted for."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from time import perf_counter_ns as now
from typing import Any

import dftrace_ai
from dftrace_ai import ai
from dftrace_ai.annotation.node import ProfilerNode
from stress.account import (
    AFTER_BEGIN,
    AFTER_END,
    BEFORE_BEGIN,
    BEFORE_END,
    CAPACITY,
    FIELDS,
    HEAD,
    PARENT,
    Diary,
    Place,
)


def begin(place: Place, **settings: Any) -> dftrace_ai.Run:
    """Start the run of a victim, whose threads take turns often."""
    sys.setswitchinterval(0.0005)
    return dftrace_ai.initialize(log_file=place.out / "t", spool_dir=place.spools, **settings)


class Maker:
    """Makes the spans of one thread, and tells of each before and after what it does with it."""

    def __init__(self, place: Place, *, parent: int = 0) -> None:
        self.diary = Diary(place)
        self.made = 0
        self.depth = 0
        self.above = parent
        mine = {"diary": self.diary.name}
        self.nodes = [
            node(args=mine)
            for node in (
                ai.pipeline.train,
                ai.pipeline.epoch,
                ai.dataloader.fetch,
                ai.compute.forward,
                ai.compute.backward,
                ai.data.item,
            )
        ]

    @property
    def full(self) -> bool:
        """Whether the account has no room for much more than fifty steps."""
        return self.made > CAPACITY - 400

    def span(self, inside: Callable[[], object] | None = None) -> None:
        """One span; its arguments say whose and which it is, and that it came to its end."""
        diary, number, above, depth = self.diary, self.made, self.above, self.depth
        node = self.nodes[depth]
        node.update(n=number)
        at = HEAD + number * FIELDS
        diary.words[at + PARENT] = above
        diary.words[at + BEFORE_BEGIN] = now()
        self.made = number + 1
        try:
            self.above = number + 1
            self.depth = depth + 1
            with node:
                diary.words[at + AFTER_BEGIN] = now()
                try:
                    if inside is not None:
                        inside()
                    node.update(done=number)
                finally:
                    diary.words[at + BEFORE_END] = now()
        finally:
            self.above = above
            self.depth = depth
            diary.words[at + AFTER_END] = now()

    def leave_open(self) -> ProfilerNode:
        """A span that nobody ends; gives the node that could."""
        node = ai.checkpoint.capture(args={"diary": self.diary.name})
        node.update(n=self.made)
        at = HEAD + self.made * FIELDS
        self.diary.words[at + PARENT] = self.above
        self.diary.words[at + BEFORE_BEGIN] = now()
        self.made += 1
        node.start()
        self.diary.words[at + AFTER_BEGIN] = now()
        self.above = self.made
        return node

    def step(self) -> None:
        """Four spans, three deep."""
        self.span(self._two)

    def _two(self) -> None:
        self.span(self.span)
        self.span()

    def steps(self, count: int) -> None:
        """`count` steps inside of one span."""

        def several() -> None:
            for _ in range(count):
                self.step()

        self.span(several)

    def until(self, over: Callable[[], bool], *, at_leisure: bool = False) -> None:
        """Steps until `over`; without haste if `at_leisure`, and when the account is full."""
        wait = threading.Event()

        def several() -> None:
            for _ in range(10 if at_leisure else 100):
                if over() or self.full:
                    break
                self.step()

        while not over():
            if not self.full:
                self.span(several)
            if at_leisure or self.full:
                wait.wait(0.05 if at_leisure else 0.01)


def never() -> bool:
    """What never comes."""
    return False


class Pool:
    """Threads that make spans until they are told to end."""

    def __init__(
        self, place: Place, count: int, *, daemon: bool = True, at_leisure: bool = False
    ) -> None:
        self.ending = False
        self.at_leisure = at_leisure
        self._began = threading.Barrier(count + 1)
        self.threads = [
            threading.Thread(target=self._work, args=(place,), daemon=daemon) for _ in range(count)
        ]
        for thread in self.threads:
            thread.start()
        self._began.wait()

    def _work(self, place: Place) -> None:
        maker = Maker(place)
        maker.step()
        self._began.wait()
        maker.until(lambda: self.ending, at_leisure=self.at_leisure)

    def end(self) -> None:
        """Wait until all have ended."""
        self.ending = True
        for thread in self.threads:
            thread.join()
