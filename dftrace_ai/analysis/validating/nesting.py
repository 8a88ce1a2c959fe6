"""Whether the spans of each thread nest: a viewer drops those that overlap in part."""

from __future__ import annotations

from array import array
from heapq import nsmallest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["NEVER", "Nesting", "overlap_message"]

NEVER = 2**63 - 1

# Nearly a gibibyte while they are sorted.
MOST_SPANS = 8_000_000


def overlap_message(pid: int, tid: int, outer: int, noun: str = "line") -> str:
    """Return what is told of a span that begins in that of another line and ends after it."""
    return (
        f"on pid {pid} tid {tid} the span overlaps the one of {noun} "
        f"{outer} in part: neither holds the other"
    )


class Nesting:
    """Collects spans and tells which of them overlap another of their thread in part.

    Takes 32 bytes a span whatever the number of threads, and three times as much in
    `overlaps`. Perfetto drops the later one of two such spans without a word (trace
    processor, ``slice_drop_overlapping_complete_event``).

    Args:
        noun: what the numbers count that are given as lines.

    Attributes:
        left_out: spans beyond the first `MOST_SPANS`, which are not looked at.

    Example::

        nesting = Nesting()
        nesting.add(1, 1, 0, 10, line=3)
        nesting.add(1, 1, 5, 15, line=4)
        count, [(line, message)] = nesting.overlaps(10)
        assert (count, line) == (1, 4)
    """

    def __init__(self, noun: str = "line") -> None:
        self.left_out = 0
        self._noun = noun
        # Process id in the upper half, thread id in the lower one.
        self._threads = array("Q")
        self._starts = array("q")
        self._ends = array("q")
        self._lines = array("q")

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, pid: int, tid: int, start_ns: int, end_ns: int | None, line: int) -> None:
        """Take in a span; `end_ns` is None for one that never ended."""
        if len(self._lines) >= MOST_SPANS:
            self.left_out += 1
            return
        self._threads.append(pid << 32 | tid)
        self._starts.append(min(start_ns, NEVER))
        self._ends.append(NEVER if end_ns is None else min(end_ns, NEVER))
        self._lines.append(line)

    def overlaps(self, limit: int) -> tuple[int, list[tuple[int, str]]]:
        """Return how many spans overlap an earlier one in part; the first ones by line.

        Args:
            limit: how many, each as its line and a message.
        """
        lines = self._lines
        count = 0

        def counted() -> Iterator[tuple[int, int]]:
            nonlocal count
            for inner, outer in self._pairs():
                count += 1
                yield lines[inner], outer

        first = nsmallest(limit, counted())
        told = []
        for line, outer in first:
            # Both are of the same thread.
            pid, tid = divmod(self._threads[outer], 2**32)
            told.append((line, overlap_message(pid, tid, lines[outer], self._noun)))
        return count, told

    def _pairs(self) -> Iterator[tuple[int, int]]:
        """Yield the index of each span that begins in another and ends after it, and of that."""
        threads, starts, ends = self._threads, self._starts, self._ends
        # By thread, then start, the longest first; one key at a time needs no tuples.
        order = sorted(range(len(starts)), key=ends.__getitem__, reverse=True)
        order.sort(key=starts.__getitem__)
        order.sort(key=threads.__getitem__)
        open_spans: list[int] = []
        thread = -1
        for at in order:
            if threads[at] != thread:
                thread = threads[at]
                open_spans.clear()
            start = starts[at]
            while open_spans and ends[open_spans[-1]] <= start:
                open_spans.pop()
            if open_spans and ends[open_spans[-1]] < ends[at]:
                yield at, open_spans[-1]
            else:
                open_spans.append(at)
