"""What decoration leaves as it was: names, docs, signatures, pickling, kinds of function."""

from __future__ import annotations

import copy
import functools
import inspect
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from conftest import Traced

from dftrace_ai import ai, dft_fn
from dftrace_ai.annotation import wrapping

fn = dft_fn("tests")
DECORATORS: list[Callable[..., Any]] = [
    ai.compute.forward,
    ai.compute.forward(step=1),
    ai.compute.forward.derive(name="derived"),
    ai.compute.forward.init,
    fn.log,
    fn.log(name="x"),
]
IDS = ["bare", "parenthesised", "derived", "init", "dft_fn", "dft_fn-named"]


def original(a: int, /, b: str = "x", *args: float, c: bytes = b"", **kw: Any) -> tuple[Any, ...]:
    """The doc."""
    return a, b, args, c, kw


original.mark = "kept"  # type: ignore[attr-defined]


@ai.compute.forward
def by_name(x: int) -> int:
    """Pickled by its name."""
    return x * 2


@fn.log
def by_name_too(x: int) -> int:
    """Pickled by its name."""
    return x * 3


@pytest.mark.parametrize("decorate", DECORATORS, ids=IDS)
def test_the_face_of_a_function(decorate: Callable[..., Any], traced: Traced) -> None:
    f = decorate(original)
    for name in ("__name__", "__qualname__", "__doc__", "__module__", "__annotations__", "mark"):
        assert getattr(f, name) == getattr(original, name)
    assert f.__wrapped__ is original
    assert inspect.signature(f) == inspect.signature(original)
    assert inspect.unwrap(f) is original
    assert inspect.getsource(f) == inspect.getsource(original)
    assert callable(f)
    assert "original" in repr(f)
    assert weakref.ref(f)() is f
    f.extra = 1
    assert f.extra == 1
    want = original(1, "y", 2.0, c=b"c", d=3)
    assert f(1, "y", 2.0, c=b"c", d=3) == want
    with traced():
        assert f(1, "y", 2.0, c=b"c", d=3) == want
        with pytest.raises(TypeError, match="a"):
            f()
        with pytest.raises(TypeError):
            f(a=1)


@pytest.mark.parametrize("f", [by_name, by_name_too])
def test_pickle_and_copy(f: Callable[[int], int]) -> None:
    assert pickle.loads(pickle.dumps(f)) is f
    assert copy.copy(f) is f
    assert copy.deepcopy(f) is f


def test_partial_cache_and_reduce_on_top(traced: Traced) -> None:
    cached = functools.lru_cache(by_name)
    with traced() as rec:
        assert functools.partial(by_name, 3)() == 6
        assert [cached(1), cached(1)] == [2, 2]
        assert functools.reduce(lambda acc, _: by_name(acc), range(3), 1) == 8
        assert sorted([3, 1], key=by_name) == [1, 3]
    assert rec.trace.names == {"forward": 7}


class Model:
    """Methods of every kind, in both orders of decoration."""

    scale = 2

    def __init__(self, n: int = 1) -> None:
        self.n = n

    @ai.compute.forward
    def method(self, x: int) -> int:
        """Doc of a method."""
        return self.n * x

    @classmethod
    @ai.compute.forward
    def class_inner(cls, x: int) -> int:
        return cls.scale * x

    @ai.compute.forward
    @classmethod
    def class_outer(cls, x: int) -> int:
        return cls.scale * x

    @staticmethod
    @ai.compute.forward
    def static_inner(x: int) -> int:
        return x

    @ai.compute.forward
    @staticmethod
    def static_outer(x: int) -> int:
        return x

    @property
    @ai.compute.forward
    def prop(self) -> int:
        return self.n

    @ai.compute.forward(step=1)
    @classmethod
    def class_parens(cls, x: int) -> int:
        return cls.scale * x

    @ai.compute.forward(step=1)
    @staticmethod
    def static_parens(x: int) -> int:
        return x

    @ai.compute.forward
    def __call__(self, x: int) -> int:
        return self.n + x

    @ai.compute.forward
    def __len__(self) -> int:
        return self.n

    @functools.cached_property
    @ai.compute.forward
    def cached(self) -> int:
        return self.n


