"""Decorated generators: one event a resume, the generator itself unchanged."""

from __future__ import annotations

import asyncio
import inspect
import types
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

import pytest
from conftest import Traced

from dftrace_ai import ai, dft_fn


@ai.data.item
def echo(n: int) -> Generator[int, str, str]:
    got = []
    for i in range(n):
        with ai.data.preprocess:
            pass
        got.append((yield i))
    return "-".join(map(str, got))


def test_one_event_a_resume_and_none_for_the_consumer(traced: Traced) -> None:
    with traced() as rec:
        seen = []
        for x in echo(3):
            with ai.compute.step:
                seen.append(x)
    t = rec.trace
    assert seen == [0, 1, 2]
    work = ["item", [["preprocess", []]]]
    assert t.tree() == [work, ["step", []]] * 3
    assert all("error" not in e.args for e in t.spans)


def test_send_throw_close_and_return(traced: Traced) -> None:
    with traced() as rec:
        gen = echo(2)
        assert next(gen) == 0
        assert gen.send("a") == 1
        with pytest.raises(StopIteration) as stop:
            gen.send("b")
        assert stop.value.value == "a-b"

        gen = echo(2)
        next(gen)
        with pytest.raises(KeyError):
            gen.throw(KeyError("k"))
        gen = echo(2)
        next(gen)
        gen.close()
        with pytest.raises(StopIteration):
            next(gen)
        echo(2).close()

    t = rec.trace
    errors = [e.args["error"] for e in t.named("item") if "error" in e.args]
    assert "KeyError" in errors
    assert set(errors) <= {"KeyError", "GeneratorExit"}
    assert t.names["preprocess"] == 4
    assert t.names["item"] == 2 + 2 + 1  # what is closed gives no item
    assert all(e.level == (1 if e.name == "item" else 2) for e in t.spans)


def test_a_block_held_across_a_yield(traced: Traced) -> None:
    """The generator's block opens before the caller's and closes inside it: both are shown."""

    def gen() -> Generator[int, None, None]:
        with ai.data.item:
            yield 1
        yield 2

    with traced() as rec:
        g = gen()
        next(g)
        with ai.compute.forward:
            next(g)
            with ai.compute.step:
                pass
        g.close()
    t = rec.trace
    assert t.names == {"item": 1, "forward": 1, "step": 1}
    item, forward = t.one("item"), t.one("forward")
    assert item.ts_ns is not None
    assert forward.ts_ns is not None
    assert item.ts_ns < forward.ts_ns < item.end_ns < forward.end_ns
    assert item.tid != forward.tid
    assert t.parent(t.one("step")) is forward
    assert t.footer["unmatched_stops"] == 0


def test_async_generators(traced: Traced) -> None:
    @ai.dataloader.fetch
    async def numbers(n: int) -> AsyncGenerator[int, str]:
        for i in range(n):
            await asyncio.sleep(0)
            with ai.data.preprocess:
                pass
            yield i

    async def main() -> list[int]:
        seen = []
        async for x in numbers(3):
            with ai.compute.step:
                seen.append(x)
        agen = numbers(2)
        await agen.__anext__()
        await agen.aclose()
        return seen

    assert inspect.isasyncgenfunction(numbers)
    with traced() as rec:
        assert asyncio.run(main()) == [0, 1, 2]
    t = rec.trace
    assert t.names["step"] == 3
    assert t.names["preprocess"] == 4
    assert t.names["fetch"] == 4
    assert all((up := t.parent(e)) and up.name == "fetch" for e in t.named("preprocess"))
    assert all(t.parent(e) is None for e in t.named("step"))


def test_a_generator_dropped_half_way_leaves_nothing_open(traced: Traced) -> None:
    with traced() as rec:
        gen = echo(5)
        next(gen)
        del gen
        with ai.compute.step:
            pass
    assert rec.trace.footer["unfinished"] == 0
    assert rec.trace.one("step").level == 1


