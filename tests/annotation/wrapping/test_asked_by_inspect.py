"""Every question of inspect about a decorated callable, answered as about the undecorated one."""

from __future__ import annotations

import functools
import inspect
import re
import sys
import types
import typing
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dftrace_ai import ai, dft_fn
from dftrace_ai.annotation import wrapping

# Asked of things that are no callables, or of no thing at all.
OF_OTHER_THINGS = {
    "attrgetter", "classify_class_attrs", "cleandoc", "currentframe", "formatannotation",
    "formatannotationrelativeto", "formatargspec", "formatargvalues", "getargs", "getargvalues",
    "getasyncgenlocals", "getasyncgenstate", "getattr_static", "getblock", "getclasstree",
    "getcoroutinelocals", "getcoroutinestate", "getframeinfo", "getgeneratorlocals",
    "getgeneratorstate", "getinnerframes", "getlineno", "getmembers", "getmembers_static",
    "getmodulename", "getmro", "getouterframes", "indentsize", "iskeyword",
    "markcoroutinefunction", "namedtuple", "stack", "trace", "walktree",
}  # fmt: skip
QUESTIONS = [
    name
    for name, question in vars(inspect).items()
    if inspect.isfunction(question) and name not in OF_OTHER_THINGS and not name.startswith("_")
]


# Words above a function.
def function(a: int, /, b: str = "x", *rest: float, c: bytes = b"", **more: Any) -> str:
    """What it does."""
    return f"{a}{b}{rest}{c!r}{more}"


async def coroutine(a: int) -> int:
    return a


def generator(a: int) -> Iterator[int]:
    yield a


async def async_generator(a: int) -> AsyncIterator[int]:
    yield a


class Plain:
    """A method of every kind."""

    # Words above a method.
    def method(self, batch: int, i: int = 0) -> int:
        """What it does."""
        return batch + i

    async def coroutine(self, batch: int) -> int:
        return batch

    def generator(self, batch: int) -> Iterator[int]:
        yield batch

    async def async_generator(self, batch: int) -> AsyncIterator[int]:
        yield batch

    @classmethod
    def of_class(cls, batch: int) -> int:
        return batch

    @staticmethod
    def static(batch: int) -> int:
        return batch

    @property
    def value(self) -> int:
        """A number."""
        return 1

    partial = functools.partialmethod(method, i=3)
    cached = functools.lru_cache(method)
    tool = functools.partial(max, 3)


class Caller:
    """An object that is called."""

    def __call__(self, a: int) -> int:
        return a


def decorated_twin(decorate: Callable[..., Any]) -> type[Any]:
    names = [name for name in vars(Plain) if not name.startswith("__")]
    made: Any = type("Plain", (), {name: decorate(vars(Plain)[name]) for name in names})
    made.__module__, made.__doc__ = Plain.__module__, Plain.__doc__
    return typing.cast("type[Any]", made)


SUBJECTS: dict[str, Callable[[Any, type[Any]], Any]] = {
    "function": lambda decorate, _: decorate(function),
    "lambda": lambda decorate, _: decorate(SQUARE),
    "coroutine function": lambda decorate, _: decorate(coroutine),
    "generator function": lambda decorate, _: decorate(generator),
    "async generator function": lambda decorate, _: decorate(async_generator),
    "builtin": lambda decorate, _: decorate(len),
    "partial": lambda decorate, _: decorate(PARTIAL),
    "cached function": lambda decorate, _: decorate(CACHED),
    "object with __call__": lambda decorate, _: decorate(CALLER),
    "a method, bound": lambda decorate, _: decorate(Plain().method),
    "method of the class": lambda _, cls: cls.method,
    "method": lambda _, cls: cls().method,
    "method of super()": lambda _, cls: super_of(below(cls)).method,
    "method of a subclass": lambda _, cls: below(cls).method,
    "coroutine method": lambda _, cls: cls().coroutine,
    "generator method": lambda _, cls: cls().generator,
    "async generator method": lambda _, cls: cls().async_generator,
    "class method": lambda _, cls: cls.of_class,
    "class method of an object": lambda _, cls: cls().of_class,
    "static method": lambda _, cls: cls.static,
    "static method of an object": lambda _, cls: cls().static,
    "property": lambda _, cls: vars(cls)["value"],
    "function of a property": lambda _, cls: vars(cls)["value"].fget,
    "partial method": lambda _, cls: cls().partial,
    "partial method of the class": lambda _, cls: cls.partial,
    "cached method": lambda _, cls: cls().cached,
    "partial in a class": lambda _, cls: cls().tool,
}
SQUARE = lambda a: a * a  # noqa: E731
PARTIAL = functools.partial(function, 1, b="y")
CACHED = functools.lru_cache(function)
CALLER = Caller()


