"""What is decorated or iterated behaves as it did before."""

from __future__ import annotations

import asyncio
import functools
import gc
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from conftest import Traced

from dftrace_ai import ai, dft_fn


def first_two_of_each(loader: Any) -> list[int]:
    seen = []
    for _ in range(3):
        for item in loader:
            seen.append(item)
            if len(seen) % 2 == 0:
                break
    return seen


def test_each_loop_over_a_loader_starts_over(traced: Traced) -> None:
    with traced() as rec:
        loader = ai.data.item.iter([1, 2, 3, 4])
        assert first_two_of_each(loader) == first_two_of_each([1, 2, 3, 4]) == [1, 2] * 3
        pairs = ai.data.item.iter([1, 2])
        assert [(a, b) for a in pairs for b in pairs] == [(1, 1), (1, 2), (2, 1), (2, 2)]
        assert [next(iter(pairs)) for _ in range(2)] == [1, 1]
        walk = ai.data.item.iter(x for x in range(4))
        assert (next(walk), list(walk)) == (0, [1, 2, 3])
    assert rec.trace.footer["unfinished"] == 0


class Flaky:
    """Fails once, and goes on."""

    at = 0

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        self.at += 1
        if self.at > 4:
            raise StopIteration
        if self.at == 2:
            raise TimeoutError
        return self.at


@pytest.mark.parametrize("enabled", [True, False])
def test_an_error_of_the_source_does_not_end_the_loop_for_good(
    traced: Traced, enabled: bool
) -> None:
    seen: list[object] = []
    with traced():
        walk = iter(ai.data.item(enable=enabled).iter(Flaky()))
        while True:
            try:
                seen.append(next(walk))
            except StopIteration:
                break
            except TimeoutError:
                seen.append("late")
    assert seen == [1, "late", 3, 4]


def test_an_iterator_in_use_by_another_thread_is_not_freed(traced: Traced) -> None:
    inside, go_on = threading.Event(), threading.Event()
    calls: list[int] = []

    def keep(x: int) -> bool:
        calls.append(x)
        if len(calls) > 1:
            raise ValueError(x)
        inside.set()
        assert go_on.wait(60)
        return False

    class Loader:
        def __iter__(self) -> Iterator[int]:
            return filter(keep, iter([1, 2, 3]))

    with traced():
        walk = ai.data.item.iter(Loader())
        outcome: list[object] = []

        def consume() -> None:
            try:
                outcome.append(next(walk))
            except ValueError as error:
                outcome.append(type(error))

        thread = threading.Thread(target=consume)
        thread.start()
        assert inside.wait(60)
        with pytest.raises(ValueError):
            next(walk)
        iter(walk)
        walk.close()
        gc.collect()
        go_on.set()
        thread.join()
    assert outcome == [ValueError]


def test_what_a_users_attribute_raises_stays_out_of_the_call(traced: Traced) -> None:
    store = dft_fn("storage")

    class Proxy:
        @store.log_init
        def __init__(self, inner: list[int]) -> None:
            self.inner = inner

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

        @property
        def step(self) -> int:
            raise RuntimeError("not ready")

        @store.log
        def size(self) -> int:
            return len(self.inner)

    with traced() as rec:
        assert Proxy([1]).size() == 1
    assert [e.name.rpartition(".")[2] for e in rec.trace.spans] == ["__init__", "size"]


def test_classes_without_a_constructor_of_their_own(traced: Traced) -> None:
    @ai.data.item
    class New:
        def __new__(cls, x: int) -> New:
            made = super().__new__(cls)
            made.x = x  # type: ignore[attr-defined]
            return made

    @ai.data.item
    class Pair(NamedTuple):
        a: int
        b: int

    @ai.data.item
    class Whole(int):
        pass

    @ai.data.item
    class Plain:
        pass

    with traced() as rec:
        assert (New(3).x, Pair(1, b=2), Whole(3) + 1) == (3, (1, 2), 4)  # type: ignore[attr-defined]
        assert isinstance(Plain(), Plain)
    assert rec.trace.names == {"item": 4}


def test_loops_of_one_name_count_for_themselves(traced: Traced) -> None:
    store = dft_fn("storage")
    with traced() as rec:
        for _ in store.iter(range(2), name="o"):
            for _ in store.iter(range(3), name="o"):
                pass
    outer = [e.user["step"] for e in rec.trace.named("o.yield") if e.level == 1]
    inner = [e.user["step"] for e in rec.trace.named("o.yield") if e.level == 2]
    assert (outer, inner) == ([1, 2], [1, 2, 3, 1, 2, 3])


def test_a_generator_that_fails_lets_go_of_its_locals() -> None:
    class Big:
        pass

    left: list[weakref.ref[Big]] = []

    def generator() -> Iterator[int]:
        big = Big()
        left.append(weakref.ref(big))
        yield 1

    def thrown_into(function: Callable[[], Any]) -> None:
        walk = function()
        next(walk)
        with pytest.raises(ValueError):
            walk.throw(ValueError())

    gc.disable()
    try:
        thrown_into(generator)
        thrown_into(ai.data.item(generator))
        assert [ref() for ref in left] == [None, None]
    finally:
        gc.enable()


def test_a_generator_may_answer_a_thrown_generator_exit() -> None:
    def generator() -> Iterator[int]:
        try:
            yield 1
        except GeneratorExit:
            yield 2

    walk = ai.data.item(generator)()
    assert (next(walk), walk.throw(GeneratorExit())) == (1, 2)


def test_a_generator_based_coroutine_can_be_awaited() -> None:
    @ai.data.item
    @types.coroutine
    def answer() -> Any:
        yield
        return 5

    async def ask() -> int:
        return await answer()

    assert asyncio.run(ask()) == 5


def test_what_does_not_bind_to_an_object_does_not_when_decorated(traced: Traced) -> None:
    class Tools:
        size = ai.data.item(len)
        join = ai.data.item(functools.partial("-".join))

    with traced() as rec:
        assert (Tools().size([1, 2]), Tools().join(["a", "b"])) == (2, "a-b")
    assert rec.trace.names == {"item": 2}


def test_aiter_of_something_else_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="async iterable"):
        ai.data.item.aiter([1])  # type: ignore[arg-type]