def test_a_last_resume_with_something_in_it_is_an_event(traced: Traced) -> None:
    """Whoever records is inside of a span that is there, at whatever depth and in whatever form."""

    def tail(n: int) -> Generator[int, None, None]:
        yield from range(n)
        with ai.checkpoint.capture:
            pass

    async def async_tail(n: int) -> AsyncGenerator[int, None]:
        for i in range(n):
            yield i
        await asyncio.sleep(0)
        with ai.checkpoint.capture:
            pass

    decorated = ai.data.item(tail)
    around = ai.compute.forward(decorated)
    fn = dft_fn("own")

    async def walk() -> None:
        assert [x async for x in ai.data.item(async_tail)(2)] == [0, 1]
        assert [x async for x in ai.data.item.aiter(async_tail(2), include_block=False)] == [0, 1]

    ways: list[tuple[Callable[[], Any], dict[str, int]]] = [
        (lambda: list(decorated(2)), {"item": 3}),
        (lambda: list(around(2)), {"item": 3, "forward": 3}),
        (lambda: list(ai.data.item.iter(tail(2), include_block=False)), {"item.iter": 3}),
        (lambda: list(fn.iter(tail(2), name="l")), {"l.iter": 3, "l.yield": 2}),
        (lambda: asyncio.run(walk()), {"item": 3, "item.iter": 3, "capture": 1}),
    ]
    for way, counts in ways:
        with traced() as rec:
            way()
        t = rec.trace
        want = {"capture": 1, **counts}
        want["capture"] += counts.get("capture", 0)
        assert t.names == want
        for e in t.named("capture"):
            up = t.parent(e)
            assert up is not None
            assert "count" not in up.args
            assert up.user == {}


def test_an_empty_last_resume_is_no_event_in_any_form(traced: Traced) -> None:
    @ai.data.item
    def two() -> Generator[int, None, str]:
        yield 1
        yield 2
        return "returned"

    @ai.data.item
    async def async_two() -> AsyncGenerator[int, None]:
        yield 1
        await asyncio.sleep(0)
        yield 2

    async def walk() -> list[int]:
        return [x async for x in async_two()]

    fn = dft_fn("own")
    with traced() as rec:
        assert list(two()) == [1, 2]
        assert asyncio.run(walk()) == [1, 2]
        assert list(fn.log(two, name="outer")()) == [1, 2]
        assert list(ai.dataloader.fetch.iter(two(), include_block=False)) == [1, 2]
        assert list(fn.iter(two(), name="l")) == [1, 2]
        assert list(ai.data.item(lambda: (x for x in ()))()) == []
    t = rec.trace
    assert t.names == {
        "item": 2 + 2 + 2 + 2 + 2 + 1,
        "outer": 2,
        "fetch.iter": 2,
        "l.iter": 2,
        "l.yield": 2,
    }
    assert t.footer["unfinished"] == 0


def test_an_error_in_the_last_resume_is_told(traced: Traced) -> None:
    @ai.data.item
    def fails() -> Generator[int, None, None]:
        yield 1
        raise OSError

    @ai.data.item
    async def async_fails() -> AsyncGenerator[int, None]:
        yield 1
        raise OSError

    async def walk() -> None:
        async for _ in async_fails():
            pass

    with traced() as rec:
        with pytest.raises(OSError):
            list(fails())
        with pytest.raises(OSError):
            asyncio.run(walk())
    assert [e.args.get("error") for e in rec.trace.named("item")] == [None, "OSError"] * 2


def test_what_is_awaited_is_an_event_to_its_end(traced: Traced) -> None:
    """The last resume of a generator that is a coroutine gives what was awaited."""

    @ai.data.item
    @types.coroutine
    def answer() -> Generator[None, None, int]:
        yield
        return 5

    async def ask() -> int:
        return await answer()

    with traced() as rec:
        assert asyncio.run(ask()) == 5
    assert rec.trace.names == {"item": 2}