def below(cls: type[Any]) -> Any:
    return type("Below", (cls,), {})()


def super_of(instance: Any) -> Any:
    return super(type(instance), instance)


def answer(question: str, subject: Any) -> Any:
    asked = getattr(inspect, question)
    try:
        if question == "getcallargs":
            found: Any = asked(subject, 5)
        else:
            found = asked(subject)
    except (TypeError, OSError, ValueError, AttributeError) as error:
        return type(error).__name__
    return shown(found)


def shown(found: Any) -> str:
    """As text in which two objects of one class are the same."""
    if question_about_callable(found):
        found = getattr(found, "__func__", found)
    return re.sub(r"\bat 0x[0-9a-f]+|dftrace_ai\._native\.\w+", "", str(found))


def question_about_callable(found: Any) -> bool:
    return isinstance(found, types.MethodType)


# Where the answer is another one: a decorated plain function is an object of the native module.
NATIVE = {
    "function", "lambda", "method of the class", "static method", "static method of an object",
    "function of a property",
}  # fmt: skip
BOUND = {
    "method",
    "method of super()",
    "method of a subclass",
    "class method",
    "class method of an object",
}
OF_PYTHON = {
    "coroutine function", "generator function", "async generator function",
    "coroutine method", "generator method", "async generator method",
}  # fmt: skip
HELD = {"a method, bound"}
NO_PLACE = NATIVE | BOUND | OF_PYTHON | HELD
DIFFERENT = {
    "isfunction": NATIVE,
    "ismethod": BOUND | HELD | {"cached method"},
    "ismethoddescriptor": NATIVE | BOUND | {"cached method"},
    "isroutine": HELD | {"builtin"},
    "isbuiltin": {"builtin"},
    "getfile": NO_PLACE,
    "getsourcefile": NO_PLACE,
    "getabsfile": NO_PLACE,
    "findsource": NO_PLACE,
    "getcomments": {
        "function",
        "method of the class",
        "method",
        "method of super()",
        "method of a subclass",
    }
    | HELD,
    "getclosurevars": NO_PLACE | {"partial method of the class"},
    "getcallargs": BOUND | HELD,
    "getfullargspec": {"object with __call__"},
    "unwrap": {"partial method"},
}
# From there on Python binds class methods by itself, whatever they hold, and then partial objects, too.
BINDS_CLASS_METHODS = sys.version_info >= (3, 13)
if BINDS_CLASS_METHODS:
    for _question in ("ismethod", "ismethoddescriptor", "getcallargs"):
        DIFFERENT[_question] = DIFFERENT[_question] - {"class method", "class method of an object"}
if sys.version_info >= (3, 14):
    for _question in ("ismethod", "ismethoddescriptor"):
        DIFFERENT[_question] = DIFFERENT[_question] | {"partial in a class"}
    for _question in ("getcallargs", "getfullargspec"):
        DIFFERENT[_question] = DIFFERENT[_question] | {"partial"}