class Child(Model):
    """Calls its parent's decorated methods."""

    scale = 10

    @ai.compute.step
    def method(self, x: int) -> int:
        return super().method(x) + 1


def test_methods_of_every_kind(traced: Traced) -> None:
    m, c = Model(3), Child(5)
    with traced() as rec:
        assert [m.method(2), Model.method(m, 2), c.method(2)] == [6, 6, 11]
        assert [m.class_inner(1), Model.class_inner(1), Child.class_inner(1)] == [2, 2, 10]
        assert [m.class_outer(1), Model.class_outer(1), Child.class_outer(1)] == [2, 2, 10]
        assert [m.class_parens(1), Child.class_parens(1)] == [2, 10]
        assert [m.static_inner(4), Model.static_inner(4)] == [4, 4]
        assert [m.static_outer(4), Model.static_outer(4), m.static_parens(4)] == [4, 4, 4]
        assert [m.prop, m(1), len(m), m.cached, m.cached] == [3, 4, 3, 3, 3]
    assert rec.trace.names == {"forward": 3 + 3 + 3 + 2 + 2 + 3 + 4, "step": 1}
    step = rec.trace.one("step")
    assert rec.trace.tree(step) == [["forward", []]]


def test_two_of_our_decorators_and_a_foreign_one(traced: Traced) -> None:
    def foreign(f: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(f)
        def wrapper(*a: Any, **k: Any) -> Any:
            return f(*a, **k)

        return wrapper

    @ai.compute
    @foreign
    @ai.compute.forward
    @ai.compute.backward(step=1)
    def f(x: int) -> int:
        return x

    with traced() as rec:
        assert f(3) == 3
    assert rec.trace.tree() == [["compute", [["forward", [["backward", []]]]]]]
    assert f.__name__ == "f"


def test_many_arguments_keywords_and_unpacking(traced: Traced) -> None:
    @ai.compute.forward
    def f(*args: int, **kw: int) -> tuple[int, int]:
        return sum(args), sum(kw.values())

    with traced() as rec:
        assert f(*range(300), **{f"k{i}": i for i in range(300)}) == (44850, 44850)
        assert f() == (0, 0)
    assert rec.trace.names == {"forward": 2}


def test_reference_cycles_and_lifetime() -> None:
    import gc

    class Big:
        @ai.compute.forward
        def f(self) -> None:
            pass

    def closure() -> weakref.ref[Any]:
        big = Big()

        @ai.compute.forward
        def inner() -> Big:
            return big

        inner.me = inner  # type: ignore[attr-defined]
        return weakref.ref(big)

    ref = closure()
    gc.collect()
    assert ref() is None


def test_the_binding_that_is_shown_to_a_compiler_binds() -> None:
    class Model:
        @ai.compute.forward
        def add(self, a: int) -> int:
            return a + 1

    m = Model()
    add = vars(Model)["add"]
    assert add.__get__(m) == m.add
    assert add.__get__(m, Model)(1) == 2
    assert add.__get__(None, Model) is add
    shown = inspect.getattr_static(type(add), "__get__")
    assert inspect.isfunction(shown)
    assert (shown.__defaults__, shown.__closure__) == (None, None)


def test_for_an_old_torch_descriptors_hold_plain_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to 2.7 Dynamo asserts that what a property or class method calls is a plain function."""
    monkeypatch.setattr(wrapping, "needs_plain_functions", lambda: True)

    class Model:
        @ai.compute.forward
        @property
        def value(self) -> int:
            """A number."""
            return 3

        @ai.compute.forward
        @classmethod
        def make(cls, a: int) -> int:
            return a

        @ai.compute.forward
        @staticmethod
        def static(a: int) -> int:
            return a

        @ai.compute.forward
        def method(self) -> int:
            return 4

        cached = ai.compute.forward(functools.cached_property(lambda _: 5))

    m = Model()
    assert (m.value, m.make(1), Model.make(2), m.method(), m.cached) == (3, 1, 2, 4, 5)
    assert inspect.isfunction(vars(Model)["value"].fget)
    assert inspect.isfunction(vars(Model)["make"].__func__)
    assert inspect.isfunction(m.static)
    assert (m.static(6), Model.static(7)) == (6, 7)
    assert list(inspect.signature(Model.make).parameters) == ["a"]
    assert vars(Model)["value"].__doc__ == "A number."
