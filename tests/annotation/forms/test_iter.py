"""node.iter: waits and bodies of a loop, each with its count."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from conftest import Traced

from dftrace_ai import ai


def numbers(n: int) -> Iterator[int]:
    """Traces what happens while the consumer waits."""
    for i in range(n):
        with ai.data.item:
            pass
        yield i


def test_waits_and_bodies(traced: Traced) -> None:
    with traced() as rec, ai.pipeline.train:
        seen = []
        for x in ai.dataloader.fetch.iter(numbers(3)):
            with ai.compute.forward:
                seen.append(x)
    t = rec.trace
    assert seen == [0, 1, 2]
    wait, body = ["fetch.iter", [["item", []]]], ["fetch.block", [["forward", []]]]
    assert t.tree() == [["train", [wait, body] * 3]]
    for name in ("fetch.iter", "fetch.block"):
        assert [e.user for e in t.named(name)] == [{"count": 1}, {"count": 2}, {"count": 3}]
        assert {e.cat for e in t.named(name)} == {"dataloader"}
    events = t.children(t.one("train"))
    for before, after in zip(events, events[1:], strict=False):
        assert after.ts_ns is not None
        assert before.end_ns <= after.ts_ns


OPTIONS: list[tuple[dict[str, Any], dict[str, int]]] = [
    ({"include_iter": False}, {"fetch.block": 2}),
    ({"include_block": False}, {"fetch.iter": 2}),
    ({"include_iter": False, "include_block": False}, {}),
    ({"iter_name": "wait"}, {"wait": 2, "fetch.block": 2}),
    ({"block_name": "body"}, {"fetch.iter": 2, "body": 2}),
    ({"iter_name": "w", "block_name": "b"}, {"w": 2, "b": 2}),
]


def test_options(traced: Traced) -> None:
    for options, names in OPTIONS:
        with traced() as rec:
            assert list(ai.dataloader.fetch.iter("ab", **options)) == ["a", "b"]
            with ai.compute.step:
                pass
        assert rec.trace.names == {**names, "step": 1}
        assert rec.trace.one("step").level == 1


def test_what_runs_inside_has_the_shown_part_as_parent(traced: Traced) -> None:
    with traced() as rec:
        for _ in ai.dataloader.fetch.iter(numbers(1), include_iter=False):
            pass
        for _ in ai.dataloader.fetch.iter(range(1), include_block=False):
            with ai.compute.forward:
                pass
    t = rec.trace
    assert t.tree() == [["item", []], ["fetch.block", []], ["fetch.iter", []], ["forward", []]]


def test_return_from_inside_a_nest_of_loops(traced: Traced) -> None:
    def search() -> int:
        for i in ai.pipeline.epoch.iter(range(5)):
            for j in ai.dataloader.fetch.iter(range(5)):
                if i * j == 2:
                    return j
        return -1

    with traced() as rec:
        assert search() == 2
    t = rec.trace
    assert t.names == {
        "epoch.iter": 2,
        "epoch.block": 2,
        "fetch.iter": 5 + 3,
        "fetch.block": 5 + 3,
    }
    assert t.footer["unfinished"] == 0
    assert [len(t.children(b)) for b in t.named("epoch.block")] == [10, 6]
    assert t.footer["unmatched_stops"] == 0


def test_length_laziness_and_the_iterator_protocol(traced: Traced) -> None:
    pulled = []

    def source() -> Iterator[int]:
        for i in range(3):
            pulled.append(i)
            yield i

    with traced():
        assert len(ai.dataloader.fetch.iter([1, 2, 3])) == 3
        ai.dataloader.disable()
        assert len(ai.dataloader.fetch.iter([1, 2, 3])) == 3
        assert list(ai.dataloader.fetch.iter([1, 2, 3])) == [1, 2, 3]
        ai.dataloader.enable()
        with pytest.raises(TypeError):
            len(ai.dataloader.fetch.iter(source()))
        it = ai.dataloader.fetch.iter(source())
        assert iter(it) is it
        assert pulled == []
        assert next(it) == 0
        assert pulled == [0]
        assert list(it) == [1, 2]
        assert next(it, "end") == "end"
        with pytest.raises(TypeError):
            ai.dataloader.fetch.iter(3)  # type: ignore[call-overload]


class Loader:
    """A loader with something that frameworks set, and something that they may not."""

    def __init__(self) -> None:
        self.epoch = 0
        self._iterator: object = "workers"

    def __iter__(self) -> Iterator[int]:
        return iter(range(2))

    @property
    def dataset(self) -> str:
        return "digits"


def test_what_is_set_on_a_loop_is_set_on_the_loader(traced: Traced) -> None:
    loader = Loader()
    with traced() as rec:
        loop = ai.dataloader.fetch.iter(loader)
        loop._iterator = None  # as Lightning does when a loop over it has ended
        loop.epoch = loop.epoch + 3
        loop.new = "name"
        assert list(loop) == [0, 1]
        assert vars(loader) == {"epoch": 3, "_iterator": None, "new": "name"}
        del loop.new
        assert not hasattr(loader, "new")
        with pytest.raises(AttributeError, match="new"):
            del loop.new
        with pytest.raises(AttributeError):
            loop.dataset = "letters"
        with pytest.raises(AttributeError, match="close"):
            loop.close = print  # type: ignore[method-assign, assignment]
        with pytest.raises(AttributeError, match="'list' object has no attribute"):
            ai.dataloader.fetch.iter([1]).epoch = 1
        with pytest.raises(TypeError):
            loop.__class__ = Loader  # type: ignore[assignment]
    assert rec.trace.names == {"fetch.iter": 2, "fetch.block": 2}
