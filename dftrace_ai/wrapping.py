"""Decoration: a callable in, the same callable with spans around its work out."""

from __future__ import annotations

import functools
import sys
import types
from typing import TYPE_CHECKING, Any, TypeVar, cast

from dftrace_ai._native import Node, Span, TracedFunction

if TYPE_CHECKING:
    import inspect
    from collections.abc import AsyncGenerator, Callable, Generator

__all__ = ["wrap"]

F = TypeVar("F", bound="Callable[..., Any]")


def wrap(node: Node, target: F) -> F:
    """Put spans of `node` around the work of `target`.

    Args:
        node: whose spans they are.
        target: a function, method, coroutine function, generator function, async
            generator function, staticmethod, classmethod, property, class (its
            ``__init__`` is wrapped) or any other callable.

    Returns:
        An object that is used like `target`: same name, doc, signature, binding.

    Raises:
        TypeError: `target` cannot be called.

    Example::

        forward = wrap(ai.compute.forward, forward)
    """
    wrapped = _of_descriptor(node, target)
    if wrapped is not None:
        return cast("F", wrapped)
    if isinstance(target, type):
        # Replacing the class would break isinstance and inheritance.
        made: Any = target
        if made.__init__ is object.__init__ and made.__new__ is not object.__new__:
            # An own `__init__` would take part in the check of the arguments.
            made.__new__ = staticmethod(wrap(node, made.__new__))
        else:
            made.__init__ = wrap(node, made.__init__)
        return cast("F", target)
    if not callable(target):
        raise TypeError(
            f"{target!r} cannot be decorated: it is not callable; to open a span with arguments, "
            f"name them, as in {node.name}(epoch=1)"
        )
    import inspect

    if inspect.iscoroutinefunction(target):
        return cast("F", _coroutine_function(node, target))
    if inspect.isasyncgenfunction(target):
        return cast("F", _async_generator_function(node, target))
    if inspect.isgeneratorfunction(target):
        generator_function: Any = _generator_function(node, target)
        if _is_generator_based_coroutine(target):
            generator_function = types.coroutine(generator_function)
        return cast("F", generator_function)
    return cast("F", functools.update_wrapper(cast("Any", TracedFunction(node, target)), target))


def bound_signature(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a decorated method that is bound to its object."""
    import inspect

    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    takes_self = parameters and parameters[0].kind in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    )
    return signature.replace(parameters=parameters[1:] if takes_self else parameters)


def _of_descriptor(node: Node, target: object) -> object | None:
    """Wrap what a descriptor of the class body holds, so that decorators go in any order."""
    if isinstance(target, staticmethod):
        return staticmethod(wrap(node, target.__func__))
    if isinstance(target, classmethod):
        return classmethod(wrap(node, target.__func__))
    if isinstance(target, property):
        getter = wrap(node, target.fget) if target.fget else None
        return property(getter, target.fset, target.fdel, target.__doc__)
    if isinstance(target, functools.cached_property):
        cached: functools.cached_property[Any] = functools.cached_property(wrap(node, target.func))
        return cached
    return None


def _is_generator_based_coroutine(target: Any) -> bool:
    """Whether `types.coroutine` made it awaitable."""
    code = getattr(target, "__code__", None)
    return code is not None and bool(code.co_flags & 0x100)  # CO_ITERABLE_COROUTINE


def _coroutine_function(node: Any, target: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(target)
    async def traced(*args: Any, **kwargs: Any) -> Any:
        with node:
            return await target(*args, **kwargs)

    return traced


def _end(span: Span | None, expected: tuple[type[BaseException], ...]) -> None:
    """End a resume; what a generator raises to say that it is over is no error."""
    if span is not None:
        raised = sys.exc_info()[0]
        span.end(None if raised is None or issubclass(raised, expected) else raised)


def _generator_function(
    node: Node, target: Callable[..., Generator[Any, Any, Any]]
) -> Callable[..., Generator[Any, Any, Any]]:
    """One span per resume, so that the time in which the consumer works is not counted."""
    over = (StopIteration, GeneratorExit)

    @functools.wraps(target)
    def traced(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        generator = target(*args, **kwargs)

        def resume(step: Callable[..., Any], *values: Any) -> Any:
            span = node._begin()
            try:
                item = step(*values)
            except BaseException:
                _end(span, over)
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
            except StopIteration as end:
                return end.value
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

    @functools.wraps(target)
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