@pytest.fixture(autouse=True)
def _no_old_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """For one that other tests have loaded, class methods and properties hold plain functions."""
    monkeypatch.setattr(wrapping, "needs_plain_functions", lambda: False)


def differences(decorate: Callable[..., Any]) -> dict[str, set[str]]:
    twin = decorated_twin(decorate)
    found: dict[str, set[str]] = {}
    for name, make in SUBJECTS.items():
        for question in QUESTIONS:
            if answer(question, make(lambda f: f, Plain)) != answer(question, make(decorate, twin)):
                found.setdefault(question, set()).add(name)
    return found


def test_inspect_answers_as_about_the_undecorated_one() -> None:
    assert {"signature", "getfullargspec", "iscoroutinefunction", "unwrap"} <= set(QUESTIONS)
    found = differences(ai.compute.forward)
    assert {q: found.get(q, set()) ^ DIFFERENT.get(q, set()) for q in {*found, *DIFFERENT}} == {
        q: set() for q in DIFFERENT
    }


def test_the_page_names_every_question_that_has_another_answer() -> None:
    page = Path(__file__).parents[3] / "docs" / "limitations.md"
    text = page.read_text(encoding="utf-8").split("## Decorated functions")[1].split("## ")[0]
    assert [question for question in DIFFERENT if f"`{question}`" not in text] == []


def test_a_bound_method_leads_to_the_bound_method_it_wraps() -> None:
    twin = decorated_twin(ai.compute.forward)
    o = twin()
    assert o.method.__wrapped__ == types.MethodType(Plain.method, o)
    assert o.method.__wrapped__(2, 3) == o.method(2, 3) == 5
    assert inspect.getfullargspec(o.method).args == ["self", "batch", "i"]
    assert list(inspect.signature(o.method).parameters) == ["batch", "i"]
    of_class = vars(Plain)["of_class"].__func__
    bound = of_class if BINDS_CLASS_METHODS else types.MethodType(of_class, twin)
    assert twin.of_class.__wrapped__ == bound
    assert typing.get_type_hints(o.method) == typing.get_type_hints(Plain().method)
    assert weakref.WeakMethod(o.method)() == o.method
    twice = decorated_twin(lambda f: ai.compute(ai.compute.forward(f)))()
    assert inspect.unwrap(twice.method) == types.MethodType(Plain.method, twice)

    class Below(twin):  # type: ignore[misc, valid-type]
        def method(self, batch: int, i: int = 0) -> int:
            assert list(inspect.signature(super().method).parameters) == ["batch", "i"]
            return int(super().method(batch, i)) + 1

    assert Below().method(2, 3) == 6


def test_what_was_bound_before_is_not_bound_again() -> None:
    held = Plain()

    class Holder:
        once = ai.compute.forward(held.method)
        twice = ai.compute.forward(ai.compute.forward(Plain.method).__get__(held))

    assert (Holder().once(2), Holder().twice(3)) == (2, 3)


def test_functions_of_functools_typing_and_others() -> None:
    """Each takes a decorated method where it takes a plain one."""

    class Model:
        @ai.compute.forward
        def add(self, a: int, b: int = 1) -> int:
            return a + b

        more = functools.partialmethod(add, b=10)
        much = ai.compute.forward(functools.partialmethod(Plain.method, i=100))

        @functools.singledispatchmethod
        def kind(self, of: Any) -> str:
            return "any"

        @kind.register
        @ai.compute.forward
        def _(self, of: int) -> str:
            return "int"

    m = Model()
    assert (m.more(1), m.much(1)) == (11, 101)
    assert functools.partial(m.add, b=5)(1) == 6
    assert (m.kind(3), m.kind("x")) == ("int", "any")

    @functools.wraps(m.add)
    def outer(*args: int) -> int:
        return m.add(*args)

    assert list(inspect.signature(outer).parameters) == ["a", "b"]
    assert dft_fn("tests").log(functools.partial(max, 3))(5) == 5
