"""Decoration: a callable in, the same callable with spans around its work out."""

from __future__ import annotations

import contextlib
import functools
import sys
import types
from typing import TYPE_CHECKING, Any, TypeVar, cast

from dftrace_ai import recorder
from dftrace_ai._native import Node, TracedFunction
from dftrace_ai.annotation.compiled_code import needs_plain_functions

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator

    from dftrace_ai._native import Span

F = TypeVar("F", bound="Callable[..., Any]")

# A class body makes class methods of these, where they are plain functions.
CLASS_METHODS = frozenset({"__init_subclass__", "__class_getitem__"})


def wrap(node: Node, target: F) -> F:
    """Put spans of `node` around the work of `target`.

    Raises TypeError: `target` cannot be called.
    """
    wrapped = _of_descriptor(node, target)
    if wrapped is not None:
        return cast("F", wrapped)
    if not callable(target):
        raise TypeError(
            f"{target!r} cannot be decorated: it is not callable; to open a span with arguments, "
            f"name them, as in {node.name}(epoch=1)"
        )
    if recorder.lack():
        return target
    return cast("F", _of_callable(node, target))


def _of_callable(node: Node, target: Callable[..., Any]) -> Any:
    if isinstance(target, type):
        # Replacing the class would break isinstance and inheritance.
        made: Any = target
        if made.__init__ is object.__init__ and made.__new__ is not object.__new__:
            # An own `__init__` would take part in the check of the arguments.
            made.__new__ = staticmethod(wrap(node, made.__new__))
        else:
            made.__init__ = wrap(node, made.__init__)
        return target
    import inspect

    if inspect.iscoroutinefunction(target):
        return _coroutine_function(node, target)
    if inspect.isasyncgenfunction(target):
        return _async_generator_function(node, target)
    if inspect.isgeneratorfunction(target):
        if _is_generator_based_coroutine(target):
            awaited = _generator_function(node, target, _end_with_result)
            return types.coroutine(awaited)
        return _generator_function(node, target, _end)
    by_class = isinstance(target, types.FunctionType) and target.__name__ in CLASS_METHODS
    if by_class or type(node).__enter__ is not Node.__enter__:
        return _plain_function(node, target)
    traced: Any = TracedFunction(node, target)
    functools.update_wrapper(traced, target)
    if not isinstance(traced, TracedFunction) and not hasattr(target, "__code__"):
        with contextlib.suppress(TypeError, ValueError):  # a builtin that does not tell
            traced.__signature__ = inspect.signature(target)
    return traced


def in_place_of(target: Callable[..., Any]) -> Callable[[F], F]:
    """Return a decorator that gives a wrapper the face of `target`.

    As functools.wraps, and with the signature for those who do not follow ``__wrapped__``,
    such as inspect.getfullargspec.
    """

    def dressed(wrapper: Any) -> Any:
        import inspect

        functools.update_wrapper(wrapper, target)
        with contextlib.suppress(TypeError, ValueError):
            wrapper.__signature__ = inspect.signature(target)
        return wrapper

    return dressed


def _of_descriptor(node: Node, target: object) -> object | None:
    """Wrap what a descriptor of the class body holds, so that decorators go in any order."""
    if isinstance(target, staticmethod):
        return staticmethod(_called_by_descriptor(node, target.__func__))
    if isinstance(target, classmethod):
        return classmethod(_called_by_descriptor(node, target.__func__))
    if isinstance(target, property):
        getter = _called_by_descriptor(node, target.fget) if target.fget else None
        return property(getter, target.fset, target.fdel, target.__doc__)
    if isinstance(target, functools.cached_property):
        cached: functools.cached_property[Any] = functools.cached_property(wrap(node, target.func))
        return cached
    if isinstance(target, functools.partialmethod):
        return functools.partialmethod(wrap(node, target.func), *target.args, **target.keywords)
    return None


