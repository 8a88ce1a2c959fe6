"""Coroutines: one event a call on the track of its task, parents kept while tasks interleave."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from conftest import Traced
from perfetto.trace_file import LANE, Event, Trace

from dftrace_ai import ai


def inside(trace: Trace, inner: Event, outer: Event) -> bool:
    """Whether `inner` lies within `outer`, by time and by parents."""
    assert inner.ts_ns is not None
    assert outer.ts_ns is not None
    timed = outer.ts_ns < inner.ts_ns and inner.end_ns <= outer.end_ns
    return timed and trace.parent(inner) is outer


def test_interleaved_tasks_keep_their_own_parents(traced: Traced) -> None:
    """A enters, B enters, A leaves, B leaves, on one thread."""

    async def main() -> None:
        a_in, b_in, a_out = asyncio.Event(), asyncio.Event(), asyncio.Event()

        @ai.compute.forward
        async def first() -> None:
            async with ai.data.item(image_idx=1):
                a_in.set()
                await b_in.wait()
                with ai.comm.send:
                    pass
            a_out.set()

        @ai.compute.backward
        async def second() -> None:
            await a_in.wait()
            with ai.data.item(image_idx=2):
                b_in.set()
                await a_out.wait()
                with ai.comm.receive:
                    pass

        await asyncio.gather(first(), second())

    with traced() as rec:
        asyncio.run(main())
    t = rec.trace
    forward, backward = t.one("forward"), t.one("backward")
    assert forward.tid != backward.tid
    assert min(forward.tid, backward.tid) >= LANE
    one, two = t.named("item")
    assert (one.user["image_idx"], two.user["image_idx"]) == (1, 2)
    assert inside(t, one, forward)
    assert inside(t, two, backward)
    assert inside(t, t.one("send"), one)
    assert inside(t, t.one("receive"), two)


def test_awaited_coroutines_share_the_track_of_their_task(traced: Traced) -> None:
    @ai.compute.backward
    async def inner() -> None:
        await asyncio.sleep(0)

    @ai.compute.forward
    async def outer() -> None:
        await inner()
        await inner()

    with traced() as rec:
        asyncio.run(outer())
    t = rec.trace
    assert len({e.tid for e in t.spans}) == 1
    assert t.tree() == [["forward", [["backward", []], ["backward", []]]]]


def test_a_created_task_knows_who_created_it_or_stands_alone(traced: Traced) -> None:
    """Never the span that merely happened to run on the thread."""

    async def main() -> None:
        release = asyncio.Event()

        @ai.compute.backward
        async def child() -> None:
            await release.wait()

        @ai.compute.forward
        async def creator() -> asyncio.Task[None]:
            return asyncio.create_task(child())

        async def stranger() -> None:
            with ai.data.item:
                release.set()
                await asyncio.sleep(0)
                await asyncio.sleep(0)

        task = await creator()
        await asyncio.gather(stranger(), task)

    with traced() as rec:
        asyncio.run(main())
    t = rec.trace
    up = t.parent(t.one("backward"))
    assert up is None or up.name == "forward"
    assert t.children(t.one("item")) == []


def test_exceptions_cancellation_and_close(traced: Traced) -> None:
    async def main() -> None:
        @ai.compute.forward
        async def fails() -> None:
            await asyncio.sleep(0)
            raise ValueError("x")

        @ai.compute.backward
        async def waits() -> None:
            await asyncio.Event().wait()

        with pytest.raises(ValueError, match="x"):
            await fails()
        task = asyncio.create_task(waits())
        await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert task.cancelled()
        started = waits()
        started.send(None)
        started.close()
        waits().close()

    with traced() as rec:
        asyncio.run(main())
    t = rec.trace
    assert t.one("forward").args["error"] == "ValueError"
    assert [e.args["error"] for e in t.named("backward")] == ["CancelledError", "GeneratorExit"]


def test_async_with_and_async_for(traced: Traced) -> None:
    async def numbers(n: int) -> AsyncIterator[int]:
        for i in range(n):
            await asyncio.sleep(0)
            yield i

    async def main() -> list[int]:
        seen = []
        async with ai.pipeline.train:
            async for x in ai.dataloader.fetch.aiter(numbers(3)):
                async with ai.compute.forward(step=x):
                    await asyncio.sleep(0)
                seen.append(x)
        return seen

    with traced() as rec:
        assert asyncio.run(main()) == [0, 1, 2]
    t = rec.trace
    train = t.one("train")
    assert [e.user["count"] for e in t.named("fetch.iter")] == [1, 2, 3]
    blocks = t.named("fetch.block")
    assert [e.user["count"] for e in blocks] == [1, 2, 3]
    assert all(t.parent(e) is train for e in [*blocks, *t.named("fetch.iter")])
    assert [t.parent(e) for e in t.named("forward")] == blocks
    assert [e.user["step"] for e in t.named("forward")] == [0, 1, 2]


def test_breaking_out_of_async_for_ends_the_block(traced: Traced) -> None:
    async def numbers() -> AsyncIterator[int]:
        for i in range(100):
            yield i

    async def main() -> None:
        async for x in ai.dataloader.fetch.aiter(numbers()):
            if x == 1:
                break
        with ai.compute.step:
            pass

    with traced() as rec:
        asyncio.run(main())
    t = rec.trace
    assert t.names == {"fetch.iter": 2, "fetch.block": 2, "step": 1}
    assert t.footer["unfinished"] == 0
    assert t.one("step").level == 1


def test_a_block_held_across_awaits_of_an_undecorated_task(traced: Traced) -> None:
    """Plain `with` in plain tasks, ended in an order that does not nest."""

    async def main() -> None:
        turn = [asyncio.Event() for _ in range(3)]

        async def work(i: int) -> None:
            with ai.data.item(image_idx=i):
                turn[i].set()
                await asyncio.gather(*(e.wait() for e in turn))
                with ai.data.preprocess(image_idx=i):
                    await asyncio.sleep(0)

        await asyncio.gather(*(work(i) for i in range(3)))

    with traced() as rec:
        asyncio.run(main())
    t = rec.trace
    assert t.names == {"item": 3, "preprocess": 3}
    for inner in t.named("preprocess"):
        up = t.parent(inner)
        assert up is not None
        assert up.user == inner.user
    assert all(e.level == 1 for e in t.named("item"))


def test_work_handed_to_threads(traced: Traced) -> None:
    """asyncio.to_thread copies the context: the span is still the thread's own."""

    def work(i: int) -> int:
        with ai.data.item(step=i), ai.data.preprocess:
            return i

    async def main() -> None:
        @ai.compute.forward
        async def outer(i: int) -> int:
            with ai.comm.send:
                return await asyncio.to_thread(work, i)

        assert await asyncio.gather(*(outer(i) for i in range(8))) == list(range(8))

    with traced() as rec:
        asyncio.run(main())
    t = rec.trace
    assert t.names == {"forward": 8, "send": 8, "item": 8, "preprocess": 8}
    for item in t.named("item"):
        assert item.tid < LANE
        assert t.tree(item) == [["preprocess", []]]
        up = t.parent(item)
        assert up is None or up.name == "send"
