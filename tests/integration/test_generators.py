"""Decorated generators: one event a resume, the generator itself unchanged."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Generator

import pytest
from conftest import Traced

from dftrace_ai import ai


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
    assert t.tree() == [work, ["step", []], work, ["step", []], work, ["step", []], ["item", []]]
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
    assert t.names["item"] in (6, 7)  # closing a suspended generator may count as a resume
    assert all(e.level == (1 if e.name == "item" else 2) for e in t.spans)


def test_it_is_a_generator_function_and_a_generator() -> None:
    assert inspect.isgeneratorfunction(echo)
    gen = echo(1)
    for name in ("send", "throw", "close", "__next__", "__iter__"):
        assert hasattr(gen, name)
    assert isinstance(gen, Generator)
    gen.close()


def test_yield_from_a_decorated_generator(traced: Traced) -> None:
    @ai.compute.forward
    def outer() -> Generator[int, str, str]:
        return (yield from echo(2))

    with traced() as rec:
        gen = outer()
        assert next(gen) == 0
        assert gen.send("x") == 1
        with pytest.raises(StopIteration) as stop:
            gen.send("y")
        assert stop.value.value == "x-y"
    inner = ["item", [["preprocess", []]]]
    assert rec.trace.tree() == [
        ["forward", [inner]],
        ["forward", [inner]],
        ["forward", [["item", []]]],
    ]


def test_two_generators_taken_in_turns(traced: Traced) -> None:
    with traced() as rec:
        assert list(zip(echo(3), echo(3), strict=True)) == [(0, 0), (1, 1), (2, 2)]
    assert rec.trace.footer["unmatched_stops"] == 0
    assert [e.level for e in rec.trace.named("item")] == [1] * len(rec.trace.named("item"))


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
    assert t.names["fetch"] in (5, 6)
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