def _called_by_descriptor(node: Node, target: Callable[..., Any]) -> Callable[..., Any]:
    traced = wrap(node, target)
    if not needs_plain_functions() or not isinstance(traced, TracedFunction):
        return traced

    @in_place_of(target)
    def plain(*args: Any, **kwargs: Any) -> Any:
        return traced(*args, **kwargs)

    return plain


def _is_generator_based_coroutine(target: Any) -> bool:
    """Whether `types.coroutine` made it awaitable."""
    code = getattr(target, "__code__", None)
    return code is not None and bool(code.co_flags & 0x100)  # CO_ITERABLE_COROUTINE


def _plain_function(node: Any, target: Callable[..., Any]) -> Callable[..., Any]:
    """For a node that does something else than spans, and for what has to be a function."""

    @in_place_of(target)
    def traced(*args: Any, **kwargs: Any) -> Any:
        with node:
            return target(*args, **kwargs)

    return traced


def _coroutine_function(node: Any, target: Callable[..., Any]) -> Callable[..., Any]:
    @in_place_of(target)
    async def traced(*args: Any, **kwargs: Any) -> Any:
        with node:
            return await target(*args, **kwargs)

    return traced


def _end(span: Span | None, over: tuple[type[BaseException], ...]) -> None:
    """End a resume that raises; what is raised to say that there is nothing more is no error.

    A resume that gives no item is no event, as the last request of a loop is none, unless
    something was recorded inside of it.
    """
    if span is None:
        return
    raised = sys.exc_info()[0]
    if raised is not None and issubclass(raised, over):
        span.end_unless_empty()
    else:
        span.end(raised)


def _end_with_result(span: Span | None, over: tuple[type[BaseException], ...]) -> None:
    """End a resume of a generator that is awaited: its last one gives what was awaited."""
    if span is not None:
        raised = sys.exc_info()[0]
        span.end(None if raised is None or issubclass(raised, over) else raised)


def _generator_function(
    node: Node,
    target: Callable[..., Generator[Any, Any, Any]],
    end: Callable[[Span | None, tuple[type[BaseException], ...]], None],
) -> Callable[..., Generator[Any, Any, Any]]:
    """One span per resume, so that the time in which the consumer works is not counted."""
    over = (StopIteration, GeneratorExit)

    @in_place_of(target)
    def traced(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        generator = target(*args, **kwargs)

        def resume(step: Callable[..., Any], *values: Any) -> Any:
            span = node._begin()
            try:
                item = step(*values)
            except BaseException:
                end(span, over)
                raise
            finally:
                values = ()  # an error in it would hold this frame, and the frame all its locals
            if span is not None:
                span.end()
            return item

        step: Callable[..., Any] = generator.send
        values: tuple[Any, ...] = (None,)
        while True:
            try:
                item = resume(step, *values)
            except StopIteration as stop:
                return stop.value
            finally:
                values = ()
            try:
                step, values = generator.send, ((yield item),)
            except BaseException as error:  # noqa: BLE001 - handed on to the generator
                step, values = generator.throw, (error,)

    return traced


def _async_generator_function(
    node: Node, target: Callable[..., AsyncGenerator[Any, Any]]
) -> Callable[..., AsyncGenerator[Any, Any]]:
    over = (StopAsyncIteration, GeneratorExit)

    @in_place_of(target)
    async def traced(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        generator = target(*args, **kwargs)

        async def resume(step: Callable[..., Any], *values: Any) -> Any:
            span = node._begin()
            try:
                item = await step(*values)
            except BaseException:
                _end(span, over)
                raise
            finally:
                values = ()  # an error in it would hold this frame, and the frame all its locals
            if span is not None:
                span.end()
            return item

        step: Callable[..., Any] = generator.asend
        values: tuple[Any, ...] = (None,)
        while True:
            try:
                item = await resume(step, *values)
            except StopAsyncIteration:
                return
            finally:
                values = ()
            try:
                step, values = generator.asend, ((yield item),)
            except BaseException as error:  # noqa: BLE001 - handed on to the generator
                step, values = generator.athrow, (error,)

    return traced
