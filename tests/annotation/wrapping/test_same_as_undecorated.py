"""What is decorated or iterated behaves as it did before."""

from __future__ import annotations

import asyncio
import gc
import math
import operator
import threading
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


@pytest.mark.parametrize("decorate", [ai.compute.init, ai.compute(step=1), dft_fn("t").log])
def test_methods_of_which_a_class_body_makes_class_methods(
    decorate: Callable[..., Any], traced: Traced
) -> None:
    def made() -> list[object]:
        class Base:
            @decorate
            def __init_subclass__(cls, mark: int = 0, **more: Any) -> None:
                super().__init_subclass__(**more)
                cls.mark = mark  # type: ignore[attr-defined]

            @decorate
            def __class_getitem__(cls, key: object) -> tuple[str, object]:
                return cls.__name__, key

            @decorate
            def __new__(cls, *args: object) -> Base:
                return object.__new__(cls)

        class Said:
            @decorate
            @classmethod
            def __init_subclass__(cls) -> None:
                super().__init_subclass__()

            @classmethod
            @decorate
            def __class_getitem__(cls, key: object) -> object:
                return key

        class Child(Base, mark=3):
            pass

        class SaidChild(Said):
            pass

        return [Child.mark, Base[1], Child[2], type(Child(4)) is Child, SaidChild[5]]

    with traced() as rec:
        assert made() == [3, ("Base", 1), ("Child", 2), True, 5]
    assert rec.trace.footer["spans"] == 6


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


def test_what_does_not_bind_to_an_object_does_not_when_decorated(traced: Traced) -> None:
    class Tools:
        size = ai.data.item(len)
        second = ai.data.item(operator.itemgetter(1))

    with traced() as rec:
        assert (Tools().size([1, 2]), Tools().second(["a", "b"])) == (2, "b")
    assert rec.trace.names == {"item": 2}


def test_aiter_of_something_else_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="async iterable"):
        ai.data.item.aiter([1])  # type: ignore[arg-type]


def test_code_and_defaults_that_are_set_anew_are_what_runs(traced: Traced) -> None:
    """So do notebooks bring a changed file into functions that are there."""

    class Base:
        def scale(self) -> int:
            return 10

    class Model(Base):
        @ai.compute.forward
        def scale(self, x: int = 1, *, y: int = 1) -> int:
            return super().scale() + x + y

    class Changed(Base):
        def scale(self, x: int = 2, *, y: int = 2) -> int:
            return 2 * super().scale() + x + y

    with traced() as rec:
        method: Any = vars(Model)["scale"]
        assert Model().scale() == 12
        new: Any = Changed.scale
        method.__code__ = new.__code__
        assert Model().scale() == 22
        method.__defaults__, method.__kwdefaults__ = new.__defaults__, new.__kwdefaults__
        assert Model().scale() == 24
        assert (method.__code__, method.__defaults__) == (new.__code__, new.__defaults__)
        del method.__defaults__
        with pytest.raises(TypeError):
            Model().scale()
        with pytest.raises(ValueError, match="free var"):
            method.__code__ = (lambda: None).__code__
        method.other = 1
        assert vars(method)["other"] == 1
        assert "__code__" not in vars(method)
    assert rec.trace.names["forward"] == 4


@ai.compute.forward
def fails(value: object, error: Exception) -> None:
    ai.update(value=value)
    raise error


@ai.compute.forward
async def fails_in_a_task(value: object, error: Exception) -> None:
    fails.__wrapped__(value, error)


@ai.compute.forward
def fails_in_a_generator(value: object, error: Exception) -> Iterator[None]:
    yield fails.__wrapped__(value, error)


def fails_in_a_block(value: object, error: Exception) -> None:
    with ai.compute.forward:
        fails.__wrapped__(value, error)


def fails_in_a_loop(value: object, error: Exception) -> None:
    for _ in ai.compute.forward.iter([1], include_iter=False):
        fails.__wrapped__(value, error)


async def fails_in_a_task_s_loop(value: object, error: Exception) -> None:
    fails_in_a_loop(value, error)


@pytest.mark.parametrize(
    "fail",
    [
        fails,
        lambda *given: asyncio.run(fails_in_a_task(*given)),
        lambda *given: list(fails_in_a_generator(*given)),
        fails_in_a_block,
        fails_in_a_loop,
        lambda *given: asyncio.run(fails_in_a_task_s_loop(*given)),
    ],
    ids=["function", "coroutine", "generator", "block", "loop", "loop in a task"],
)
def test_an_error_is_the_callers_whatever_was_updated(traced: Traced, fail: Any) -> None:
    """The arguments of a span that an error ends are put into text while the error is on its way."""
    odd = {10**30: str(10**30), "\ud800": "?", "x": "x", math.inf: "Infinity"}
    values: list[Any] = [1, 2.5, True, None, [1], {"a": 1}, *odd]
    with traced(perfetto=False) as rec:
        for value in values:
            error = ValueError()
            with pytest.raises(ValueError) as raised:
                fail(value, error)
            assert raised.value is error
    spans = [e for e in rec.trace.events if e.name.startswith("forward")]
    found = [e.user["value"] for e in spans]
    assert len(found) == len(values)
    for value, one in zip(values, found, strict=True):
        plain = not isinstance(value, (str, float)) and value != 10**30 or value == 2.5
        assert one == value if plain else isinstance(one, str)
